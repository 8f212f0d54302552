package gateway

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
)

const (
	typeLines  = "application/x-ndjson"
	typeEvents = "text/event-stream"
)

// sseRetry is how many milliseconds a browser waits before it connects again.
const sseRetry = "2000"

// lastEventID is the header by which a browser tells where it was when it connects again.
const lastEventID = "Last-Event-Id"

// eventFormat is how events are written to an HTTP client.
type eventFormat interface {
	contentType() string
	// events is the text of a response; first tells that nothing was written before.
	events(response *agentixv1.StreamEventsResponse, first bool) []byte
	// failure is the last text of a stream that ends in an error; object is {"error": Status}.
	failure(object []byte) []byte
}

// formatFor chooses server-sent events for those who ask for them by name, else lines.
func formatFor(r *http.Request) eventFormat {
	events, lines := 0.0, 0.0
	for _, header := range r.Header.Values("Accept") {
		for media := range strings.SplitSeq(header, ",") {
			name, parameters, err := mime.ParseMediaType(media)
			if err != nil {
				continue
			}
			quality := 1.0
			if q, given := parameters["q"]; given {
				if quality, err = strconv.ParseFloat(q, 64); err != nil {
					continue
				}
			}
			switch name {
			case typeEvents:
				events = quality
			case typeLines:
				lines = quality
			}
		}
	}
	if events > 0 && events >= lines {
		return &sse{id: strings.ToValidUTF8(r.Header.Get(lastEventID), "\uFFFD")}
	}
	return ndjson{}
}

// sse writes server-sent events: an event's kind is the name, its cursor the id, its JSON
// the data. It remembers the id that the client has.
type sse struct{ id string }

func (*sse) contentType() string { return typeEvents }

func (s *sse) events(response *agentixv1.StreamEventsResponse, first bool) []byte {
	var out []byte
	if first { // a field by itself makes no event; the blank line of the first event ends it
		out = append(out, "retry: "+sseRetry+"\n"...)
	}
	for _, event := range response.GetEvents() {
		text, err := appendMessage(nil, event.ProtoReflect())
		if err != nil { // a string that is not UTF-8; gRPC does not let it through
			continue
		}
		s.id = event.GetCursor()
		out = append(out, "event: "+kindName(event)+"\nid: "+s.id+"\ndata: "...)
		out = append(append(out, oneLine(text)...), "\n\n"...)
	}
	if len(response.GetEvents()) > 0 {
		return out
	}
	out = append(out, ": heartbeat\n"...)
	if cursor := response.GetCursor(); cursor != s.id {
		// An id without data moves the client's position and is no event: what a filter has
		// passed over, or `tail` has left out, stays so when the client connects again.
		s.id = cursor
		out = append(out, "id: "+cursor+"\n\n"...)
	}
	return out
}

func (*sse) failure(object []byte) []byte {
	return append(append([]byte("event: error\ndata: "), object...), "\n\n"...)
}

// kindName is the name of the member of Event.kind that is set.
func kindName(event *agentixv1.Event) string {
	message := event.ProtoReflect()
	if field := message.WhichOneof(message.Descriptor().Oneofs().ByName("kind")); field != nil {
		return string(field.Name())
	}
	return "message"
}

// ndjson writes one event a line, and empty lines as heartbeats.
type ndjson struct{}

func (ndjson) contentType() string { return typeLines }

func (ndjson) events(response *agentixv1.StreamEventsResponse, first bool) []byte {
	if len(response.GetEvents()) == 0 && !first { // the first one is told by the header
		return []byte("\n")
	}
	var lines []byte
	for _, event := range response.GetEvents() {
		text, err := appendMessage(nil, event.ProtoReflect())
		if err != nil { // as above
			continue
		}
		lines = append(append(lines, oneLine(text)...), '\n')
	}
	return lines
}

func (ndjson) failure(object []byte) []byte { return append(object, '\n') }
