package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/await"
)

// writeBatches commits batches first to last, each by itself, and waits until they are synced.
func writeBatches(t *testing.T, s *Store, first, last uint64) {
	t.Helper()
	for n := first; n <= last; n++ {
		result := make(chan error, 1)
		s.WriteJournal(JournalWrite{
			New:     []JournalRow{{Num: 1, Sandbox: "a", ID: []byte("owner678")}},
			Batches: []BatchRow{{Num: n, Journal: 1, FirstSeq: n, LastSeq: n, Data: bytes.Repeat([]byte{byte(n)}, 500)}},
		}, func(err error) { result <- err })
		if err := <-result; err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, func() bool {
		data, err := os.ReadFile(s.synced.path)
		return err == nil && string(data) == syncedLine(last)
	}, "the sync")
}

func put(t *testing.T, state map[string][]byte) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range state {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestR16_LossInTheLogIsTold damages the log of a killed daemon: nothing that was synced goes
// missing in silence.
func TestR16_LossInTheLogIsTold(t *testing.T) {
	const n = 40
	s := open(t, t.TempDir())
	writeBatches(t, s, 1, n)
	state := files(t, filepath.Dir(s.path)) // as after a kill: the log holds all
	wal := fileName + "-wal"
	refused := 0
	for at := 0; at < len(state[wal]); at += len(state[wal])/60 + 1 {
		for _, cut := range []bool{false, true} {
			damaged := map[string][]byte{}
			for name, data := range state {
				damaged[name] = bytes.Clone(data)
			}
			if cut {
				damaged[wal] = damaged[wal][:at]
			} else {
				damaged[wal][at] ^= 8
			}
			dir := put(t, damaged)
			again, err := Open(t.Context(), dir)
			if err != nil {
				if refused++; !strings.Contains(err.Error(), dir) {
					t.Errorf("at %d, cut %v: the error names no file: %v", at, cut, err)
				}
				if _, err := Open(t.Context(), dir); err == nil {
					t.Errorf("at %d, cut %v: refused once only", at, cut)
				}
				continue
			}
			got := 0
			if err := again.Batches(t.Context(), BatchQuery{}, func(BatchRow) (bool, error) { got++; return true, nil }); err == nil && got != n {
				t.Errorf("at %d, cut %v: %d batches of %d, and no word of it", at, cut, got, n)
			}
			if again.Lost() {
				t.Errorf("at %d, cut %v: taken as lost", at, cut)
			}
			_ = again.Close()
		}
	}
	if refused < 60 {
		t.Errorf("refused %d times", refused)
	}
}

// TestR16_LossCanBeAccepted goes on without what was lost: with other names, so that no
// cursor of before is taken for one of after.
func TestR16_LossCanBeAccepted(t *testing.T) {
	s := open(t, t.TempDir())
	writeBatches(t, s, 1, 20)
	lineage := s.Lineage()
	state := files(t, filepath.Dir(s.path))
	wal := fileName + "-wal"
	state[wal] = state[wal][:len(state[wal])/2]
	dir := put(t, state)
	if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "agentixd.db-wal is damaged: batches up to 20 were synced") {
		t.Fatalf("got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, syncedName)); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		again := open(t, dir)
		if again.Lost() != (round == 0) || again.Lineage() == lineage || again.Instance() != s.Instance() {
			t.Errorf("round %d: lost %v, lineage %s, before %s", round, again.Lost(), again.Lineage(), lineage)
		}
		journals, err := again.Journals(t.Context())
		if err != nil || len(journals) != 1 || string(journals[0].ID) == "owner678" {
			t.Errorf("round %d: journals %v, %v", round, journals, err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that says less than the database is true: the daemon died before it wrote on.
func TestSyncedFileMayBeBehind(t *testing.T) {
	s := open(t, t.TempDir())
	writeBatches(t, s, 1, 5)
	state := files(t, filepath.Dir(s.path))
	for text, good := range map[string]bool{syncedLine(0): true, syncedLine(4): true, "": true, syncedLine(5): true, syncedLine(6): false, "rubbish": false, fmt.Sprintf("%020d 00000000\n", 3): false} {
		state[syncedName] = []byte(text)
		again, err := Open(t.Context(), put(t, state))
		if (err == nil) != good {
			t.Errorf("%q: got %v", text, err)
		}
		if err == nil {
			if again.Lost() {
				t.Errorf("%q: taken as lost", text)
			}
			_ = again.Close()
		}
	}
}
