package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
)

// handleWatch serves WatchSandboxes as newline-delimited JSON, one change in a line, as
// handleEvents does with events.
func (g *gateway) handleWatch() error {
	return g.route(http.MethodGet, "/v1/sandboxes:watch", agentixv1.SandboxService_WatchSandboxes_FullMethodName,
		func(ctx context.Context, w http.ResponseWriter, r *http.Request, _ map[string]string) error {
			request := &agentixv1.WatchSandboxesRequest{}
			if err := decodeQuery(r.URL.Query(), request, utilities.NewDoubleArray(nil)); err != nil {
				return err
			}
			stream, err := agentixv1.NewSandboxServiceClient(g.Conn).WatchSandboxes(ctx, request)
			if err != nil {
				return err
			}
			return g.forwardChanges(w, stream.Recv)
		})
}

// forwardChanges writes what recv gives until its end. An error before anything was written
// is returned; a later one is the last line.
func (g *gateway) forwardChanges(w http.ResponseWriter, recv func() (*agentixv1.WatchSandboxesResponse, error)) error {
	control := http.NewResponseController(w)
	for begun := false; ; begun = true {
		response, err := recv()
		if err != nil && !begun {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("X-Accel-Buffering", "no") // proxies are not to gather changes
			w.WriteHeader(http.StatusOK)
		}
		text := changeLines(response, begun)
		if err != nil {
			text = append(g.errorObject(err), '\n')
		}
		_, werr := w.Write(text) //nolint:gosec // Its type is no HTML, and nosniff is set.
		if werr != nil || err != nil || control.Flush() != nil {
			return nil //nolint:nilerr // The reader left, or was told of the error.
		}
	}
}

// changeLines is one line for each change. A heartbeat is an empty line, but the first
// response of a stream needs none: it is the header that tells of it.
func changeLines(response *agentixv1.WatchSandboxesResponse, begun bool) []byte {
	if len(response.GetChanges()) == 0 && begun {
		return []byte("\n")
	}
	var lines []byte
	for _, change := range response.GetChanges() {
		text, err := appendMessage(nil, change.ProtoReflect())
		if err != nil { // a string that is not UTF-8; gRPC does not let it through
			continue
		}
		lines = append(append(lines, oneLine(text)...), '\n')
	}
	return lines
}
