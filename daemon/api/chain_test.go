package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/daemon/auth"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fakeStream is a stream whose caller sends the given messages.
type fakeStream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // As in gRPC.
	sent []proto.Message
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) RecvMsg(m any) error {
	if len(s.sent) == 0 {
		return io.EOF
	}
	proto.Merge(m.(proto.Message), s.sent[0]) //nolint:forcetypeassert // Of this test.
	s.sent = s.sent[1:]
	return nil
}

type harness struct {
	*Chain
	log       strings.Builder
	beginStop context.CancelCauseFunc
	cutOff    context.CancelCauseFunc
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{}
	stopping, beginStop := context.WithCancelCause(t.Context())
	stopped, cutOff := context.WithCancelCause(t.Context())
	t.Cleanup(func() { beginStop(nil); cutOff(nil) })
	h.beginStop, h.cutOff = beginStop, cutOff
	logger := slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.Chain = NewChain(stopping, stopped, logger, auth.New(auth.NewToken("secret-secret-secret"), 0))
	return h
}

func as(conn auth.Conn, headers ...string) context.Context {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(append(headers, "x-request-id", "r-1")...))
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: conn})
}

var root = auth.Conn{Peer: &auth.Peer{UID: 0}}

// both runs a handler as a unary and as a streaming RPC and wants the same error of both.
func (h *harness) both(ctx context.Context, t *testing.T, request proto.Message, handler func(context.Context) error) *status.Status {
	t.Helper()
	const method = "/agentix.v1.SandboxService/GetSandbox"
	_, unary := h.Unary(ctx, request, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
		return nil, handler(ctx)
	})
	stream := h.Stream(nil, &fakeStream{ctx: ctx, sent: []proto.Message{request}}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(request.ProtoReflect().New().Interface()); err != nil {
			return err
		}
		return handler(s.Context())
	})
	if !proto.Equal(status.Convert(unary).Proto(), status.Convert(stream).Proto()) {
		t.Errorf("unary ends with %v, streams with %v", unary, stream)
	}
	st := status.Convert(unary)
	if st.Code() != codes.OK {
		infos := 0
		for _, detail := range st.Details() {
			if _, ok := detail.(*errdetails.ErrorInfo); ok {
				infos++
			}
		}
		if infos != 1 {
			t.Errorf("%v has %d ErrorInfo", st, infos)
		}
	}
	return st
}

func TestUnaryAndStreamsPassTheSameSteps(t *testing.T) {
	good := &agentixv1.GetSandboxRequest{Name: "sandboxes/x"}
	ok := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		ctx     context.Context //nolint:containedctx // A test case.
		request proto.Message
		handler func(context.Context) error
		code    codes.Code
	}{
		"good":                   {as(root), good, ok, codes.OK},
		"no credential":          {as(auth.Conn{}), good, ok, codes.Unauthenticated},
		"token":                  {as(auth.Conn{}, "authorization", "Bearer secret-secret-secret"), good, ok, codes.OK},
		"required field missing": {as(root), &agentixv1.GetSandboxRequest{}, ok, codes.InvalidArgument},
		"panic":                  {as(root), good, func(context.Context) error { panic("boom secret") }, codes.Internal},
		"plain error":            {as(root), good, func(context.Context) error { return errors.New("innards") }, codes.Internal},
		"kind":                   {as(root), good, func(context.Context) error { return errs.Invalid("name", "bad") }, codes.InvalidArgument},
		"principal is known": {as(root), good, func(ctx context.Context) error {
			if p, ok := auth.PrincipalFrom(ctx); !ok || p.Peer == nil {
				return errs.Invalid("x", "no principal")
			}
			return nil
		}, codes.OK},
	} {
		h := newHarness(t)
		st := h.both(c.ctx, t, c.request, c.handler)
		if st.Code() != c.code {
			t.Errorf("%s: got %v", name, st)
		}
		if strings.Contains(st.String(), "innards") || strings.Contains(st.String(), "boom") || strings.Contains(h.log.String(), "secret-secret-secret") {
			t.Errorf("%s: innards are outside: %v", name, st)
		}
		if c.code == codes.Internal && !strings.Contains(st.String(), "r-1") && !strings.Contains(st.Proto().String(), "r-1") {
			t.Errorf("%s: no request id in %v", name, st.Proto())
		}
		if strings.Count(h.log.String(), "rpc ended") != 2 {
			t.Errorf("%s: the log is %s", name, h.log.String())
		}
	}
}

func TestStoppingEndsWhatRuns(t *testing.T) {
	good := &agentixv1.GetSandboxRequest{Name: "sandboxes/x"}
	h := newHarness(t)
	ends := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	h.beginStop(nil)
	st := h.both(as(root), t, good, ends)
	if st.Code() != codes.Unavailable || !strings.Contains(st.Message(), "stopping") {
		t.Errorf("new work: got %v", st)
	}
	for name, stop := range map[string]func(*harness){
		"streams end at the first signal": func(h *harness) { h.beginStop(nil) },
		"everything ends once it is over": func(h *harness) { h.beginStop(nil); h.cutOff(nil) },
	} {
		h := newHarness(t)
		err := h.Stream(nil, &fakeStream{ctx: as(root)}, &grpc.StreamServerInfo{}, func(_ any, s grpc.ServerStream) error {
			stop(h)
			return ends(s.Context())
		})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: got %v", name, err)
		}
	}
	h = newHarness(t)
	_, err := h.Unary(as(root), good, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
		h.beginStop(nil)
		if ctx.Err() != nil {
			t.Error("a running call was cut off at the first signal")
		}
		h.cutOff(nil)
		return nil, ends(ctx)
	})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

// R12: event streams of one principal are limited, whatever connections they come on.
func TestR12_EventStreamsAreLimited(t *testing.T) {
	h := newHarness(t)
	var nest func(n int) error
	nest = func(n int) error {
		return h.Stream(nil, &fakeStream{ctx: as(root)}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error {
			if n == 1 {
				return nil
			}
			return nest(n - 1)
		})
	}
	if err := nest(1024); err != nil {
		t.Errorf("1024 streams: %v", err)
	}
	err := nest(1025)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "event_streams: 1025 is over the limit of 1024") {
		t.Errorf("1025 streams: %v", err)
	}
	if len(h.streams) != 0 {
		t.Errorf("streams that ended are still counted: %v", h.streams)
	}
}
