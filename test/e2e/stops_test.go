package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/grpc/codes"
)

// callIn calls a function and returns what it returned.
func callIn[T any](t *testing.T, e *daemontest.Env, sandbox, callable, args string) T {
	t.Helper()
	a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: callable, Args: args})
	var v T
	if err := json.Unmarshal([]byte(a.value), &v); err != nil {
		t.Fatalf("%s: %v, %v, %q", callable, a.err, a.st, a.value)
	}
	return v
}

// noted waits for the processes that goes_on noted.
func noted(t *testing.T, e *daemontest.Env, sandbox, name string) []int {
	t.Helper()
	var pids []int
	await.True(t, func() bool {
		pids = callIn[[]int](t, e, sandbox, "app::pids", `["`+name+`"]`)
		return len(pids) == 3
	}, "the function to start")
	return pids
}

func allGone(t *testing.T, e *daemontest.Env, sandbox string, pids []int) bool {
	t.Helper()
	text, err := json.Marshal(pids)
	if err != nil {
		t.Fatal(err)
	}
	return len(callIn[[]int](t, e, sandbox, "app::alive", "["+string(text)+"]")) == 0
}

func stillRunning(t *testing.T, e *daemontest.Env, sandbox, id string) bool {
	t.Helper()
	call, err := e.Remote.GetCall(t.Context(), &agentixv1.GetCallRequest{Name: sandbox + "/calls/" + id})
	if err != nil {
		t.Fatal(err)
	}
	return call.GetStillRunning()
}

// TestP4_DeadlineEndsASyncFunction: alone on its worker it is gone, with its processes, soon after
// its caller was answered.
func TestP4_DeadlineEndsASyncFunction(t *testing.T) {
	e, sandbox := start(t)
	made, err := create(t, e, func(s *agentixv1.Sandbox) { s.Workers = 2 }) // one to look with
	if err != nil {
		t.Fatal(err)
	}
	for _, sandbox := range []string{sandbox, made.GetName()} {
		began := time.Now()
		answered := make(chan answer, 1)
		go func() { // ends with the call
			answered <- grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{
				Sandbox: sandbox, Callable: "app::goes_on", Args: `["d"]`, CallId: "d-" + sandbox[len("sandboxes/"):][:4], Timeout: after(2 * time.Second),
			})
		}()
		a := <-answered
		if a.err.GetType() != "DeadlineExceeded" {
			t.Fatalf("got %q, %v, %v", a.value, a.err, a.st)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the caller was answered after %s", took)
		}
		id := "d-" + sandbox[len("sandboxes/"):][:4]
		await.True(t, func() bool { return !stillRunning(t, e, sandbox, id) }, "the call to stop")
		if pids := noted(t, e, sandbox, "d"); !allGone(t, e, sandbox, pids) {
			t.Errorf("processes of %v are left although the call has stopped", pids)
		}
	}
}

// TestP4_DeadlineCostsNoOtherCall: beside another call the worker ends after that one.
func TestP4_DeadlineCostsNoOtherCall(t *testing.T) {
	e, sandbox := start(t)
	worker := callIn[int](t, e, sandbox, "app::pid", "")
	beside := make(chan answer, 1)
	go func() { // ends with the call
		beside <- grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::nap", Args: "[8]"})
	}()
	a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{
		Sandbox: sandbox, Callable: "app::goes_on", Args: `["d"]`, CallId: "stopped", Timeout: after(time.Second),
	})
	if a.err.GetType() != "DeadlineExceeded" {
		t.Fatalf("got %q, %v, %v", a.value, a.err, a.st)
	}
	if !stillRunning(t, e, sandbox, "stopped") {
		t.Error("a function that goes on is not told as still running")
	}
	await.True(t, func() bool { return callIn[int](t, e, sandbox, "app::pid", "") != worker }, "another worker for new calls")
	if b := <-beside; b.value != strconv.Itoa(worker) {
		t.Errorf("the other call got %q, %v, %v; want %d", b.value, b.err, b.st, worker)
	}
	await.True(t, func() bool { return !stillRunning(t, e, sandbox, "stopped") }, "the call to stop")
	if pids := noted(t, e, sandbox, "d"); !allGone(t, e, sandbox, pids) {
		t.Errorf("processes of %v are left", pids)
	}
}

func TestIsolatedCallLeavesNothing(t *testing.T) {
	e, sandbox := start(t)
	shared := callIn[int](t, e, sandbox, "app::pid", "")
	for name, ask := range protocols {
		dir := strings.ReplaceAll(strings.ToLower(name), " ", "-")
		a := ask(t.Context(), t, e, &agentixv1.RemoteRequest{
			Sandbox: sandbox, Callable: "app::litters", Args: `["` + dir + `"]`, CallId: dir, Isolation: agentixv1.Isolation_ISOLATION_PROCESS,
		})
		if a.value == "" || a.value == strconv.Itoa(shared) {
			t.Fatalf("%s: got %q, %v, %v; the shared worker is %d", name, a.value, a.err, a.st, shared)
		}
		if pids := noted(t, e, sandbox, dir); !allGone(t, e, sandbox, pids) {
			t.Errorf("%s: processes of %v are left although the call has ended", name, pids)
		}
		events, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, CallId: dir})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(events, func(ev *agentixv1.Event) bool { return string(ev.GetOutput().GetData()) == "littered\n" }) {
			t.Errorf("%s: the output of the call is not there", name)
		}
	}
	if now := callIn[int](t, e, sandbox, "app::pid", ""); now != shared {
		t.Errorf("the shared worker was %d and is %d", shared, now)
	}
	isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "isolation")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{
		Sandbox: sandbox, Callable: "app::pid", Isolation: 7,
	}))
}
