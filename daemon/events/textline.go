package events

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/agentixd/agentixd/runtime/wire"
)

// appendLines adds the text of an event, a line each for what has several: time, number,
// kind, call, and the text with all that could deceive a terminal escaped.
func (f *textFile) appendLines(out []byte, ev *Event) []byte {
	switch b := ev.Body.(type) {
	case *Output:
		return f.appendOutput(out, ev, b)
	case *Log:
		out = appendHead(out, ev, "LOG")
		out = appendEscaped(out, []byte(b.Level+" "+b.Logger+": "+b.Message))
		for _, more := range []string{b.ExceptionText, b.StackInfo, b.Extras} {
			if more != "" {
				out = appendEscaped(append(out, " | "...), []byte(more))
			}
		}
	case *Span:
		out = appendHead(out, ev, b.Phase)
		out = appendEscaped(out, []byte(b.Name))
		for _, part := range [][2]string{{"trace", b.TraceID}, {"span", b.SpanID}, {"parent", b.ParentID}, {"status", b.Status}, {"error", b.Error}, {"attributes", b.Attributes}} {
			if part[1] != "" {
				out = appendEscaped(append(out, " "+part[0]+"="...), []byte(part[1]))
			}
		}
	case *Plugin:
		out = appendHead(out, ev, "PLUGIN")
		out = appendEscaped(out, []byte(b.Namespace+" "+b.Event+" "+b.Data[:min(len(b.Data), wire.MaxShortTextBytes)]))
	case *Lifecycle:
		out = f.flush(out)
		out = appendHead(out, ev, "SANDBOX")
		out = appendEscaped(out, []byte(b.State+" "+b.Reason+" "+b.Message))
	case *Call:
		out = appendHead(out, ev, "CALL")
		out = appendEscaped(out, []byte(b.Phase+" "+b.Callable+" "+b.ErrorType+" "+b.ErrorMessage))
	case *Gap:
		out = appendHead(out, ev, "GAP")
		out = fmt.Appendf(out, "%d events lost (%s)", b.Dropped, b.Source)
	}
	return append(out, '\n')
}

// held is the beginning of a character, and the event that it came with.
type held struct {
	ev   Event
	data []byte
}

// appendOutput makes characters whole that were written in parts by one call.
func (f *textFile) appendOutput(out []byte, ev *Event, b *Output) []byte {
	data := b.Data
	if h := f.rest[b.Stream]; h != nil {
		if h.ev.CallID == ev.CallID {
			data = append(h.data, data...)
		} else {
			out = h.append(out, b.Stream)
		}
		delete(f.rest, b.Stream)
	}
	if n := unfinished(data); n > 0 {
		f.rest[b.Stream] = &held{ev: Event{Seq: ev.Seq, Time: ev.Time, CallID: ev.CallID}, data: bytes.Clone(data[len(data)-n:])}
		data = data[:len(data)-n]
	}
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		out = appendEscaped(appendHead(out, ev, b.Stream), line)
		out, data = append(out, '\n'), rest
	}
	return out
}

func (h *held) append(out []byte, stream string) []byte {
	return append(appendEscaped(appendHead(out, &h.ev, stream), h.data), '\n')
}

// flush gives up on the rest of characters.
func (f *textFile) flush(out []byte) []byte {
	for _, stream := range []string{Stdout, Stderr} {
		if h := f.rest[stream]; h != nil {
			out = h.append(out, stream)
			delete(f.rest, stream)
		}
	}
	return out
}

func appendHead(out []byte, ev *Event, kind string) []byte {
	out = ev.Time.UTC().AppendFormat(out, "2006-01-02T15:04:05.000000Z")
	out = append(out, ' ')
	out = strconv.AppendUint(out, ev.Seq, 10)
	out = append(append(out, ' '), kind...)
	if ev.CallID != "" {
		out = append(append(out, " call="...), ev.CallID...)
	}
	return append(out, ' ')
}

// unfinished is how many bytes at the end begin a character that may go on.
func unfinished(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if c := data[len(data)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// appendEscaped writes printable characters as they are and the rest as \n, \xNN or \uNNNN.
func appendEscaped(out, s []byte) []byte {
	for len(s) > 0 {
		r, size := utf8.DecodeRune(s)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, s[0])
		case r == '\\':
			out = append(out, `\\`...)
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\t':
			out = append(out, `\t`...)
		case r == '\r':
			out = append(out, `\r`...)
		case unicode.IsPrint(r): // no control, format or bidi characters
			out = append(out, s[:size]...)
		case r < utf8.RuneSelf:
			out = fmt.Appendf(out, `\x%02x`, r)
		case r > 0xffff:
			out = fmt.Appendf(out, `\U%08x`, r)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		s = s[size:]
	}
	return out
}
