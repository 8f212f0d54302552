//go:build containerd

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
)

// TestFirstResult prints, side by side, create to first result and `ctr run --rm IMAGE python3 -c pass`,
// medians of the same run; where the time goes in the provider is in the daemon's debug log, "sandbox
// started". FIRST_RESULT_ROUNDS says how many; without it the test is a short one.
func TestFirstResult(t *testing.T) {
	rounds := 3
	if text := os.Getenv("FIRST_RESULT_ROUNDS"); text != "" {
		if _, err := fmt.Sscan(text, &rounds); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := start(t)
	var create, first, plain []time.Duration
	for i := range rounds {
		began := time.Now()
		made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{
			Image: e.Template.GetImage(), Project: e.Project,
		}})
		if err != nil {
			t.Fatal(err)
		}
		create = append(create, time.Since(began))
		isValue("3")(t, call(t, e, made.GetName(), "app::add", "[1,2]"))
		first = append(first, time.Since(began))
		if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: made.GetName()}); err != nil {
			t.Error(err)
		}
		began = time.Now()
		out, err := exec.CommandContext(t.Context(), "ctr", "--address", engine.Address, "--namespace", "agentix",
			"run", "--rm", e.Template.GetImage(), fmt.Sprint("plain-", i), "python3", "-c", "pass").CombinedOutput()
		if err != nil {
			t.Fatalf("ctr run: %v: %s", err, out)
		}
		plain = append(plain, time.Since(began))
	}
	a, b, c := median(create), median(first), median(plain)
	t.Logf("medians of %d: create %s, create to first result %s, ctr run %s: %.2f times", rounds, a, b, c, float64(b)/float64(c))
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(time.Millisecond / 10)
}
