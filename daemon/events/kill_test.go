package events

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/runtime/wire"
)

// victimEnv makes this test binary a process that takes records into the state directory it
// names as long as it lives. Like a runtime it goes on at the cursor it finds.
const victimEnv = "AGENTIX_EVENTS_VICTIM"

func appendUntilKilled(dir string) {
	st, err := store.Open(context.Background(), dir)
	if err != nil {
		panic(err)
	}
	j := New(st, Options{LogDir: filepath.Join(dir, "logs")})
	_, seq, err := j.StreamCursor(context.Background(), "a", "")
	if err != nil {
		panic(err)
	}
	for {
		var texts []string
		for i := range uint64(1 + rand.IntN(5)) {
			texts = append(texts, fmt.Sprintf("line %d\n", seq+i+1))
		}
		b := wire.Batch{Sid: "s", Seq: seq + 1, Records: outputs(texts...)}
		seq += uint64(len(texts))
		j.AppendBatch("a", b, func() { _, _ = fmt.Fprintln(os.Stdout, b.Seq+uint64(len(texts))-1) })
	}
}

// TestR5_AckedRecordsSurviveKill kills the process that takes records again and again. What
// it acked is in the journal; all is there once and in order.
func TestR5_AckedRecordsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	acked := uint64(0)
	for round := range 6 {
		victim := exec.Command(os.Args[0])
		victim.Env = append(os.Environ(), victimEnv+"="+dir)
		out, err := victim.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		told, enough := bufio.NewScanner(out), 50+rand.IntN(500)
		for n := 0; told.Scan(); n++ {
			if _, err := fmt.Sscan(told.Text(), &acked); err != nil {
				t.Fatal(err)
			}
			if n == enough {
				if err := victim.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := victim.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("victim: %v", err)
		}
		checkKilled(t, dir, round, acked)
	}
}

func checkKilled(t *testing.T, dir string, round int, acked uint64) {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, Options{})
	evs := readAll(t, j, Query{Sandbox: "a"})
	for i := range evs {
		want := fmt.Sprintf("line %d\n", i+1)
		if got := lines(evs[i : i+1])[0]; got != want || evs[i].Seq != uint64(i+1) {
			t.Fatalf("round %d: event %d is %q, want %q", round, evs[i].Seq, got, want)
		}
	}
	if uint64(len(evs)) < acked {
		t.Errorf("round %d: %d events are kept, %d were acked", round, len(evs), acked)
	}
	if sid, seq, err := j.StreamCursor(t.Context(), "a", ""); sid != "s" || seq != uint64(len(evs)) || err != nil {
		t.Errorf("round %d: cursor %q %d %v, want %d", round, sid, seq, err, len(evs))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
