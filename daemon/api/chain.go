package api

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/agentixd/agentixd/daemon/auth"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Chain is what every RPC passes before its handler. Unary and stream RPCs pass the very
// same steps, because both interceptors are made from this one list.
type Chain struct {
	logger *slog.Logger
	auth   *auth.Authenticator
	steps  []step

	stopping context.Context // ends when new work is refused and streams end
	stopped  context.Context // ends when running calls are cut off

	mu      sync.Mutex
	streams map[string]int // event streams by principal
}

// call is one RPC on its way through the chain.
type call struct {
	method    string
	requestID string
	principal auth.Principal
	streaming bool
	// message is called with each message from the caller, before the handler sees it.
	message func(proto.Message) error
}

type step struct {
	name string
	run  func(c *Chain, ctx context.Context, call *call, next func(context.Context) error) error
}

// steps in order, the outermost first.
var steps = []step{
	{"request-id", (*Chain).requestID},
	{"log", (*Chain).log},
	{"recover", (*Chain).recover},
	{"auth", (*Chain).authenticate},
	{"limit", (*Chain).limit},
	{"stop", (*Chain).stop},
	{"validate", (*Chain).validate},
}

// errStopping ends whatever the daemon cannot finish any more.
var errStopping = errs.New(errs.Unavailable, errs.Stopping, "the daemon is stopping").WithRetry(time.Second)

// NewChain returns the chain. When stopping ends, new RPCs are refused and event streams
// end; when stopped ends, everything else does, with the same status.
func NewChain(stopping, stopped context.Context, logger *slog.Logger, authenticator *auth.Authenticator) *Chain {
	return &Chain{logger: logger, auth: authenticator, steps: steps, stopping: stopping, stopped: stopped, streams: map[string]int{}}
}

func (c *Chain) run(ctx context.Context, call *call, handler func(context.Context) error) error {
	next := handler
	for i := len(c.steps) - 1; i >= 0; i-- {
		inner, s := next, c.steps[i]
		next = func(ctx context.Context) error { return s.run(c, ctx, call, inner) }
	}
	err := next(ctx)
	if err == nil {
		return nil
	}
	st := Status(err)
	if st.Code() == codes.Internal { // all that a client may know is where to look in the log
		st = Status(errs.New(errs.Internal, errs.InternalFault, "").WithMeta("request_id", call.requestID))
	}
	return st.Err()
}

// Unary is the interceptor of unary RPCs.
func (c *Chain) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	call := &call{method: info.FullMethod, message: func(proto.Message) error { return nil }}
	var response any
	err := c.run(ctx, call, func(ctx context.Context) error {
		if message, ok := request.(proto.Message); ok {
			if err := call.message(message); err != nil {
				return err
			}
		}
		var err error
		response, err = handler(ctx, request)
		return causeOf(ctx, err)
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// Stream is the interceptor of streaming RPCs.
func (c *Chain) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call := &call{method: "unknown", streaming: true, message: func(proto.Message) error { return nil }}
	if info != nil {
		call.method = info.FullMethod
	}
	return c.run(stream.Context(), call, func(ctx context.Context) error {
		return causeOf(ctx, handler(server, &checkedStream{ServerStream: stream, ctx: ctx, message: call.message}))
	})
}

// checkedStream gives handlers the chain's context and checks what the caller sends.
type checkedStream struct {
	grpc.ServerStream
	ctx     context.Context //nolint:containedctx // A stream is a running operation.
	message func(proto.Message) error
}

// Context is the chain's context.
func (s *checkedStream) Context() context.Context { return s.ctx }

// RecvMsg checks each message.
func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err //nolint:wrapcheck // io.EOF and statuses pass as they are.
	}
	if message, ok := m.(proto.Message); ok {
		return s.message(message)
	}
	return nil
}

// causeOf replaces a bare context error by why the context ended.
func causeOf(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	var cause *errs.Error
	if errors.As(context.Cause(ctx), &cause) {
		return cause
	}
	return err
}

func (c *Chain) log(ctx context.Context, call *call, next func(context.Context) error) error {
	begin := time.Now()
	err := next(ctx)
	level, code := slog.LevelDebug, codes.OK
	if err != nil {
		code = Status(err).Code()
		if code == codes.Internal || code == codes.Unknown {
			level = slog.LevelError
		}
	}
	if c.logger.Enabled(ctx, level) {
		attributes := []slog.Attr{
			slog.String("method", call.method), slog.String("code", code.String()), slog.Duration("took", time.Since(begin)),
			slog.String("request", call.requestID), slog.String("principal", call.principal.Name()),
		}
		if err != nil {
			attributes = append(attributes, slog.String("err", cut(err.Error(), 4096)))
		}
		c.logger.LogAttrs(ctx, level, "rpc ended", attributes...)
	}
	return err
}

func (c *Chain) recover(ctx context.Context, call *call, next func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.logger.LogAttrs(ctx, slog.LevelError, "rpc panicked", slog.String("method", call.method),
				slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = errs.New(errs.Internal, errs.InternalFault, "panic")
		}
	}()
	return next(ctx)
}

func (c *Chain) authenticate(ctx context.Context, call *call, next func(context.Context) error) error {
	if isOpen(call.method) {
		return next(ctx)
	}
	principal, err := c.auth.AuthenticateRPC(ctx)
	if err != nil {
		return err
	}
	call.principal = principal
	return next(auth.WithPrincipal(ctx, principal))
}

// limit bounds the event streams of one principal.
func (c *Chain) limit(ctx context.Context, call *call, next func(context.Context) error) error {
	if !call.streaming {
		return next(ctx)
	}
	name := call.principal.Name()
	c.mu.Lock()
	count := c.streams[name] + 1
	if count <= wire.MaxEventStreams {
		c.streams[name] = count
	}
	c.mu.Unlock()
	if count > wire.MaxEventStreams {
		return errs.OverLimit("event_streams", wire.MaxEventStreams, int64(count))
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.streams[name]--; c.streams[name] == 0 {
			delete(c.streams, name)
		}
	}()
	return next(ctx)
}

// stop refuses new work once the daemon is stopping and ends what runs too long then.
func (c *Chain) stop(ctx context.Context, call *call, next func(context.Context) error) error {
	if c.stopping.Err() != nil {
		return errStopping
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := c.stopped
	if call.streaming {
		end = c.stopping
	}
	defer context.AfterFunc(end, func() { cancel(errStopping) })()
	return next(ctx)
}
