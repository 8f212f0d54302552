package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
)

// finished is a call with an outcome that is kept.
func finished(t *testing.T, s *Store, id string, value []byte, at time.Time) {
	t.Helper()
	if err := s.AcceptCall(t.Context(), CallRow{ID: id, Sandbox: "a", Callable: "m::f", Accepted: at}); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishCall(t.Context(), id, CallEnd{State: CallSucceeded, Finished: at, Keep: true, Head: []byte("head"), Value: value}); err != nil {
		t.Fatal(err)
	}
}

func outcomeFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, outcomesName))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A value of 256 KiB is in its row, one byte more is a file that only the owner reads.
func TestLargeOutcomesAreFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	values := map[string][]byte{"empty": nil, "row": bytes.Repeat([]byte("r"), 262144), "file": bytes.Repeat([]byte("f"), 262145)}
	for id, value := range values {
		finished(t, s, id, value, time.Unix(1, 0))
	}
	for range 2 {
		for id, want := range values {
			if head, value, err := s.Outcome(t.Context(), id); err != nil || !bytes.Equal(value, want) || string(head) != "head" {
				t.Errorf("%s: %d bytes, %v", id, len(value), err)
			}
		}
		if got := outcomeFiles(t, dir); !slices.Equal(got, []string{"file"}) {
			t.Errorf("files %v", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
	}
	info, err := os.Stat(filepath.Join(dir, outcomesName, "file"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if n, err := s.PruneCalls(t.Context(), time.Unix(2, 0)); n != 3 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
	if got := outcomeFiles(t, dir); len(got) != 0 {
		t.Errorf("files after their calls: %v", got)
	}
}

// A file that no row tells of, whole or half, is removed at the start; a file that is
// damaged or gone is never wrong data.
func TestR16_OutcomeFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, id := range []string{"good", "flipped", "short", "gone"} {
		finished(t, s, id, bytes.Repeat([]byte(id), 100000), time.Unix(1, 0))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, outcomesName, name) }
	data, err := os.ReadFile(path("flipped"))
	if err != nil {
		t.Fatal(err)
	}
	data[5000] ^= 1
	for name, content := range map[string][]byte{"flipped": data, "orphan": data, "good.new": data[:10]} {
		if err := os.WriteFile(path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(path("short"), 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path("gone")); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if got := outcomeFiles(t, dir); !slices.Equal(got, []string{"flipped", "good", "short"}) {
		t.Errorf("files %v", got)
	}
	for id, want := range map[string]func(error) bool{
		"good": func(err error) bool { return err == nil }, "gone": func(err error) bool { return errs.Is(err, errs.NotFound) },
		"flipped": isDamage(path("flipped")), "short": isDamage(path("short")),
	} {
		if _, _, err := s.Outcome(t.Context(), id); !want(err) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func isDamage(path string) func(error) bool {
	return func(err error) bool {
		return errs.Is(err, errs.Internal) && err != nil && bytes.Contains([]byte(err.Error()), []byte(path))
	}
}

func TestOutcomesAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	s.outcomes.limits = KeepLimits{Count: 8, Bytes: 1 << 30}
	kept := func(n int) (ids []string) {
		for i := range n {
			id := fmt.Sprint(i)
			row, err := s.Call(t.Context(), id)
			if err != nil || row.State != CallSucceeded {
				t.Fatalf("%s: %+v, %v", id, row, err)
			}
			_, _, err = s.Outcome(t.Context(), id)
			if (err == nil) != row.Kept {
				t.Errorf("%s is kept: %v, its outcome: %v", id, row.Kept, err)
			}
			if row.Kept {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for i := range 9 {
		finished(t, s, fmt.Sprint(i), []byte("x"), time.Unix(int64(i), 0))
	}
	if got := kept(9); !slices.Equal(got, []string{"2", "3", "4", "5", "6", "7", "8"}) {
		t.Errorf("by count: %v", got)
	}
	s.outcomes.limits.Bytes = 600000
	for i := 9; i < 11; i++ {
		finished(t, s, fmt.Sprint(i), make([]byte, 300000), time.Unix(int64(i), 0))
	}
	if got := kept(11); !slices.Equal(got, []string{"10"}) {
		t.Errorf("by bytes: %v", got)
	}
	if got := outcomeFiles(t, dir); !slices.Equal(got, []string{"10"}) {
		t.Errorf("files %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if got := s.outcomes.bytes; got != 300004 {
		t.Errorf("%d bytes after a restart", got)
	}
	if err := s.ExpireOutcomes(t.Context(), time.Unix(11, 0)); err != nil {
		t.Fatal(err)
	}
	if got := kept(11); len(got) != 0 {
		t.Errorf("by age: %v", got)
	}
}

func TestListing(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 6 {
		row := CallRow{ID: fmt.Sprint(i), Sandbox: []string{"a", "b"}[i%2], Callable: "m::f", Accepted: time.Unix(9-int64(i), 0)}
		if err := s.AcceptCall(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if i < 4 {
			if err := s.FinishCall(t.Context(), row.ID, CallEnd{State: CallSucceeded + int64(i%3), Finished: time.Unix(9, 0)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		q    CallQuery
		want string
	}{
		{CallQuery{Limit: 10}, "5 4 3 2 1 0"},
		{CallQuery{Limit: 2}, "5 4"},
		{CallQuery{Limit: 2, Before: 5}, "3 2"},
		{CallQuery{Limit: 10, Sandbox: "b"}, "5 3 1"},
		{CallQuery{Limit: 10, States: []int64{CallRunning, CallCancelled}}, "5 4 2"},
		{CallQuery{Limit: 10, Sandbox: "a", States: []int64{CallSucceeded}}, "0"},
	} {
		rows, err := s.Calls(t.Context(), c.q)
		got := ""
		for _, r := range rows {
			got += " " + r.ID
		}
		if err != nil || got != " "+c.want {
			t.Errorf("%+v: got%s, want %s, %v", c.q, got, c.want, err)
		}
	}
}

func TestSubmittedIsKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	at := time.Unix(5, 0)
	for _, row := range []CallRow{
		{ID: "named", Sandbox: "a", Accepted: at},
		{ID: "submitted", Sandbox: "a", Accepted: at, Submitted: true, Deadline: at.Add(time.Minute), Encoding: "json"},
	} {
		if err := s.AcceptCall(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	check := func(id string, submitted bool) {
		t.Helper()
		if row, err := s.Call(t.Context(), id); err != nil || row.Submitted != submitted || id == "submitted" && (row.Encoding != "json" || !row.Deadline.Equal(at.Add(time.Minute))) {
			t.Errorf("%s: %+v, %v", id, row, err)
		}
	}
	check("named", false)
	for range 2 {
		if err := s.SubmitCall(t.Context(), "named"); err != nil {
			t.Fatal(err)
		}
		check("named", true)
		check("submitted", true)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
	}
}

// Pruning takes what is old from anywhere in the table, in several commits, and keeps what is
// open, new or, beyond the number of records, named.
func TestPruning(t *testing.T) {
	s := open(t, t.TempDir())
	old, fresh := time.Unix(100, 0), time.Unix(200, 0)
	add := func(id string, accepted, finished time.Time, named bool) {
		row := CallRow{ID: id, Sandbox: "a", Accepted: accepted}
		if named {
			row.RequestHash = []byte{1}
		}
		if err := s.AcceptCall(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		if !finished.IsZero() {
			if err := s.FinishCall(t.Context(), id, CallEnd{State: CallSucceeded, Finished: finished, Keep: named}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("open", old, time.Time{}, false)
	add("long", old, fresh, false)
	for i := range pruneRows + 10 {
		add(fmt.Sprint("old-", i), old, old, i%100 == 0)
	}
	add("last", old, old, true)
	for i := range 10 {
		add(fmt.Sprint("fresh-", i), fresh, fresh, i%2 == 0)
	}
	left := func() (ids []string) {
		rows, err := s.Calls(t.Context(), CallQuery{Limit: 10000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if n, err := s.PruneCalls(t.Context(), time.Unix(150, 0)); err != nil || n != pruneRows+11 {
		t.Errorf("pruned %d, %v", n, err)
	}
	want := []string{"fresh-0", "fresh-1", "fresh-2", "fresh-3", "fresh-4", "fresh-5", "fresh-6", "fresh-7", "fresh-8", "fresh-9", "long", "open"}
	if got := left(); !slices.Equal(got, want) {
		t.Errorf("left %v", got)
	}
	if n, err := s.pruneCalls(t.Context(), time.Unix(150, 0), 4); err != nil || n != 4 {
		t.Errorf("pruned %d, %v", n, err)
	}
	want = []string{"fresh-0", "fresh-2", "fresh-4", "fresh-6", "fresh-7", "fresh-8", "fresh-9", "open"}
	if got := left(); !slices.Equal(got, want) {
		t.Errorf("left %v", got)
	}
	if n, err := s.PruneCalls(t.Context(), time.Unix(150, 0)); err != nil || n != 0 {
		t.Errorf("pruned again %d, %v", n, err)
	}
}
