package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// fill appends n events of 1 KiB, each its own batch.
func fill(t *testing.T, j *Journal, sandbox string, n int) {
	t.Helper()
	for range n {
		j.Append(sandbox, Event{Body: &Output{Stream: Stdout, Data: make([]byte, 1000)}})
		flush(t, j, sandbox)
	}
}

// running lets retention run until the test ends.
func running(t *testing.T, j *Journal) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	t.Cleanup(func() {
		cancel(errors.New("test is over"))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (s *stream) trimmedTo() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trimmed
}

func (s *stream) keptBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

func TestR6_RetentionByBytesShowsAsGap(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, Options{MaxBytes: 20_000})
	running(t, j)
	fill(t, j, "a", 10)
	fill(t, j, "b", 3)
	one, all := readAll(t, j, Query{Sandbox: "a"}), readAll(t, j, Query{})
	fill(t, j, "a", 40)
	a := j.lookup("a")
	await.True(t, func() bool { return a.keptBytes() <= 20_000 }, "retention")
	trimmed := a.trimmedTo()
	if kept := 50 - trimmed; trimmed <= 10 || kept < 10 {
		t.Fatalf("%d of 50 events are kept", kept)
	}

	check := func(j *Journal) {
		t.Helper()
		got := readAll(t, j, Query{Sandbox: "a", After: one[4].Cursor})
		want := &Gap{FromSeq: 6, ToSeq: trimmed, Dropped: trimmed - 5, Source: SourceJournal}
		if diff := cmp.Diff(want, got[0].Body); diff != "" {
			t.Errorf("one sandbox: %s", diff)
		}
		if got[0].Seq != trimmed || got[1].Seq != trimmed+1 || got[len(got)-1].Seq != 50 {
			t.Errorf("one sandbox: gap at %d, then %d to %d", got[0].Seq, got[1].Seq, got[len(got)-1].Seq)
		}
		if rest := readAll(t, j, Query{Sandbox: "a", After: got[0].Cursor}); rest[0].Seq != trimmed+1 {
			t.Errorf("behind the gap: seq %d", rest[0].Seq)
		}
		if kinds := readAll(t, j, Query{Sandbox: "a", After: one[4].Cursor, Kinds: []Kind{KindCall}, CallID: "c"}); len(kinds) != 1 {
			t.Errorf("a filter hides the gap: got %v", lines(kinds))
		}
		if fresh := readAll(t, j, Query{Sandbox: "a"}); fresh[0].Seq != trimmed+1 {
			t.Errorf("from the beginning: got seq %d, %s", fresh[0].Seq, lines(fresh[:1]))
		}
		gaps := 0
		for _, ev := range readAll(t, j, Query{After: all[4].Cursor}) { // all[4] is a's fifth
			if gap, ok := ev.Body.(*Gap); ok {
				gaps++
				if ev.Sandbox != "a" || gap.ToSeq != trimmed {
					t.Errorf("all sandboxes: gap %+v of %s", gap, ev.Sandbox)
				}
			}
		}
		if gaps != 1 {
			t.Errorf("all sandboxes: %d gaps", gaps)
		}
		for _, ev := range readAll(t, j, Query{}) {
			if ev.Body.Kind() == KindGap {
				t.Error("all sandboxes, from the beginning: a gap")
			}
		}
	}
	check(j)
	if err := errors.Join(j.Close(), st.Close()); err != nil {
		t.Fatal(err)
	}
	check(open(t, dir, Options{}))
}

// TestR6_RetentionUnderAReader trims while readers that stand still before it go on.
func TestR6_RetentionUnderAReader(t *testing.T) {
	j := open(t, t.TempDir(), Options{MaxBytes: 20_000})
	const n = 1500 // several pages
	fill(t, j, "a", n)
	for _, sandbox := range []string{"a", ""} {
		var seen, lost uint64
		err := j.Read(t.Context(), Query{Sandbox: sandbox}, func(evs []Event, _ string) error {
			for i := range evs {
				if gap, ok := evs[i].Body.(*Gap); ok {
					if gap.FromSeq != seen+1 {
						return fmt.Errorf("gap %+v after %d", gap, seen)
					}
					lost += gap.Dropped
					seen = gap.ToSeq
					continue
				}
				if seen++; evs[i].Seq != seen {
					return fmt.Errorf("seq %d follows %d", evs[i].Seq, seen-1)
				}
			}
			if seen < n/2 {
				j.trimBytes(t.Context(), j.lookup("a"))
			}
			return nil
		})
		if sandbox == "a" && (err != nil || seen != n || lost == 0) {
			t.Errorf("seen to %d, %d lost, %v", seen, lost, err)
		}
		if sandbox == "" && err == nil { // begins behind what the first reader's trim took
			t.Error("the second reader began at event 1")
		}
	}
}

