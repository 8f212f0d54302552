package store

import (
	"testing"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// TestR1_EndingWithItsEvents: an outcome is committed with the events that tell of it, also
// when the write is repeated; one for a call that is unknown or has an outcome changes nothing.
func TestR1_EndingWithItsEvents(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing is left to lose
	for _, id := range []string{"small", "large"} {
		if err := s.AcceptCall(t.Context(), CallRow{ID: id, Sandbox: "box", Accepted: time.Unix(1, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	write := func(w JournalWrite) error {
		result := make(chan error, 1)
		s.WriteJournal(w, func(err error) { result <- err })
		return <-result
	}
	w := JournalWrite{New: []JournalRow{{Num: 1, Sandbox: "box", ID: make([]byte, 16)}}}
	for id, size := range map[string]int{"small": 10, "large": wire.MaxRowValueBytes + 1, "unknown": wire.MaxRowValueBytes + 1} {
		e, err := s.NewEnding(id, CallEnd{State: CallSucceeded, Finished: time.Unix(2, 0), Keep: true, Head: []byte("head"), Value: make([]byte, size)})
		if err != nil {
			t.Fatal(err)
		}
		w.Ends = append(w.Ends, e)
	}
	for range 2 {
		if err := write(w); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range w.Ends {
		s.Ended(e)
	}
	second, err := s.NewEnding("small", CallEnd{State: CallFailed, Finished: time.Unix(3, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := write(JournalWrite{Ends: []*Ending{second}}); err != nil {
		t.Fatal(err)
	}
	for id, size := range map[string]int{"small": 10, "large": wire.MaxRowValueBytes + 1} {
		row, err := s.Call(t.Context(), id)
		if err != nil || row.State != CallSucceeded || !row.Kept {
			t.Errorf("%s: %+v, %v", id, row, err)
		}
		if _, value, err := s.Outcome(t.Context(), id); err != nil || len(value) != size {
			t.Errorf("%s: %d bytes, %v", id, len(value), err)
		}
	}
	if rows, err := s.Journals(t.Context()); err != nil || len(rows) != 1 {
		t.Errorf("%d journals, %v", len(rows), err)
	}
}
