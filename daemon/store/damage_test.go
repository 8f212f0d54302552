package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestR16_DamageIsNeverWrongData flips bits of the state directory's files: what can still
// be read is what was written, and the rest is an error, never a panic.
func TestR16_DamageIsNeverWrongData(t *testing.T) {
	pristine := t.TempDir()
	s := open(t, pristine)
	body := func(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "content %d ", i), 100+i) }
	for i := range 30 {
		id := fmt.Sprint(i)
		if err := s.PutSandbox(t.Context(), id, body(i)); err != nil {
			t.Fatal(err)
		}
		if err := s.AcceptCall(t.Context(), CallRow{ID: id, Sandbox: id, RequestHash: body(i)[:32], Callable: "m::f", Accepted: time.Unix(int64(i), 0)}); err != nil {
			t.Fatal(err)
		}
		if err := s.FinishCall(t.Context(), id, CallEnd{State: CallSucceeded, Finished: time.Unix(int64(i), 1), Keep: true, Value: body(i)}); err != nil {
			t.Fatal(err)
		}
		seq := uint64(i + 1)
		committed := make(chan error, 1)
		s.WriteJournal(JournalWrite{Batches: []BatchRow{{Num: seq, Journal: 1, FirstSeq: seq, LastSeq: seq, Data: body(i)}}}, func(err error) { committed <- err })
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
	}
	withLog := files(t, pristine) // as after a kill: the log holds all
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, state := range []map[string][]byte{withLog, files(t, pristine)} {
		for range 150 {
			dir := filepath.Join(t.TempDir(), "state")
			what := damage(t, dir, state, random)
			readDamaged(t, dir, what, body)
		}
	}
}

// damage writes the files to dir with one bit turned or the end of one cut off.
func damage(t *testing.T, dir string, state map[string][]byte, random *rand.Rand) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	targets := []string{fileName, fileName + "-wal"}
	target := targets[random.IntN(len(targets))]
	if len(state[target]) == 0 {
		target = fileName
	}
	at := random.IntN(len(state[target]))
	cut := random.IntN(4) == 0
	for name, data := range state {
		data = bytes.Clone(data)
		if name == target && cut {
			data = data[:at]
		} else if name == target {
			data[at] ^= 1 << random.IntN(8)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%s at %d, cut %v", target, at, cut)
}

func readDamaged(t *testing.T, dir, what string, body func(int) []byte) {
	t.Helper()
	s, err := Open(t.Context(), dir)
	if err != nil {
		return // refused
	}
	defer func() { _ = s.Close() }() // may complain about the damage
	check := func(id string, got []byte) {
		var i int
		if _, err := fmt.Sscan(id, &i); err != nil || !bytes.Equal(got, body(i)) {
			t.Errorf("%s: row %q has wrong data", what, id)
		}
	}
	if rows, err := s.Sandboxes(t.Context()); err == nil {
		for _, r := range rows {
			check(r.ID, r.Record)
		}
	}
	for i := range 30 {
		id := fmt.Sprint(i)
		if row, err := s.Call(t.Context(), id); err == nil && (row.ID != id || row.State != CallRunning && row.State != CallSucceeded) {
			t.Errorf("%s: row %q has wrong data", what, id)
		}
		if _, value, err := s.Outcome(t.Context(), id); err == nil {
			check(id, value)
		}
	}
	_ = s.Batches(t.Context(), BatchQuery{}, func(b BatchRow) (bool, error) {
		check(fmt.Sprint(b.FirstSeq-1), b.Data)
		return true, nil
	})
}