func TestRetentionByAge(t *testing.T) {
	fake := clock.NewFake(at(0))
	j := open(t, t.TempDir(), Options{Clock: fake, KeepAfterDelete: 100 * time.Hour})
	fill(t, j, "a", 3)
	running(t, j)
	fake.Advance(23 * time.Hour)
	fill(t, j, "a", 2)
	if got := len(readAll(t, j, Query{Sandbox: "a"})); got != 5 {
		t.Errorf("after 23 h: %d events", got)
	}
	await.True(t, func() bool {
		fake.Advance(time.Minute)
		return j.lookup("a").trimmedTo() >= 3
	}, "events older than a day to go")
	got := readAll(t, j, Query{Sandbox: "a"})
	if len(got) != 2 || got[0].Seq != 4 {
		t.Errorf("after a day: got %v", lines(got))
	}
	fill(t, j, "a", 1)
	if got = readAll(t, j, Query{Sandbox: "a", Tail: ptr(1)}); got[0].Seq != 6 {
		t.Errorf("numbers go on with %d", got[0].Seq)
	}
}

func TestJournalOutlivesItsSandboxForATime(t *testing.T) {
	fake := clock.NewFake(at(0))
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, Options{Clock: fake})
	for _, id := range []string{"a", "orphan"} {
		j.Append(id, Event{Body: &Lifecycle{State: "CREATING"}}, output("old"))
		flush(t, j, id)
	}
	old := readAll(t, j, Query{Sandbox: "a"})
	allOld := readAll(t, j, Query{})
	if err := j.DeleteSandbox(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	j.Append("a", output("late")) // still of the old one
	flush(t, j, "a")
	if got := lines(readAll(t, j, Query{Sandbox: "a"})); fmt.Sprint(got) != "[CREATING old late]" {
		t.Errorf("after delete: got %v", got)
	}
	if err := st.PutSandbox(t.Context(), "a", []byte("new")); err != nil {
		t.Fatal(err)
	}
	j.Append("a", Event{Body: &Lifecycle{State: "CREATING"}}, output("new"))
	flush(t, j, "a")
	check := func(when string, j *Journal) {
		t.Helper()
		if got := lines(readAll(t, j, Query{Sandbox: "a"})); fmt.Sprint(got) != "[CREATING new]" {
			t.Errorf("%s: got %v", when, got)
		}
	}
	check("made anew", j)
	if got := lines(readAll(t, j, Query{Sandbox: "a", After: old[0].Cursor})); fmt.Sprint(got) != "[old late]" {
		t.Errorf("old cursor: got %v", got)
	}
	running(t, j)
	oldStream := j.byOwner[mustParse(t, old[0].Cursor).owner]
	await.True(t, func() bool { fake.Advance(time.Minute); return oldStream.trimmedTo() == 3 }, "the old journal to go")
	check("after an hour", j)
	got := readAll(t, j, Query{Sandbox: "a", After: old[0].Cursor})
	if fmt.Sprint(lines(got)) != "[gap 2-3 2 journal]" {
		t.Errorf("old cursor after an hour: got %v", lines(got))
	}
	gap := readAll(t, j, Query{After: allOld[0].Cursor})
	if gap[0].Sandbox != "a" || gap[0].Body.Kind() != KindGap {
		t.Errorf("all sandboxes: got %v", lines(gap))
	}
	await.True(t, func() bool { fake.Advance(time.Minute); return j.lookup("orphan").trimmedTo() == 2 }, "the journal without a sandbox to go")
	fake.Advance(25 * time.Hour)
	await.True(t, func() bool { fake.Advance(time.Minute); return j.lookup("orphan") == nil }, "the last trace to go")
	err = j.Read(t.Context(), Query{Sandbox: "a", After: old[0].Cursor}, func([]Event, string) error { return nil })
	if !errs.Is(err, errs.OutOfRange) {
		t.Errorf("forgotten: got %v", err)
	}
	next := j.all.next
	if err := errors.Join(j.Close(), st.Close()); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, Options{Clock: fake})
	if again.all.next != next {
		t.Errorf("batches go on with %d, want %d", again.all.next, next)
	}
}

func mustParse(t *testing.T, text string) cursor {
	t.Helper()
	c, err := parseCursor(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestBackPressure holds the database so that commits cannot go on.
func TestBackPressure(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	fill(t, j, "a", 1)
	block, blocked := make(chan struct{}), make(chan struct{})
	j.AppendBatch("a", batchOf("s", 1, "x"), func() { close(blocked); <-block }) // holds the committer
	<-blocked
	chunk := string(make([]byte, 1<<20))
	sent := make(chan int, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 40 {
			j.AppendBatch("a", batchOf("s", uint64(i+2), chunk), nil)
			sent <- i
		}
	}()
	await.True(t, func() bool { return j.lookup("a").queueBytes.Load() > wire.MaxSandboxQueue }, "a full queue")
	if n := len(sent); n > 12 {
		t.Errorf("%d MiB were taken from one sandbox while nothing is committed", n)
	}
	other := make(chan struct{})
	go func() {
		j.AppendBatch("b", batchOf("s", 1, "y"), nil) // another sandbox is not held up
		close(other)
	}()
	select {
	case <-other:
	case <-time.After(await.Timeout):
		t.Error("another sandbox waits too")
	}
	close(block)
	<-done
	flush(t, j, "a")
	if sid, seq, err := j.StreamCursor(t.Context(), "a", ""); sid != "s" || seq != 41 || err != nil {
		t.Errorf("cursor: %s %d %v", sid, seq, err)
	}
}
