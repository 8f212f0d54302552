package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
)

// TestRuntimeOutOfReach is the row of the outcome table for a sandbox that is READY but has
// no connection just now: the call is not accepted and the caller is told when to try again.
func TestRuntimeOutOfReach(t *testing.T) {
	e, sandbox := start(t)
	removed := 0
	err := filepath.WalkDir(e.Config.StateDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "rpc.sock" {
			return err
		}
		removed++
		return os.Remove(path)
	})
	if err != nil || removed != 1 {
		t.Fatalf("removed %d sockets of runtimes, %v; want 1", removed, err)
	}
	e.Stop(t)
	e.Boot(t) // the connection that was there is gone, and there is no way to a new one
	for name, remote := range protocols {
		t.Run(name, func(t *testing.T) {
			a := remote(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"})
			isStatus(codes.Unavailable, 503, "RUNTIME_UNAVAILABLE")(t, a)
			if retry := detail[*errdetails.RetryInfo](a.st); retry.GetRetryDelay().AsDuration() <= 0 {
				t.Errorf("got RetryInfo %v, want a delay", retry)
			}
		})
	}
}
