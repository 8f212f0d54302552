// Package e2e tests the whole: real clients, a real daemon, a real runtime and worker.
package e2e

import (
	"os"
	"testing"

	"github.com/agentixd/agentixd/internal/daemontest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a daemon with one sandbox that has testdata/project.
func start(t *testing.T) (*daemontest.Env, string) {
	t.Helper()
	e := daemontest.Start(t)
	if err := os.CopyFS(e.Project, os.DirFS("testdata/project")); err != nil {
		t.Fatal(err)
	}
	return e, e.Sandbox(t)
}
