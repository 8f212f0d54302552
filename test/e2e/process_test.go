//go:build !containerd

package e2e

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/agentixd/agentixd/daemon"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
)

func begin() (end func() int) { return func() int { return 0 } }

func configure(*daemon.Config) {}

func prepare(*testing.T, *daemontest.Env) {}

// kill ends a sandbox by hand.
func kill(t *testing.T, e *daemontest.Env, sandbox string) {
	t.Helper()
	a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::runtime_pid"})
	pid, err := strconv.Atoi(a.value)
	if err != nil {
		t.Fatalf("%v, %v, %v", err, a.err, a.st)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
