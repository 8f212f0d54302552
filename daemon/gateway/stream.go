package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// eventsFilter names the fields of StreamEventsRequest that are not query parameters.
var eventsFilter = utilities.NewDoubleArray([][]string{{"sandbox"}})

// handleEvents serves StreamEvents as newline-delimited JSON. The generated handler would
// wrap each response into {"result": …}, with all its events in one line.
func (g *gateway) handleEvents() error {
	const pattern = "/v1/{sandbox=sandboxes/*}/events"
	err := g.mux.HandlePath(http.MethodGet, pattern, func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		ctx, err := runtime.AnnotateContext(r.Context(), g.mux, r, agentixv1.EventService_StreamEvents_FullMethodName, runtime.WithHTTPPathPattern(pattern))
		if err != nil {
			g.rpcError(r.Context(), g.mux, marshaler{}, w, r, err)
			return
		}
		request := &agentixv1.StreamEventsRequest{}
		if err := runtime.PopulateQueryParameters(request, r.URL.Query(), eventsFilter); err != nil {
			g.rpcError(ctx, g.mux, marshaler{}, w, r, status.Error(codes.InvalidArgument, err.Error()))
			return
		}
		request.Sandbox = path["sandbox"]
		stream, err := agentixv1.NewEventServiceClient(g.Conn).StreamEvents(ctx, request)
		if err == nil {
			err = g.forwardEvents(w, stream.Recv)
		}
		if err != nil {
			g.rpcError(ctx, g.mux, marshaler{}, w, r, err)
		}
	})
	if err != nil {
		return fmt.Errorf("register the event stream: %w", err)
	}
	return nil
}

// forwardEvents writes what recv gives until its end. An error before anything was written
// is returned; a later one is the last line.
func (g *gateway) forwardEvents(w http.ResponseWriter, recv func() (*agentixv1.StreamEventsResponse, error)) error {
	control := http.NewResponseController(w)
	begun := false
	for {
		response, err := recv()
		if err != nil && !begun && !errors.Is(err, io.EOF) {
			return err
		}
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		var lines []byte
		if err != nil {
			lines = g.errorLine(err)
		} else {
			lines = eventLines(response, begun)
		}
		begun = true
		if _, werr := w.Write(lines); werr != nil || err != nil || control.Flush() != nil {
			return nil //nolint:nilerr // The reader left, or was told of the error.
		}
	}
}

// eventLines is one line for each event. A heartbeat is an empty line, but the first
// response of a stream needs none: it is the header that tells of it.
func eventLines(response *agentixv1.StreamEventsResponse, begun bool) []byte {
	if len(response.GetEvents()) == 0 && begun {
		return []byte("\n")
	}
	var lines []byte
	for _, event := range response.GetEvents() {
		text, err := appendMessage(nil, event.ProtoReflect())
		if err != nil { // a string that is not UTF-8; gRPC does not let it through
			continue
		}
		lines = append(append(lines, oneLine(text)...), '\n')
	}
	return lines
}

func (g *gateway) errorLine(err error) []byte {
	text, merr := appendMessage([]byte(nil), g.Status(err).Proto().ProtoReflect())
	if merr != nil {
		text = []byte(`{"code":13}`)
	}
	return append(append([]byte(`{"error":`), oneLine(text)...), "}\n"...)
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
