//go:build containerd

package e2e

import (
	"os/exec"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
)

// TestRunsc: the real runtime and worker under gVisor.
func TestRunsc(t *testing.T) {
	if _, err := exec.LookPath("runsc"); err != nil {
		t.Skip("runsc is not installed: apt-get install runsc")
	}
	e, _ := start(t)
	made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{
		Image: e.Template.GetImage(), Project: e.Project, Security: &agentixv1.Security{RuntimeHandler: "runsc"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	isValue("3")(t, call(t, e, made.GetName(), "app::add", "[1,2]"))
	if a := call(t, e, made.GetName(), "hostile::read", `["/proc/version"]`); a.value == "" {
		t.Errorf("got %+v", a)
	} else {
		t.Logf("its kernel is %s", a.value)
	}
}
