package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/runtime/wire"
)

// TestR14_Schema2Calls: calls of a state directory of the release before are taken on: who
// asks again gets the outcome that there was, and what is damaged stays an error.
func TestR14_Schema2Calls(t *testing.T) {
	dir := t.TempDir()
	db, err := openDB(filepath.Join(dir, "agentixd.db"))
	if err != nil {
		t.Fatal(err)
	}
	steps := append([]string{}, migrations[:2]...)
	for _, step := range append(steps, fmt.Sprintf("PRAGMA application_id = %d", applicationID), "PRAGMA user_version = 2") {
		if _, err := db.ExecContext(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	type object = map[string]any
	for i, c := range []struct {
		id      string
		outcome object
		sum     int64
	}{
		{"open", nil, 0},
		{"value", object{"value": []byte("1"), "encoding": "json"}, 0},
		{"large", object{"encoding": "json", "dropped": 99}, 0},
		{"raised", object{"error": object{"type": "ValueError", "message": "no"}}, 0},
		{"cancelled", object{"error": object{"type": "Cancelled", "cancelled": true}}, 0},
		{"damaged", object{"value": []byte("1"), "encoding": "json"}, 1},
	} {
		accepted, finished := int64(i+1), int64(i+100)
		args := []any{c.id, "box", []byte{1}, "m::f", accepted, checksum(c.id, "box", []byte{1}, "m::f", accepted), nil, nil, nil}
		if c.outcome != nil {
			outcome, err := wire.Marshal(c.outcome)
			if err != nil {
				t.Fatal(err)
			}
			args[6], args[7], args[8] = finished, checksum(c.id, finished, outcome)+c.sum, outcome
		}
		if _, err := db.ExecContext(t.Context(), "INSERT INTO call (id, sandbox, request_hash, callable, accepted, sum, finished, outcome_sum, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	for i, want := range []CallRow{
		{ID: "open", State: CallRunning},
		{ID: "value", State: CallSucceeded, Kept: true},
		{ID: "large", State: CallSucceeded},
		{ID: "raised", State: CallFailed, ErrorType: "ValueError", Kept: true},
		{ID: "cancelled", State: CallCancelled, ErrorType: "Cancelled", Kept: true},
	} {
		want.Num, want.Sandbox, want.RequestHash, want.Callable, want.Accepted = int64(i+1), "box", []byte{1}, "m::f", time.Unix(0, int64(i+1))
		if want.State != CallRunning {
			want.Finished = time.Unix(0, int64(i+100))
		}
		got, err := s.Call(t.Context(), want.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if head, _, err := s.Outcome(t.Context(), want.ID); (err == nil && len(head) > 0) != want.Kept {
			t.Errorf("outcome of %s: %q %v", want.ID, head, err)
		}
	}
	if _, err := s.Call(t.Context(), "damaged"); err == nil {
		t.Error("the damaged call is read")
	}
	if open, err := s.OpenCalls(t.Context()); err != nil || len(open) != 1 {
		t.Errorf("open calls: %v %v", open, err)
	}
}

// TestR14_Schema1IsBroughtUp: a state directory of the first release is taken on with its
// cursors, and has those of named streams afterwards.
func TestR14_Schema1IsBroughtUp(t *testing.T) {
	dir := t.TempDir()
	db, err := openDB(filepath.Join(dir, "agentixd.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		migrations[0], fmt.Sprintf("PRAGMA application_id = %d", applicationID), "PRAGMA user_version = 1",
		"INSERT INTO journal (num, sandbox, id, sid, cursor) VALUES (1, 'a', x'00', 'old', 7)",
	} {
		if _, err := db.ExecContext(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	rows, err := s.Journals(t.Context())
	if err != nil || len(rows) != 1 || rows[0].Sid != "old" || rows[0].Cursor != 7 {
		t.Fatalf("journals: got %+v, %v", rows, err)
	}
	want := []StreamCursor{{Journal: 1, Stream: "/log", Sid: "l", Seq: 3}, {Journal: 1, Stream: "/trace", Sid: "t", Seq: 2}}
	done := make(chan error, 2)
	for _, cursors := range [][]StreamCursor{{{Journal: 1, Stream: "/log", Sid: "k", Seq: 9}, want[1]}, want[:1]} {
		s.WriteJournal(JournalWrite{Cursors: cursors}, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.StreamCursors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
