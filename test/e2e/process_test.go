//go:build !containerd

package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentixd/agentixd/daemon"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// TestSnapshotIsRefused: a plain process has no root file system of its own.
func TestSnapshotIsRefused(t *testing.T) {
	e, sandbox := start(t)
	_, err := e.Sandboxes.SnapshotSandbox(t.Context(), &agentixv1.SnapshotSandboxRequest{Name: sandbox, Image: "x"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "process provider") {
		t.Errorf("snapshot: %v, want FailedPrecondition with the reason", err)
	}
	_, err = e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{Bundle: "bundles/" + strings.Repeat("0", 64)}})
	if status.Code(err) != codes.NotFound {
		t.Errorf("create with a bundle that is not there: %v, want NotFound", err)
	}
	if _, err = e.Images.GetImage(t.Context(), &agentixv1.GetImageRequest{Name: "x"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("get an image: %v, want FailedPrecondition", err)
	}
}
