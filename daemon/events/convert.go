package events

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentixd/agentixd/runtime/wire"
)

// convert appends the events of a record; one that makes no sense becomes a counted gap.
func convert(evs []Event, sandbox string, r *wire.Record, now time.Time) []Event {
	ev := Event{Time: recordTime(r.Time, now), Sandbox: sandbox, CallID: callID(r.CallID)}
	switch r.Kind {
	case wire.RecordOutput:
		return appendOutput(evs, ev, r)
	case wire.RecordLog:
		ev.Body = logOf(r.Data)
	case wire.RecordSpan:
		ev.Body = spanOf(r.Event, r.Data)
	case wire.RecordPlugin:
		ev.Body = pluginOf(r)
	case wire.RecordGap:
		ev.Body = &Gap{Dropped: min(r.Dropped, math.MaxInt64), Source: SourceRuntime}
	}
	if ev.Body == nil {
		return appendLost(evs, ev, 1)
	}
	return append(evs, ev)
}

// appendLost adds to the gap at the end, or makes one.
func appendLost(evs []Event, ev Event, n uint64) []Event {
	if len(evs) > 0 {
		if gap, ok := evs[len(evs)-1].Body.(*Gap); ok && gap.Dropped > 0 && gap.Dropped <= math.MaxInt64-n {
			gap.Dropped += n
			return evs
		}
	}
	ev.CallID, ev.Body = "", &Gap{Dropped: n, Source: SourceRuntime}
	return append(evs, ev)
}

func appendOutput(evs []Event, ev Event, r *wire.Record) []Event {
	stream := Stdout
	switch r.Stream {
	case "stdout":
	case "stderr":
		stream = Stderr
	default:
		return appendLost(evs, ev, 1)
	}
	if len(r.Bytes) > wire.MaxEventBytes {
		return appendLost(evs, ev, 1)
	}
	for data := r.Bytes; len(data) > 0; {
		n := min(len(data), wire.MaxOutputBytes)
		ev.Body = &Output{Stream: stream, Data: data[:n:n]}
		evs, data = append(evs, ev), data[n:]
	}
	return evs // output of no bytes is no event
}

func pluginOf(r *wire.Record) Body {
	if len(r.Data) > wire.MaxEventBytes || wire.Check(r.Data, wire.MaxDepth) != nil {
		return nil
	}
	return &Plugin{Namespace: text(r.Namespace, wire.MaxNameBytes), Event: text(r.Event, wire.MaxNameBytes), Data: jsonOf(r.Data), MsgpackData: r.Data}
}

// fields visits the entries of a hostile map; it returns false if data is not a map of ours.
func fields(data []byte, visit func(key string, value []byte)) bool {
	if len(data) > wire.MaxEventBytes || !wire.IsMap(data) || wire.Check(data, wire.MaxDepth) != nil {
		return false
	}
	head, _, n := shape(data)
	rest := data[head:]
	for range n / 2 {
		var key, value []byte
		var ok bool
		if key, rest, ok = splitValue(rest); !ok {
			return false
		}
		if value, rest, ok = splitValue(rest); !ok {
			return false
		}
		name, _ := content(key)
		visit(string(name), value)
	}
	return true
}

func logOf(data []byte) Body {
	b := &Log{}
	if !fields(data, func(key string, value []byte) {
		switch key {
		case "name":
			b.Logger = textOf(value, wire.MaxNameBytes)
		case "level":
			b.Level = textOf(value, wire.MaxNameBytes)
		case "levelno":
			b.LevelNumber = intOf(value)
		case "message":
			b.Message = textOf(value, wire.MaxTextBytes)
		case "pathname":
			b.Pathname = textOf(value, wire.MaxShortTextBytes)
		case "lineno":
			b.Line = intOf(value)
		case "funcName":
			b.Function = textOf(value, wire.MaxNameBytes)
		case "module":
			b.Module = textOf(value, wire.MaxNameBytes)
		case "exc_text":
			b.ExceptionText = textOf(value, wire.MaxTextBytes)
		case "stack_info":
			b.StackInfo = textOf(value, wire.MaxTextBytes/4)
		case "extras":
			b.Extras = objectOf(value)
		}
	}) {
		return nil
	}
	return b
}

