package e2e

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"google.golang.org/grpc/codes"
)

// TestPauseUnderCalls: a call in flight stands still and goes on, a deadline does not wait, new
// calls are refused, and the clocks are right afterwards.
func TestPauseUnderCalls(t *testing.T) {
	e, sandbox := start(t)
	begun := func(n int) {
		t.Helper()
		await.True(t, func() bool {
			list, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, Kinds: []agentixv1.EventKind{agentixv1.EventKind_EVENT_KIND_CALL}})
			return (err == nil || errors.Is(err, t.Context().Err())) && len(list) >= n
		}, "the calls")
	}
	results := map[string]chan answer{}
	for name, r := range map[string]*agentixv1.RemoteRequest{
		"sleeper":  {Sandbox: sandbox, Callable: "time::sleep", Args: "[2]"},
		"deadline": {Sandbox: sandbox, Callable: "time::sleep", Args: "[60]", Timeout: after(time.Second)},
	} {
		done := make(chan answer, 1)
		results[name] = done
		go func() { done <- grpcUnix(t.Context(), t, e, r) }() // ends with its answer
	}
	begun(2)
	code, text := overREST(t, e, http.MethodPost, "/v1/"+sandbox+":pause", `{}`)
	if s := parseShown(t, code, text); s.State != "SANDBOX_STATE_PAUSED" {
		t.Errorf("%s", text)
	}
	for name, remote := range protocols {
		t.Run(name, func(t *testing.T) {
			a := remote(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "time::time"})
			isStatus(codes.FailedPrecondition, 400, "SANDBOX_NOT_READY")(t, a)
			if state := errorInfo(t, a.st).GetMetadata()["state"]; state != "PAUSED" {
				t.Errorf("state %q", state)
			}
		})
	}
	isError("DeadlineExceeded", "")(t, <-results["deadline"]) // while it is paused
	longer := time.NewTimer(2 * time.Second)
	select {
	case a := <-results["sleeper"]:
		t.Errorf("it went on while it was paused: %+v", a)
	case <-longer.C:
	}
	resumed, err := e.Sandboxes.ResumeSandbox(t.Context(), &agentixv1.ResumeSandboxRequest{Name: sandbox})
	if err != nil || resumed.GetState() != agentixv1.SandboxState_SANDBOX_STATE_READY {
		t.Fatalf("%v, %v", resumed, err)
	}
	isValue("null")(t, <-results["sleeper"])
	a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "time::time"})
	var there float64
	if err := json.Unmarshal([]byte(a.value), &there); err != nil || math.Abs(there-float64(time.Now().UnixMilli())/1000) > 5 {
		t.Errorf("time there is %q, here %d: %v", a.value, time.Now().Unix(), err)
	}
	if logs := e.Logs(); strings.Contains(logs, "runtime connection ended") {
		t.Error("the link did not outlive the pause")
	}
}

// TestPausedOverARestart: also a call in flight is told its outcome.
func TestPausedOverARestart(t *testing.T) {
	e, sandbox := start(t)
	done := make(chan answer, 1)
	request := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "time::sleep", Args: "[3]", CallId: "sleeper"}
	go func() { done <- grpcUnix(t.Context(), t, e, request) }() // ends with its answer
	await.True(t, func() bool {
		list, _ := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, CallId: "sleeper"})
		return len(list) > 0
	}, "the call")
	if _, err := e.Sandboxes.PauseSandbox(t.Context(), &agentixv1.PauseSandboxRequest{Name: sandbox}); err != nil {
		t.Fatal(err)
	}
	e.Stop(t)
	<-done
	e.Boot(t)
	got, err := e.Sandboxes.GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: sandbox})
	if err != nil || got.GetState() != agentixv1.SandboxState_SANDBOX_STATE_PAUSED {
		t.Fatalf("after a restart: %v, %v", got, err)
	}
	if _, err := e.Sandboxes.ResumeSandbox(t.Context(), &agentixv1.ResumeSandboxRequest{Name: sandbox}); err != nil {
		t.Fatal(err)
	}
	isValue("null")(t, grpcUnix(t.Context(), t, e, request))
}
