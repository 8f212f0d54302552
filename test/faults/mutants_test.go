//go:build faults

package faults

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/faulttest"
	"github.com/agentixd/agentixd/internal/mutant"
)

// plantedEnv makes the tests of a process run daemons with a planted fault.
const plantedEnv = "AGENTIX_FAULTS_MUTANT"

// TestMutants: with each planted fault the suite fails, and by the promise that was broken.
func TestMutants(t *testing.T) {
	if os.Getenv(plantedEnv) != "" {
		t.Skip("this process has a planted fault itself")
	}
	faulttest.Build(t, "mutant")
	for name, c := range map[string]struct{ test, want string }{
		mutant.DoubleSend:       {"TestR1_R2_RandomKills", "R2: it ran 2 times"},
		mutant.SkippedTombstone: {"TestR2_LateCalls", "after its end was told"},
		mutant.DroppedTail:      {"TestR1_R2_RandomKills", "R6: a follower saw"},
		mutant.SkippedDedupe:    {"TestR1_R2_RandomKills", "R1: "},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+c.test+"$", "-test.v")
			command.Env = append(os.Environ(), plantedEnv+"="+name, "AGENTIX_FAULTS_ROUNDS=4", "AGENTIX_FAULTS_KILL=daemon")
			output, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(output), "--- FAIL: "+c.test) {
				t.Errorf("it was not caught: %v\n%s", err, output)
			}
			if !strings.Contains(string(output), c.want) {
				t.Errorf("want %q in\n%s", c.want, output)
			}
			for line := range strings.Lines(string(output)) {
				if strings.Contains(line, c.want) {
					t.Logf("caught: %s", strings.TrimSpace(line))
					break
				}
			}
		})
	}
	if len(mutant.Names) != 4 {
		t.Errorf("%d mutants, 4 are tested", len(mutant.Names))
	}
}
