package api

import (
	"context"
	"regexp"
	"time"

	"github.com/agentixd/agentixd/daemon/dispatch"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
	"google.golang.org/grpc/metadata"
)

// remoteService serves RemoteService from the dispatcher.
type remoteService struct {
	agentixv1.UnimplementedRemoteServiceServer
	dispatcher *dispatch.Dispatcher
	manager    *sandboxes.Manager
}

// reconnectGrace is how long a call waits for a connection that is just being made again,
// after a restart of the daemon for example, before it is refused.
const reconnectGrace = 2 * time.Second

// encodings are the wire's names of the API's encodings.
var encodings = map[agentixv1.Encoding]string{
	agentixv1.Encoding_ENCODING_UNSPECIFIED: "",
	agentixv1.Encoding_ENCODING_JSON:        wire.EncodingJSON,
	agentixv1.Encoding_ENCODING_MSGPACK:     wire.EncodingMsgpack,
	agentixv1.Encoding_ENCODING_PICKLE:      wire.EncodingPickle,
}

// Remote calls a function and waits for its outcome.
func (s *remoteService) Remote(ctx context.Context, r *agentixv1.RemoteRequest) (*agentixv1.RemoteResponse, error) {
	request, err := s.request(ctx, r)
	if err != nil {
		return nil, err
	}
	outcome, err := once(ctx, s, request, s.dispatcher.Remote)
	if err != nil {
		return nil, named(err, "sandbox", r.GetSandbox())
	}
	return toRemoteResponse(outcome)
}

// request is the dispatcher's form of r; it waits until the dispatcher can take it.
func (s *remoteService) request(ctx context.Context, r *agentixv1.RemoteRequest) (dispatch.Request, error) {
	request, err := fromRemoteRequest(r)
	if err != nil {
		return request, err
	}
	if request.Traceparent == "" {
		request.Traceparent = headerTraceparent(ctx)
	}
	return request, s.started(ctx)
}

// once makes a call, and waits a little for a connection if it was refused for want of one.
func once[O any](ctx context.Context, s *remoteService, r dispatch.Request, call func(context.Context, dispatch.Request) (O, error)) (O, error) {
	out, err := call(ctx, r)
	if isReason(err, errs.RuntimeUnavailable) && s.reconnected(ctx, r) {
		// It was not accepted, so asking once more cannot run it twice.
		out, err = call(ctx, r)
	}
	return out, err
}

// started waits until the daemon has taken over the sandboxes of the one before: until
// then it knows of none.
func (s *remoteService) started(ctx context.Context) error {
	select {
	case <-s.manager.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // As the caller's own end.
	}
}

// reconnected waits a little for the connection to a sandbox's runtime, but no longer than
// the caller would wait for the whole call.
func (s *remoteService) reconnected(ctx context.Context, r dispatch.Request) bool {
	link, err := s.manager.Link(r.Sandbox)
	if err != nil {
		return false
	}
	grace := reconnectGrace
	if r.Timeout > 0 {
		grace = min(grace, r.Timeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, grace, context.DeadlineExceeded)
	defer cancel()
	_, err = link.WaitSession(ctx, 0)
	return err == nil
}

// traceparent is the form of W3C trace context, version 0.
var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// headerTraceparent is the trace context in the metadata, where tracing libraries put it. A
// malformed one is ignored, as W3C asks for.
func headerTraceparent(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("traceparent")
	if len(values) != 1 || !traceparent.MatchString(values[0]) {
		return ""
	}
	return values[0]
}

func fromRemoteRequest(r *agentixv1.RemoteRequest) (dispatch.Request, error) {
	request := dispatch.Request{
		CallID: r.GetCallId(), Callable: r.GetCallable(),
		Args: r.GetArgs(), Kwargs: r.GetKwargs(), Encoding: wire.EncodingJSON,
		Traceparent: r.GetTraceparent(), Baggage: r.GetBaggage(),
	}
	var err error
	if request.Sandbox, err = parseSandbox("sandbox", r.GetSandbox()); err != nil {
		return request, err
	}
	switch arguments := r.GetBinaryArguments().(type) {
	case *agentixv1.RemoteRequest_MsgpackArguments:
		request.Encoding, request.Arguments = wire.EncodingMsgpack, arguments.MsgpackArguments
	case *agentixv1.RemoteRequest_PickleArguments:
		request.Encoding, request.Arguments = wire.EncodingPickle, arguments.PickleArguments
	}
	if request.Encoding != wire.EncodingJSON && (request.Args != "" || request.Kwargs != "") {
		return request, errs.Invalid("args", "args and kwargs cannot be given together with binary arguments")
	}
	encoding, known := encodings[r.GetResultEncoding()]
	if !known {
		return request, errs.Invalid("result_encoding", "%d is no encoding", r.GetResultEncoding())
	}
	request.ResultEncoding = encoding
	switch r.GetIsolation() {
	case agentixv1.Isolation_ISOLATION_UNSPECIFIED, agentixv1.Isolation_ISOLATION_WORKER:
	case agentixv1.Isolation_ISOLATION_PROCESS:
		request.Alone = true
	default:
		return request, errs.Invalid("isolation", "%d is no isolation", r.GetIsolation())
	}
	if t := r.GetTimeout(); t != nil {
		if err := t.CheckValid(); err != nil || t.AsDuration() <= 0 {
			return request, errs.Invalid("timeout", "must be a positive duration")
		}
		// The runtime counts milliseconds; less than one is one.
		request.Timeout = max(t.AsDuration(), time.Millisecond)
	}
	return request, nil
}

func toRemoteResponse(o dispatch.Outcome) (*agentixv1.RemoteResponse, error) {
	response := &agentixv1.RemoteResponse{CallId: o.CallID}
	switch {
	case o.Error != nil:
		response.Outcome = &agentixv1.RemoteResponse_Error{Error: toRemoteError(o.Error)}
	case o.Encoding == wire.EncodingJSON:
		response.Outcome = &agentixv1.RemoteResponse_Value{Value: string(o.Value)}
	case o.Encoding == wire.EncodingMsgpack:
		response.Outcome = &agentixv1.RemoteResponse_MsgpackValue{MsgpackValue: o.Value}
	case o.Encoding == wire.EncodingPickle:
		response.Outcome = &agentixv1.RemoteResponse_PickleValue{PickleValue: o.Value}
	default:
		return nil, errs.New(errs.Internal, errs.InternalFault, "outcome with unknown encoding %q", o.Encoding)
	}
	return response, nil
}

func toRemoteError(e *wire.Error) *agentixv1.RemoteError {
	out := &agentixv1.RemoteError{
		Type: text(e.Type), Message: text(e.Message), Cancelled: e.Cancelled, Cause: text(e.Cause), Limit: e.Limit,
	}
	if e.Traceback != nil {
		out.Traceback = text(*e.Traceback)
	}
	if e.Returncode != nil {
		code := int32(*e.Returncode)
		out.Returncode = &code
	}
	return out
}
