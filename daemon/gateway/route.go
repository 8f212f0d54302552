package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// route serves an RPC by hand, in place of its generated handler. An error of serve is the
// answer; nothing must have been written then.
func (g *gateway) route(method, pattern, rpc string, serve func(ctx context.Context, w http.ResponseWriter, r *http.Request, path map[string]string) error) error {
	err := g.mux.HandlePath(method, pattern, func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		ctx, err := runtime.AnnotateContext(r.Context(), g.mux, r, rpc, runtime.WithHTTPPathPattern(pattern))
		if err != nil {
			ctx = r.Context()
		} else {
			err = serve(ctx, w, r, path)
		}
		if err != nil {
			g.rpcError(ctx, g.mux, marshaler{}, w, r, err)
		}
	})
	if err != nil {
		return fmt.Errorf("register %s %s: %w", method, pattern, err)
	}
	return nil
}

// decodeBody reads a request from a body, which may be empty.
func decodeBody(body io.Reader, request proto.Message) error {
	if err := (marshaler{}).NewDecoder(body).Decode(request); err != nil && !errors.Is(err, io.EOF) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// decodeQuery reads a request from query parameters, but for those in the path.
func decodeQuery(query url.Values, request proto.Message, inPath *utilities.DoubleArray) error {
	if err := runtime.PopulateQueryParameters(request, query, inPath); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}
