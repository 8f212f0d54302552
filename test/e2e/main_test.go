// Package e2e tests the whole: real clients, a real daemon, a real runtime and worker. By
// default sandboxes are processes; with the tag containerd they are real containers.
package e2e

import (
	"os"
	"testing"

	"github.com/agentixd/agentixd/internal/daemontest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	end := begin()
	code := m.Run()
	if code == 0 {
		code = end()
	} else {
		end()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// start runs a daemon with one sandbox that has testdata/project.
func start(t *testing.T) (*daemontest.Env, string) {
	t.Helper()
	e := daemontest.Start(t, configure)
	prepare(t, e)
	if err := os.CopyFS(e.Project, os.DirFS("testdata/project")); err != nil {
		t.Fatal(err)
	}
	return e, e.Sandbox(t)
}
