package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// handlePull serves PullImage as newline-delimited JSON: the generated handler would wrap each
// message into {"result": …}.
func (g *gateway) handlePull() error {
	const pattern = "/v1/images:pull"
	err := g.mux.HandlePath(http.MethodPost, pattern, func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		ctx, err := runtime.AnnotateContext(r.Context(), g.mux, r, agentixv1.ImageService_PullImage_FullMethodName, runtime.WithHTTPPathPattern(pattern))
		if err != nil {
			g.rpcError(r.Context(), g.mux, marshaler{}, w, r, err)
			return
		}
		request := &agentixv1.PullImageRequest{}
		if err := (marshaler{}).NewDecoder(r.Body).Decode(request); err != nil && !errors.Is(err, io.EOF) {
			g.rpcError(ctx, g.mux, marshaler{}, w, r, status.Error(codes.InvalidArgument, err.Error()))
			return
		}
		stream, err := agentixv1.NewImageServiceClient(g.Conn).PullImage(ctx, request)
		if err == nil {
			err = forwardLines(g, w, stream.Recv)
		}
		if err != nil {
			g.rpcError(ctx, g.mux, marshaler{}, w, r, err)
		}
	})
	if err != nil {
		return fmt.Errorf("register the pull of images: %w", err)
	}
	return nil
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
