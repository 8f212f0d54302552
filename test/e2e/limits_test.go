package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/grpc/codes"
)

func TestR12_SmallLimits(t *testing.T) {
	e, sandbox := start(t)
	call := func(change func(*agentixv1.RemoteRequest)) *agentixv1.RemoteRequest {
		r := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::surroundings"}
		change(r)
		return r
	}
	bags := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[strings.Repeat("k", i+1)] = "v"
		}
		return all
	}
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct {
		good, bad func(*agentixv1.RemoteRequest)
		field     string
	}{
		"callable of 1024 bytes": {
			nil, func(r *agentixv1.RemoteRequest) { r.Callable = "app::" + strings.Repeat("x", 1020) }, "callable",
		},
		"call id of 63": {
			func(r *agentixv1.RemoteRequest) { r.CallId = strings.Repeat("x", 63) },
			func(r *agentixv1.RemoteRequest) { r.CallId = strings.Repeat("x", 64) }, "call_id",
		},
		"call id of another alphabet": {
			func(r *agentixv1.RemoteRequest) { r.CallId = "0-a" },
			func(r *agentixv1.RemoteRequest) { r.CallId = "A" }, "call_id",
		},
		"baggage of 64": {
			func(r *agentixv1.RemoteRequest) { r.Baggage = bags(64) },
			func(r *agentixv1.RemoteRequest) { r.Baggage = bags(65) }, "baggage",
		},
		"baggage of 8 KiB": {
			func(r *agentixv1.RemoteRequest) { r.Baggage = map[string]string{"k": strings.Repeat("v", 8191)} },
			func(r *agentixv1.RemoteRequest) { r.Baggage = map[string]string{"k": strings.Repeat("v", 8192)} }, "baggage",
		},
		"traceparent": {
			nil, func(r *agentixv1.RemoteRequest) { r.Traceparent = "00-1-2-3" }, "traceparent",
		},
		"nesting of 200": {
			func(r *agentixv1.RemoteRequest) { r.Callable, r.Args = "app::depth_of", "["+deep(200)+"]" },
			func(r *agentixv1.RemoteRequest) { r.Callable, r.Args = "app::depth_of", "["+deep(201)+"]" }, "args",
		},
		"unknown encoding": {
			nil, func(r *agentixv1.RemoteRequest) { r.ResultEncoding = 77 }, "result_encoding",
		},
		"kwargs that are an array": {
			nil, func(r *agentixv1.RemoteRequest) { r.Kwargs = "[]" }, "kwargs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := 0
			for _, remote := range protocols {
				if i++; c.good != nil {
					r := call(c.good)
					if a := remote(t.Context(), t, e, r); a.st.Code() != codes.OK || a.err != nil {
						t.Errorf("got %v, %v", a.st, a.err)
					}
				}
				isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", c.field)(t, remote(t.Context(), t, e, call(c.bad)))
			}
		})
	}
}

// Args with args and binary arguments at once, and lone surrogates, which JSON can name but UTF-8 not.
func TestContradictoryArguments(t *testing.T) {
	e, sandbox := start(t)
	isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "args")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{
		Sandbox: sandbox, Callable: "app::add", Args: "[1,2]",
		BinaryArguments: &agentixv1.RemoteRequest_MsgpackArguments{MsgpackArguments: []byte{0x92, 0x90, 0x80}},
	}))
	for name, remote := range protocols {
		a := remote(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::same", Args: `["\ud800"]`})
		if a.st.Code() == codes.Internal || a.st.Code() == codes.Unknown {
			t.Errorf("%s: got %v", name, a.st)
		}
		isValue("3")(t, remote(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"}))
	}
}

// R7: a reader that never reads holds up nobody.
func TestR7_ReaderThatNeverReads(t *testing.T) {
	e, sandbox := start(t)
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(errors.New("over"))
	if _, err := e.Events.StreamEvents(ctx, &agentixv1.StreamEventsRequest{Sandbox: sandbox, Follow: true}); err != nil {
		t.Fatal(err)
	}
	response, err := e.HTTP.Get(e.URL + "/v1/" + sandbox + "/events?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	begin := time.Now()
	for range 5 {
		isValue("2000")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: "[2000]"}))
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("five calls took %s", took)
	}
}
