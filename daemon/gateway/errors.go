package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fail answers with a google.rpc.Status as JSON: {"code", "message", "details"}.
func (g *gateway) fail(w http.ResponseWriter, err error) { g.failWith(w, err, 0) }

// failWith is fail with an HTTP status of its own; 0 = that of the code.
func (g *gateway) failWith(w http.ResponseWriter, err error, httpStatus int) {
	st := g.Status(err)
	if original, _ := status.FromError(err); st.Code() == codes.Internal && len(original.Details()) == 0 {
		g.Logger.LogAttrs(context.Background(), slog.LevelError, "gateway failed", slog.Any("err", err))
	}
	if httpStatus == 0 {
		httpStatus = httpStatusOf(st.Code())
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	if st.Code() == codes.Unauthenticated {
		header.Set("WWW-Authenticate", "Bearer")
	}
	for _, detail := range st.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			header.Set("Retry-After", strconv.FormatInt(retry.GetRetryDelay().GetSeconds()+1, 10))
		}
	}
	text, err := marshaler{}.Marshal(st.Proto())
	if err != nil {
		text = []byte(`{"code":13,"message":"the error cannot be written"}`)
	}
	w.WriteHeader(httpStatus)
	_, _ = w.Write(text)
}

// httpStatusOf is the gateway library's table, but for a cursor that is gone: 410.
func httpStatusOf(code codes.Code) int {
	if code == codes.OutOfRange {
		return http.StatusGone
	}
	return runtime.HTTPStatusFromCode(code)
}

// rpcError answers for the generated handlers. What the gateway itself found wrong with
// the body is in the body: the handlers keep only its text.
func (g *gateway) rpcError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if md, ok := runtime.ServerMetadataFromContext(ctx); ok {
		for _, id := range md.HeaderMD.Get("x-request-id") {
			w.Header().Set("X-Request-Id", id)
		}
	}
	if b, ok := r.Body.(*body); ok && b.err != nil {
		err = b.err
	} else {
		err = withField(err)
	}
	g.fail(w, err)
}

// withField gives the text of strictQuery and of the generated handlers its field back.
func withField(err error) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.InvalidArgument || len(st.Details()) > 0 {
		return err
	}
	field, description, ok := splitViolation(st.Message())
	if !ok {
		field, description = "request", clip(st.Message())
	}
	return errs.Invalid(field, "%s", description)
}

func (g *gateway) routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpStatus int) {
	switch httpStatus {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		g.failWith(w, noSuchMethod(r), httpStatus)
	default:
		g.fail(w, errs.Invalid("path", "is malformed"))
	}
}
