package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// create makes another sandbox like that of start.
func create(t *testing.T, e *daemontest.Env, change func(*agentixv1.Sandbox)) (*agentixv1.Sandbox, error) {
	t.Helper()
	want := &agentixv1.Sandbox{Project: e.Project, Image: e.Template.GetImage(), Resources: e.Template.GetResources()}
	change(want)
	return e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: want})
}

// TestOneBusyWorkerHoldsUpNoOther: twelve sleeping functions and an endless loop leave the other
// worker free for a call.
func TestOneBusyWorkerHoldsUpNoOther(t *testing.T) {
	e, _ := start(t)
	made, err := create(t, e, func(s *agentixv1.Sandbox) { s.Workers = 2 })
	if err != nil {
		t.Fatal(err)
	}
	if made.GetWorkers() != 2 {
		t.Errorf("the sandbox has %d workers", made.GetWorkers())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var waiting sync.WaitGroup
	call := func(callable, args string) {
		waiting.Go(func() {
			grpcUnix(ctx, t, e, &agentixv1.RemoteRequest{Sandbox: made.GetName(), Callable: callable, Args: args})
		})
	}
	call("app::spin", "")
	for range 12 {
		call("app::nap", "[5]")
	}
	pids := map[string]int{}
	for i := range 60 {
		began := time.Now()
		a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: made.GetName(), Callable: "app::nap", Args: "[0.05]"})
		if a.value == "" {
			t.Fatalf("got %v, %v", a.err, a.st)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("call %d took %s", i, took)
		}
		if i >= 40 { // by now it is known who computes, and imports are forgotten
			pids[a.value]++
		}
	}
	most := 0
	for _, n := range pids {
		most = max(most, n)
	}
	if most < 15 { // on a crowded host a worker that computes may look idle for a moment
		t.Errorf("of 20 calls so many went to each worker: %v; one of them computes", pids)
	}
	cancel(context.Canceled)
	waiting.Wait()
}

func TestNumberOfWorkersIsChecked(t *testing.T) {
	e, _ := start(t)
	for _, n := range []int32{-1, 65} {
		_, err := create(t, e, func(s *agentixv1.Sandbox) { s.Workers = n })
		if st := status.Convert(err); st.Code() != codes.InvalidArgument || reason(t, st) != "INVALID_FIELD" {
			t.Errorf("%d workers: %v", n, err)
		}
	}
	made, err := create(t, e, func(s *agentixv1.Sandbox) { s.Workers = 3 })
	if err != nil {
		t.Fatal(err)
	}
	pids := map[string]bool{}
	for i := range 3 {
		pids[grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: made.GetName(), Callable: "app::pid", CallId: fmt.Sprint("p", i)}).value] = true
	}
	if len(pids) != 3 {
		t.Errorf("three calls ran in %v", pids)
	}
}
