//go:build failpoint

package events

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/failpoint"
)

// TestR13_RefusedCommitsAreRepeated lets commits fail for a time: a flush says so at once,
// nothing that was appended is lost, and nothing is there twice.
func TestR13_RefusedCommitsAreRepeated(t *testing.T) {
	for _, point := range []string{"events/beforeAppend", "events/afterAppend", "store/beforeCommit", "store/afterCommit"} {
		j := open(t, t.TempDir(), Options{})
		j.Append("a", output("1"))
		flush(t, j, "a")
		disable, err := failpoint.Enable(point, "error(disk full)")
		if err != nil {
			t.Fatal(err)
		}
		acked := make(chan struct{})
		j.Append("a", output("2"))
		j.AppendBatch("a", batchOf("s", 1, "3"), func() { close(acked) })
		if err := j.Flush(t.Context(), "a"); err == nil {
			t.Errorf("%s: flush says nothing", point)
		}
		select {
		case <-acked:
			t.Errorf("%s: acked", point)
		default:
		}
		disable()
		<-acked
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("flush hangs"))
		if err := j.Flush(ctx, "a"); err != nil {
			t.Errorf("%s: %v", point, err)
		}
		cancel()
		if got := fmt.Sprint(lines(readAll(t, j, Query{Sandbox: "a"}))); got != "[1 2 3]" {
			t.Errorf("%s: got %s", point, got)
		}
	}
}

// TestR5_DeathAtNamedMoments lets the process that takes records die at each point.
func TestR5_DeathAtNamedMoments(t *testing.T) {
	for _, point := range []string{
		"events/beforeAppend", "events/afterAppend", "store/beforeCommit", "store/afterCommit", "store/beforeSync", "store/afterSync",
	} {
		dir := t.TempDir()
		for round := range 3 {
			victim := exec.Command(os.Args[0])
			victim.Env = append(os.Environ(), victimEnv+"="+dir, failpoint.EnvVar+"="+point+"=5*off->exit")
			out, err := victim.Output()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 137 {
				t.Fatalf("%s: victim: %v", point, err)
			}
			acked := uint64(0)
			if len(out) > 0 {
				if _, err := fmt.Sscan(filepath.Base(lastLine(out)), &acked); err != nil {
					t.Fatal(err)
				}
			}
			checkKilled(t, dir, round, acked)
		}
	}
}

func lastLine(out []byte) string {
	start := len(out) - 1
	for start > 0 && out[start-1] != '\n' {
		start--
	}
	return string(out[start:])
}
