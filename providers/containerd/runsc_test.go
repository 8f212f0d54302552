//go:build containerd

package containerd_test

import (
	"os/exec"
	"testing"

	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/providertest"
)

// TestRunsc: a sandbox under gVisor starts, answers over its socket and goes, without a rest.
func TestRunsc(t *testing.T) {
	if _, err := exec.LookPath("runsc"); err != nil {
		t.Skip("runsc is not installed: apt-get install runsc")
	}
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	t.Cleanup(func() { _ = p.Close() })
	importEmpty(t, p)
	h, err := p.Create(t.Context(), providers.Spec{ID: "gvisor", Image: "empty", Security: providers.Security{RuntimeHandler: "runsc"}})
	if err != nil {
		t.Fatal(err)
	}
	waitRunning(t, h)
	if err := p.Delete(t.Context(), "gvisor"); err != nil {
		t.Fatal(err)
	}
}
