package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
