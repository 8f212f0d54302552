package events

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // To take rows away behind the store's back.

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
)

// TestR16_AcceptedLossIsAGap: once the operator goes on without what a damaged log lost, each
// journal says so, and no cursor of before is taken for one of after.
func TestR16_AcceptedLossIsAGap(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, Options{})
	j.Append("a", output("1"), output("2"))
	flush(t, j, "a")
	one, all := readAll(t, j, Query{Sandbox: "a"}), readAll(t, j, Query{})
	if err := errors.Join(j.Close(), st.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "agentixd.synced")); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, Options{})
	flush(t, j, "a")
	if got := strings.Join(lines(readAll(t, j, Query{Sandbox: "a"})), ", "); got != "1, 2, gap 0-0 0 journal" {
		t.Errorf("got %s", got)
	}
	for _, q := range []Query{{Sandbox: "a", After: one[0].Cursor}, {After: all[0].Cursor}} {
		if err := j.Read(t.Context(), q, func([]Event, string) error { return nil }); !errs.Is(err, errs.OutOfRange) {
			t.Errorf("an old cursor: %v", err)
		}
	}
}

// TestR16_HoleIsAnError takes a batch out of the middle: who reads over the place is told.
func TestR16_HoleIsAnError(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	fill(t, j, "a", 10)
	db, err := sql.Open("sqlite", filepath.Join(dir, "agentixd.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "DELETE FROM batch WHERE first_seq = 5"); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = j.Read(t.Context(), Query{Sandbox: "a"}, func(evs []Event, _ string) error { seen += len(evs); return nil })
	if !errs.Is(err, errs.Internal) || seen > 4 {
		t.Errorf("read %d events and ended with %v", seen, err)
	}
}
