//go:build !containerd

package e2e

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
)

// TestP4_SilentRuntime: a runtime that stands still holds up neither who cancels a call nor who
// waits for one whose time is over. It is told of both when it goes on.
func TestP4_SilentRuntime(t *testing.T) {
	e, sandbox := start(t)
	must := ok(t)
	pid, err := strconv.Atoi(grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::runtime_pid"}).value)
	if err != nil {
		t.Fatal(err)
	}
	c := resources(t, e)["gRPC"]
	cancelled, timed := newName(), newName()
	name := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::hang", Args: fmt.Sprintf("[%q]", cancelled)})).GetName()
	await.True(t, func() bool { return marked(t, e, sandbox, cancelled, "started") }, "the function to run")
	late := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::hang", Args: fmt.Sprintf("[%q]", timed), Timeout: after(time.Second)})).GetName()
	await.True(t, func() bool { return marked(t, e, sandbox, timed, "started") }, "the function to run")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	defer goOn()
	began := time.Now()
	if call := must(c.cancel(name)); call.GetState() != agentixv1.CallState_CALL_STATE_CANCELLED || !call.GetStillRunning() {
		t.Errorf("cancelled: %v", call)
	}
	t.Logf("CancelCall took %s", time.Since(began))
	call := must(c.wait(late, nil))
	if call.GetErrorType() != "DeadlineExceeded" || !call.GetStillRunning() {
		t.Errorf("timed: %v", call)
	}
	t.Logf("a timeout of 1 s ended the call after %s", call.GetFinishTime().AsTime().Sub(call.GetAcceptTime().AsTime()))
	goOn()
	for _, name := range []string{name, late} {
		await.True(t, func() bool { return !must(c.get(name)).GetStillRunning() }, "the function to end")
	}
	for _, file := range []string{cancelled, timed} {
		if !marked(t, e, sandbox, file, "cancelled") {
			t.Error("a function did not see its cancellation")
		}
	}
}
