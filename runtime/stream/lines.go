package stream

import (
	"bytes"
	"strings"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Lines cuts the bytes of one output stream into lines, as a neighbour's host expects them:
// at newlines, at wire.MaxLineBytes, decoded with replacement, without the line end.
type Lines struct {
	tail []byte
}

// Add takes the next bytes and calls emit for each line that is complete.
func (l *Lines) Add(b []byte, emit func(line string)) {
	for len(b) > 0 {
		room := wire.MaxLineBytes - len(l.tail)
		part := b[:min(room, len(b))]
		if i := bytes.IndexByte(part, '\n'); i >= 0 {
			l.tail = append(l.tail, part[:i]...)
			b = b[i+1:]
			l.Flush(emit, true)
			continue
		}
		l.tail = append(l.tail, part...)
		b = b[len(part):]
		if len(l.tail) == wire.MaxLineBytes {
			l.Flush(emit, true)
		}
	}
}

// Flush emits what is held; an empty tail only when it ended with a newline.
func (l *Lines) Flush(emit func(line string), ended bool) {
	if len(l.tail) == 0 && !ended {
		return
	}
	emit(strings.ToValidUTF8(string(bytes.TrimRight(l.tail, "\r\n")), "\uFFFD"))
	l.tail = l.tail[:0]
}