var phases = map[string]string{
	"trace_start": TraceStart, "trace_end": TraceEnd, "span_start": SpanStart, "span_end": SpanEnd,
}

func spanOf(event string, data []byte) Body {
	b := &Span{Phase: phases[event]}
	if b.Phase == "" || !fields(data, func(key string, value []byte) {
		switch key {
		case "trace_id":
			b.TraceID = textOf(value, wire.MaxNameBytes)
		case "span_id":
			b.SpanID = textOf(value, wire.MaxNameBytes)
		case "parent_id":
			b.ParentID = textOf(value, wire.MaxNameBytes)
		case "name":
			b.Name = textOf(value, wire.MaxNameBytes)
		case "attrs", "metadata":
			b.Attributes = objectOf(value)
		case "started_at":
			b.StartTime = timeOf(value)
		case "ended_at":
			b.EndTime = timeOf(value)
		case "status":
			b.Status = textOf(value, wire.MaxNameBytes)
		case "status_description":
			b.StatusDescription = textOf(value, wire.MaxShortTextBytes)
		case "error":
			b.Error = objectOf(value)
		case "events":
			b.Events = arrayOf(value)
		}
	}) {
		return nil
	}
	return b
}

// textOf is the text of a string; of anything else but nil its JSON form.
func textOf(value []byte, limit int) string {
	if len(value) == 0 || value[0] == 0xc0 {
		return ""
	}
	if s, ok := content(value); ok && (value[0] < 0xc0 || value[0] >= 0xd9) {
		return text(string(s), limit)
	}
	return text(jsonOf(value), limit)
}

// intOf is 0 for what is not an integer.
func intOf(value []byte) int32 {
	n, _ := integer(value)
	return int32(max(math.MinInt32, min(n, math.MaxInt32)))
}

// objectOf is a JSON object; empty for nil, an empty map and what is not a map.
func objectOf(value []byte) string {
	if !wire.IsMap(value) || value[0] == 0x80 {
		return ""
	}
	if s := jsonOf(value); len(s) <= wire.MaxTextBytes {
		return s
	}
	return tooLarge(value)
}

// arrayOf is a JSON array; empty for nil, an empty array and what is not an array.
func arrayOf(value []byte) string {
	if len(value) < 2 || value[0]&0xf0 != 0x90 && value[0] != 0xdc && value[0] != 0xdd {
		return ""
	}
	if s := jsonOf(value); len(s) <= wire.MaxTextBytes {
		return s
	}
	return "[" + tooLarge(value) + "]"
}

func tooLarge(value []byte) string {
	note, err := json.Marshal(map[string]string{"truncated": fmt.Sprintf("%d bytes are over the limit", len(value))})
	if err != nil {
		return ""
	}
	return string(note)
}

// text makes s valid UTF-8 without NUL and cuts it to limit bytes, saying how much is missing.
func text(s string, limit int) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	if len(s) <= limit {
		return s
	}
	keep := max(0, limit-48) // room for the note
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return fmt.Sprintf("%s… [%d bytes cut]", s[:keep], len(s)-keep)
}

// callID is s if it can be one, else nothing: an event is never given to a guessed call.
func callID(s string) string {
	if len(s) == 0 || len(s) > wire.MaxCallIDBytes {
		return ""
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return ""
		}
	}
	return s
}

// Times are kept as nanoseconds in an int64, which ends in 2262.
var (
	earliest = time.Unix(0, 1).UTC() // 0 stands for no time
	latest   = time.Unix(0, math.MaxInt64).UTC()
)

func clampTime(t time.Time) time.Time {
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	}
	return t
}

// recordTime is seconds since the epoch, clamped; what is no number counts as now.
func recordTime(seconds float64, now time.Time) time.Time {
	switch {
	case math.IsNaN(seconds):
		return now
	case seconds <= 0:
		return earliest
	case seconds >= math.MaxInt64/1e9:
		return latest
	}
	whole, part := math.Modf(seconds)
	return clampTime(time.Unix(int64(whole), int64(math.Round(part*1e6))*1000).UTC())
}

// timeOf reads the time text of a span; zero for what is none.
func timeOf(value []byte) time.Time {
	t, err := time.Parse(time.RFC3339Nano, textOf(value, wire.MaxNameBytes))
	if err != nil {
		return time.Time{}
	}
	return clampTime(t.UTC())
}
