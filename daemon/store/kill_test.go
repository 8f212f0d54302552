package store

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
)

func waitFor(t testing.TB, cond func() bool, what string) {
	t.Helper()
	await.True(t, cond, what)
}

// victimEnv makes this test binary a process that writes to the state directory it names,
// and tells on stdout what is durable.
const victimEnv = "AGENTIX_STORE_VICTIM"

func writeUntilKilled(dir string) {
	s, err := Open(context.Background(), dir)
	if err != nil {
		panic(err)
	}
	for worker := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("e%d-w%d-%d", s.Epoch(), worker, i)
				if err := s.AcceptCall(context.Background(), CallRow{ID: id, Sandbox: "a", Accepted: time.Now()}); err != nil {
					panic(err)
				}
				_, _ = fmt.Fprintln(os.Stdout, id)
				if i%2 == 0 {
					if err := s.FinishCall(context.Background(), id, CallEnd{State: CallSucceeded, Finished: time.Now(), Keep: true, Value: make([]byte, i%9000)}); err != nil {
						panic(err)
					}
					_, _ = fmt.Fprintln(os.Stdout, id, "done")
				}
			}
		}()
	}
	select {}
}

// TestR1_AcceptedCallsSurviveKill kills a writing process again and again: all that it said
// was durable is there when the directory is opened next.
func TestR1_AcceptedCallsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	told := map[string]bool{}
	for round := range 5 {
		for line := range killed(t, dir, 100+rand.IntN(1000)) {
			told[line] = true
		}
		s, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for line := range told {
			id, _, done := strings.Cut(line, " ")
			row, err := s.Call(t.Context(), id)
			if err != nil || done && row.Finished.IsZero() {
				t.Errorf("round %d: %q was told and is lost: %v", round, line, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) < 500 {
		t.Errorf("only %d changes were made", len(told))
	}
}

// killed runs a victim until it has told n lines, kills it, and returns all it told.
func killed(t *testing.T, dir string, n int) map[string]bool {
	t.Helper()
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"="+dir)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if told[lines.Text()] = true; len(told) == n {
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := victim.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("victim: %v", err)
	}
	return told
}
