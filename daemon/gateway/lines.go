package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// handlePull serves PullImage as newline-delimited JSON: the generated handler would wrap each
// message into {"result": …}.
func (g *gateway) handlePull() error {
	return g.route(http.MethodPost, "/v1/images:pull", agentixv1.ImageService_PullImage_FullMethodName,
		func(ctx context.Context, w http.ResponseWriter, r *http.Request, _ map[string]string) error {
			request := &agentixv1.PullImageRequest{}
			if err := decodeBody(r.Body, request); err != nil {
				return err
			}
			stream, err := agentixv1.NewImageServiceClient(g.Conn).PullImage(ctx, request)
			if err != nil {
				return err
			}
			return forwardLines(g, w, stream.Recv)
		})
}

// forwardLines writes each message that recv gives as a line. An error before anything was
// written is returned; a later one is the last line.
func forwardLines[M interface {
	ProtoReflect() protoreflect.Message
}](g *gateway, w http.ResponseWriter, recv func() (M, error)) error {
	control := http.NewResponseController(w)
	for begun := false; ; begun = true {
		message, err := recv()
		if err != nil && !begun && !errors.Is(err, io.EOF) {
			return err
		}
		if !begun {
			w.Header().Set("Content-Type", typeLines)
			w.WriteHeader(http.StatusOK)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		var line []byte
		if err != nil {
			line = g.errorObject(err)
		} else if line, err = appendMessage(nil, message.ProtoReflect()); err != nil {
			line = g.errorObject(err)
		}
		if _, werr := w.Write(append(oneLine(line), '\n')); werr != nil || err != nil || control.Flush() != nil { //nolint:gosec // JSON, and nosniff is set.
			return nil //nolint:nilerr // The client left, or was told of the error.
		}
	}
}
