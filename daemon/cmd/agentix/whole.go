package main

import (
	"unicode/utf8"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
)

// writer is who wrote a piece of output.
type writer struct {
	sandbox string
	stream  agentixv1.OutputStream
	callID  string
}

// whole makes characters whole that were written in parts: it keeps the beginning of one
// until the same writer goes on.
type whole map[writer]*agentixv1.Event

// text is what an event says, with the beginning of a character that waited for it.
func (w whole) text(event *agentixv1.Event) string {
	output := event.GetOutput()
	if output == nil {
		return eventText(event)
	}
	by := writer{event.GetSandbox(), output.GetStream(), event.GetCallId()}
	data := output.GetData()
	if held := w[by]; held != nil {
		data = append(held.GetOutput().GetData(), data...)
		delete(w, by)
	}
	n := len(data) - unfinished(data)
	if n < len(data) {
		w[by] = withData(event, append([]byte(nil), data[n:]...))
	}
	if n == 0 && len(data) > 0 {
		return ""
	}
	return eventText(withData(event, data[:n]))
}

// rest is what never became whole.
func (w whole) rest() string {
	text := ""
	for by, held := range w {
		text += eventText(held)
		delete(w, by)
	}
	return text
}

func withData(event *agentixv1.Event, data []byte) *agentixv1.Event {
	return &agentixv1.Event{
		Seq: event.GetSeq(), Time: event.GetTime(), Sandbox: event.GetSandbox(), CallId: event.GetCallId(),
		Kind: &agentixv1.Event_Output{Output: &agentixv1.Output{Stream: event.GetOutput().GetStream(), Data: data}},
	}
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
