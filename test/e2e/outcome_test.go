package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

func after(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// outcome is one row of the outcome table in remote_service.proto.
type outcome struct {
	row     string
	request *agentixv1.RemoteRequest
	check   func(t *testing.T, a answer)
}

// isValue, isError and isStatus are the three forms of an answer.
func isValue(want string) func(*testing.T, answer) {
	return func(t *testing.T, a answer) {
		t.Helper()
		if a.value != want || a.err != nil || a.st.Code() != codes.OK {
			t.Errorf("got %q, %v, %v; want the value %s", a.value, a.err, a.st, want)
		}
	}
}

func isError(kind, message string, more ...func(*agentixv1.RemoteError) bool) func(*testing.T, answer) {
	return func(t *testing.T, a answer) {
		t.Helper()
		if a.st.Code() != codes.OK || a.err.GetType() != kind || !strings.Contains(a.err.GetMessage(), message) {
			t.Errorf("got %q, %v, %v; want the error %s: %s", a.value, a.err, a.st, kind, message)
			return
		}
		for i, check := range more {
			if !check(a.err) {
				t.Errorf("check %d fails for %v", i, a.err)
			}
		}
	}
}

func isStatus(code codes.Code, http int, want string, fields ...string) func(*testing.T, answer) {
	return func(t *testing.T, a answer) {
		t.Helper()
		if a.st.Code() != code || a.http != 0 && a.http != http {
			t.Errorf("got HTTP %d, %v, %q, %v; want %s", a.http, a.st, a.value, a.err, code)
			return
		}
		if got := reason(t, a.st); got != want {
			t.Errorf("%v: got reason %s, want %s", a.st, got, want)
		}
		violations := detail[*errdetails.BadRequest](a.st).GetFieldViolations()
		for i, field := range fields {
			if i >= len(violations) || violations[i].GetField() != field {
				t.Errorf("%v: got violations %v, want %v", a.st, violations, fields)
				break
			}
		}
	}
}

func TestEveryRowOfTheOutcomeTable(t *testing.T) {
	e, sandbox := start(t)
	call := func(callable, args string) *agentixv1.RemoteRequest {
		return &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: callable, Args: args}
	}
	timed := call("app::hang", `["timed"]`)
	timed.Timeout = after(300 * time.Millisecond)
	conflict := call("app::add", "[1,2]")
	conflict.CallId = "taken"
	if _, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,3]", CallId: "taken"}); err != nil {
		t.Fatal(err)
	}
	joined := call("app::add", "[1,3]")
	joined.CallId = "taken"
	elsewhere := call("app::run", "")
	elsewhere.Sandbox = "sandboxes/nowhere"
	misnamed := call("app::run", "")
	misnamed.Sandbox = "sandboxes/Not-An-Id"
	zero := call("app::run", "")
	zero.Timeout = after(0)
	rows := []outcome{
		{"the function returned", &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::run", Kwargs: `{"input":"hello"}`}, isValue(`{"output":"HELLO"}`)},
		{"the same call again joins", joined, isValue("4")},
		{"the function raised", call("app::fail", `["boom"]`), isError("Unhappy", "boom", func(e *agentixv1.RemoteError) bool {
			return strings.Contains(e.GetTraceback(), "app.py") && strings.Contains(e.GetTraceback(), "Unhappy: boom") && !e.GetCancelled() && e.Returncode == nil
		})},
		{"the timeout field ran out", timed, isError("DeadlineExceeded", "")},
		{"the worker ended", call("app::exit_with", "[7]"), isError("WorkerDied", "", func(e *agentixv1.RemoteError) bool {
			return e.Returncode != nil && e.GetReturncode() == 7 && e.GetCause() == "EXIT"
		})},
		{"the worker was killed", call("app::kill_worker", ""), isError("WorkerDied", "", func(e *agentixv1.RemoteError) bool {
			return e.Returncode != nil && e.GetReturncode() == -9 && e.GetCause() == "SIGNAL"
		})},
		{"the next call after a death", call("app::add", "[20,22]"), isValue("42")},
		{"the result cannot be encoded", call("app::unencodable", ""), isError("ResultEncodeError", "object")},
		{"no such function", call("app::nope", ""), isError("AttributeError", "nope")},
		{"no such module", call("nope::nope", ""), isError("ModuleNotFoundError", "nope")},
		{"no such sandbox", elsewhere, isStatus(codes.NotFound, 404, "SANDBOX_NOT_FOUND")},
		{"a malformed sandbox name", misnamed, isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "sandbox")},
		{"no callable", call("", ""), isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "callable")},
		{"a malformed callable", call("app.run", ""), isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "callable")},
		{"a timeout of nothing", zero, isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "timeout")},
		{"args that are no array", call("app::run", `{"input":1}`), isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "args")},
		{"arguments that the function does not take", call("app::run", "[1,2,3]"), isStatus(codes.InvalidArgument, 400, "ARGUMENTS_INVALID")},
		{"arguments of a wrong type", call("app::add", `["x",1]`), isStatus(codes.InvalidArgument, 400, "ARGUMENTS_INVALID", "a")},
		{"the call id belongs to another request", conflict, isStatus(codes.AlreadyExists, 409, "CALL_ID_CONFLICT")},
	}
	for name, remote := range protocols {
		t.Run(name, func(t *testing.T) {
			for _, row := range rows {
				t.Run(row.row, func(t *testing.T) { row.check(t, remote(t.Context(), t, e, row.request)) })
			}
		})
	}
}

