package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
)

// eventsFilter names the fields of StreamEventsRequest that are not query parameters.
var eventsFilter = utilities.NewDoubleArray([][]string{{"sandbox"}})

// handleEvents serves StreamEvents as newline-delimited JSON or as server-sent events. The
// generated handler would wrap each response into {"result": …}, with all its events in one line.
func (g *gateway) handleEvents() error {
	return g.route(http.MethodGet, "/v1/{sandbox=sandboxes/*}/events", agentixv1.EventService_StreamEvents_FullMethodName,
		func(ctx context.Context, w http.ResponseWriter, r *http.Request, path map[string]string) error {
			request := &agentixv1.StreamEventsRequest{}
			if err := decodeQuery(r.URL.Query(), request, eventsFilter); err != nil {
				return err
			}
			request.Sandbox = path["sandbox"]
			f := newForwarding(g, w, r)
			if f.resumed != "" { // the same address as before, whatever it says of the beginning
				request.Start = &agentixv1.StreamEventsRequest_After{After: f.resumed}
			}
			stream, err := agentixv1.NewEventServiceClient(g.Conn).StreamEvents(ctx, request)
			if err != nil {
				return err
			}
			return f.run(stream.Recv)
		})
}

// forwarding is one stream of events on its way to an HTTP client.
type forwarding struct {
	gateway *gateway
	w       http.ResponseWriter
	control *http.ResponseController
	format  eventFormat
	resumed string // the id of the last event that a browser saw; it connects again
	begun   bool
}

func newForwarding(g *gateway, w http.ResponseWriter, r *http.Request) *forwarding {
	f := &forwarding{gateway: g, w: w, control: http.NewResponseController(w), format: formatFor(r)}
	if s, ok := f.format.(*sse); ok {
		f.resumed = s.id
	}
	return f
}

// run writes what recv gives until its end. An error before anything was written is
// returned; a later one is the last thing written.
func (f *forwarding) run(recv func() (*agentixv1.StreamEventsResponse, error)) error {
	for {
		response, err := recv()
		switch {
		case errors.Is(err, io.EOF):
			f.end()
			return nil
		case err != nil && !f.begun:
			return err
		case err != nil:
			_ = f.write(f.format.failure(f.gateway.errorObject(err))) // or the client left
			return nil
		}
		first := !f.begun
		f.begin(http.StatusOK)
		if f.write(f.format.events(response, first)) != nil {
			return nil //nolint:nilerr // The client left.
		}
	}
}

func (f *forwarding) begin(code int) {
	if f.begun {
		return
	}
	f.begun = true
	f.w.Header().Set("Content-Type", f.format.contentType())
	f.w.Header().Set("X-Accel-Buffering", "no") // proxies are not to gather events
	f.w.WriteHeader(code)
}

// end is the end without an error. A browser connects again after every end but 204, so
// one that has everything already is told that there will be no more.
func (f *forwarding) end() {
	if f.resumed != "" {
		f.begin(http.StatusNoContent)
	}
	f.begin(http.StatusOK)
}

func (f *forwarding) write(text []byte) error {
	if _, err := f.w.Write(text); err != nil { //nolint:gosec // Its types are no HTML, and nosniff is set.
		return fmt.Errorf("write events: %w", err)
	}
	if err := f.control.Flush(); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// errorObject is {"error": Status} in one line.
func (g *gateway) errorObject(err error) []byte {
	text, merr := appendMessage(nil, g.Status(err).Proto().ProtoReflect())
	if merr != nil {
		text = []byte(`{"code":13}`)
	}
	return append(append([]byte(`{"error":`), oneLine(text)...), '}')
}

// lineBreaks are what readers of lines may take for an end of line. In JSON the first two
// stand between tokens only and the rest within strings only, so that each replacement is safe.
var lineBreaks = []struct{ from, to []byte }{
	{[]byte("\n"), []byte(" ")},
	{[]byte("\r"), []byte(" ")},
	{[]byte("\u0085"), []byte(`\u0085`)},
	{[]byte("\u2028"), []byte(`\u2028`)},
	{[]byte("\u2029"), []byte(`\u2029`)},
}

func oneLine(text []byte) []byte {
	for _, b := range lineBreaks {
		if bytes.Contains(text, b.from) {
			text = bytes.ReplaceAll(text, b.from, b.to)
		}
	}
	return text
}