func TestSandboxLostUnderACall(t *testing.T) {
	e, _ := start(t)
	for name, remote := range protocols {
		sandbox := e.Sandbox(t)
		_, done := hanging(t.Context(), t, e, remote, &agentixv1.RemoteRequest{Sandbox: sandbox})
		begin := time.Now()
		kill(t, e, sandbox)
		isError("SandboxLost", "", func(e *agentixv1.RemoteError) bool { return e.GetCause() == "KILLED" })(t, <-done)
		took := time.Since(begin)
		t.Logf("%s: the call ended %s after the kill", name, took)
		if took > 5*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
		// Now it is not READY any more.
		again := remote(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::run"})
		isStatus(codes.FailedPrecondition, 400, "SANDBOX_NOT_READY")(t, again)
		if got := errorInfo(t, again.st).GetMetadata()["state"]; got != "FAILED" {
			t.Errorf("%s: got state %q", name, got)
		}
	}
}

// marked asks whether a function in the sandbox has left a file.
func marked(t *testing.T, e *daemontest.Env, sandbox, name, file string) bool {
	t.Helper()
	a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::marked", Args: fmt.Sprintf("[%q,%q]", name, file)})
	if a.value != "true" && a.value != "false" {
		t.Fatalf("got %q, %v, %v", a.value, a.err, a.st)
	}
	return a.value == "true"
}

// mark leaves a file for a function in the sandbox.
func mark(t *testing.T, e *daemontest.Env, sandbox, name, file string) {
	t.Helper()
	isValue("null")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::mark", Args: fmt.Sprintf("[%q,%q]", name, file)}))
}

var names atomic.Int64

// newName names a place that functions in a sandbox share.
func newName() string { return fmt.Sprintf("agx-%d-%d", os.Getpid(), names.Add(1)) }

// hanging starts a call of app::hang and waits until it runs.
func hanging(ctx context.Context, t *testing.T, e *daemontest.Env, call remote, r *agentixv1.RemoteRequest) (name string, done <-chan answer) {
	t.Helper()
	name = newName()
	r.Callable, r.Args = "app::hang", fmt.Sprintf("[%q]", name)
	return name, running(ctx, t, e, call, r, name)
}

// running starts a call and waits until its function has left the file `started`.
func running(ctx context.Context, t *testing.T, e *daemontest.Env, call remote, r *agentixv1.RemoteRequest, name string) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() { answers <- call(ctx, t, e, r) }()
	await.True(t, func() bool {
		if len(answers) > 0 {
			a := <-answers
			t.Fatalf("the call ended before its function ran: %q, %v, %v", a.value, a.err, a.st)
		}
		return marked(t, e, r.GetSandbox(), name, "started")
	}, "the function to run")
	return answers
}

// P4: what ends a call for its caller ends it for its code.
func TestP4_CancelsReachTheFunction(t *testing.T) {
	e, sandbox := start(t)
	for name, call := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Run("the caller leaves", func(t *testing.T) {
				ctx, leave := context.WithCancelCause(t.Context())
				name, done := hanging(ctx, t, e, call, &agentixv1.RemoteRequest{Sandbox: sandbox})
				leave(nil)
				if a := <-done; a.st.Code() != codes.Canceled {
					t.Errorf("got %v", a.st)
				}
				await.True(t, func() bool { return marked(t, e, sandbox, name, "cancelled") }, "the function to see its cancellation")
			})
			t.Run("the caller's deadline passes", func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, context.DeadlineExceeded)
				defer cancel()
				name, done := hanging(ctx, t, e, call, &agentixv1.RemoteRequest{Sandbox: sandbox})
				if a := <-done; a.st.Code() != codes.DeadlineExceeded {
					t.Errorf("got %v", a.st)
				}
				await.True(t, func() bool { return marked(t, e, sandbox, name, "cancelled") }, "the function to see its cancellation")
			})
			t.Run("the timeout field runs out", func(t *testing.T) {
				name, done := hanging(t.Context(), t, e, call, &agentixv1.RemoteRequest{Sandbox: sandbox, Timeout: after(500 * time.Millisecond)})
				isError("DeadlineExceeded", "")(t, <-done)
				await.True(t, func() bool { return marked(t, e, sandbox, name, "cancelled") }, "the function to see its cancellation")
			})
		})
	}
}

// A call with an id goes on when its caller leaves, and who comes again gets its outcome.
func TestNamedCallOutlivesItsCaller(t *testing.T) {
	e, sandbox := start(t)
	n := 0
	for name, call := range protocols {
		n++
		file := newName()
		request := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::wait_for", Args: fmt.Sprintf("[%q]", file), CallId: fmt.Sprintf("named-%d", n)}
		ctx, leave := context.WithCancelCause(t.Context())
		done := running(ctx, t, e, call, request, file)
		leave(nil)
		if a := <-done; a.st.Code() != codes.Canceled {
			t.Errorf("%s: got %v", name, a.st)
		}
		mark(t, e, sandbox, file, "go")
		isValue(`"went on"`)(t, call(t.Context(), t, e, request))
	}
}

// A running call outlives the daemon: the next one tells its outcome.
func TestCallOutlivesTheDaemon(t *testing.T) {
	e, sandbox := start(t)
	name := newName()
	request := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::wait_for", Args: fmt.Sprintf("[%q]", name), CallId: "across"}
	e.Config.ShutdownGrace = 0
	e.Stop(t)
	e.Boot(t)
	done := running(t.Context(), t, e, grpcUnix, request, name)
	e.Stop(t)
	isStatus(codes.Unavailable, 503, "STOPPING")(t, <-done)
	e.Boot(t)
	mark(t, e, sandbox, name, "go")
	isValue(`"went on"`)(t, restTCP(t.Context(), t, e, request))
}
