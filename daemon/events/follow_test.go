package events

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// follower reads in a goroutine of its own.
type follower struct {
	mu     sync.Mutex
	seen   []string
	cursor string
	beats  int
	result chan error
	cancel context.CancelCauseFunc
}

func follow(t testing.TB, j *Journal, q Query) *follower {
	q.Follow = true
	f := &follower{result: make(chan error, 1)}
	ctx, cancel := context.WithCancelCause(t.Context())
	f.cancel = cancel
	go func() {
		f.result <- j.Read(ctx, q, func(evs []Event, cursor string) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen = append(f.seen, lines(evs)...)
			f.cursor = cursor
			if len(evs) == 0 {
				f.beats++
			}
			return nil
		})
	}()
	t.Cleanup(func() { cancel(errors.New("test is over")) }) // goleak sees that it ends
	return f
}

func (f *follower) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

func (f *follower) at() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cursor
}

func (f *follower) waitFor(t testing.TB, want ...string) {
	t.Helper()
	await.True(t, func() bool { return len(f.lines()) >= len(want) }, fmt.Sprint(want))
	if diff := cmp.Diff(want, f.lines()); diff != "" {
		t.Error(diff)
	}
}

func (f *follower) end(t testing.TB) error {
	t.Helper()
	select {
	case err := <-f.result:
		return err
	case <-time.After(await.Timeout):
		t.Fatal("the follower does not end")
		return nil
	}
}

func output(text string) Event { return Event{Body: &Output{Stream: Stdout, Data: []byte(text)}} }

func TestR6_FollowerSeesAllFromBothDiskAndMemory(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	j.Append("a", output("1"), output("2"))
	flush(t, j, "a")
	j.Append("b", output("other"))
	f := follow(t, j, Query{Sandbox: "a"})
	f.waitFor(t, "1", "2")
	want := []string{"1", "2"}
	for i := range 200 {
		j.Append("a", output(fmt.Sprint("new ", i)))
		want = append(want, fmt.Sprint("new ", i))
	}
	f.waitFor(t, want...)
	if stream := j.lookup("a"); stream.tail.bytes == 0 {
		t.Error("new events were not kept in memory for the follower")
	}
	f.cancel(errors.New("client went away"))
	if err := f.end(t); err == nil || err.Error() != "client went away" {
		t.Errorf("got %v, want the cause", err)
	}
	await.True(t, func() bool {
		stream := j.lookup("a")
		stream.mu.Lock()
		defer stream.mu.Unlock()
		return stream.tail.bytes == 0 && stream.followers == 0
	}, "memory freed after the last follower")
}

func TestFollowerOfAllSeesEachInItsOrder(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	j.Append("a", output("a1"))
	flush(t, j, "a")
	f := follow(t, j, Query{})
	f.waitFor(t, "a1")
	for i := range 100 {
		j.Append("a", output(fmt.Sprint("a", i+2)))
		j.Append("b", output(fmt.Sprint("b", i+1)))
	}
	await.True(t, func() bool { return len(f.lines()) == 201 }, "all events")
	next := map[byte]int{'a': 1, 'b': 1}
	for _, text := range f.lines() {
		if want := fmt.Sprintf("%c%d", text[0], next[text[0]]); text != want {
			t.Fatalf("got %s, want %s", text, want)
		}
		next[text[0]]++
	}
	// The same again from a cursor, without following.
	j.Append("a", output("last"))
	flush(t, j, "a")
	if got := lines(readAll(t, j, Query{After: f.at()})); len(got) > 1 || len(got) == 1 && got[0] != "last" {
		t.Errorf("after the cursor: got %v", got)
	}
}

func TestHeartbeats(t *testing.T) {
	fake := clock.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	j := open(t, t.TempDir(), Options{Clock: fake})
	j.Append("a", output("1"))
	flush(t, j, "a")
	f := follow(t, j, Query{Sandbox: "a", Kinds: []Kind{KindLog}})
	for want := range 3 {
		await.True(t, func() bool {
			fake.Advance(15 * time.Second)
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.beats > want
		}, "a heartbeat")
	}
	if got := lines(readAll(t, j, Query{Sandbox: "a", After: f.at()})); len(got) != 0 {
		t.Errorf("the cursor of a heartbeat lies before %v, which it passed over", got)
	}
}

func TestFollowerEndsWithItsSandbox(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	j.Append("a", Event{Body: &Lifecycle{State: "READY"}})
	byEvent, byKind, all := follow(t, j, Query{Sandbox: "a"}), follow(t, j, Query{Sandbox: "a", Kinds: []Kind{KindOutput}}), follow(t, j, Query{})
	byEvent.waitFor(t, "READY")
	j.Append("a", Event{Body: &Lifecycle{State: "STOPPING", Reason: "DELETED"}}, Event{Body: &Lifecycle{State: "STOPPED", Reason: "DELETED"}})
	if err := byEvent.end(t); err != nil {
		t.Error(err)
	}
	byEvent.waitFor(t, "READY", "STOPPING", "STOPPED")
	if err := j.DeleteSandbox(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := byKind.end(t); err != nil {
		t.Error(err)
	}
	if err := j.DeleteSandbox(t.Context(), "unknown"); err != nil {
		t.Error(err)
	}
	all.waitFor(t, "READY", "STOPPING", "STOPPED") // and goes on
	late := follow(t, j, Query{Sandbox: "a"})
	if err := late.end(t); err != nil || len(late.lines()) != 3 {
		t.Errorf("late follower: %v %v", late.lines(), err)
	}
}

func TestFollowerOfAFinishedCallEnds(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	accept := func(id string) {
		if err := j.store.AcceptCall(t.Context(), store.CallRow{ID: id, Sandbox: "a", Accepted: time.Now()}); err != nil {
			t.Fatal(err)
		}
		j.Append("a", Event{CallID: id, Body: &Call{Phase: CallAccepted}})
	}
	accept("c1")
	accept("c2")
	if err := j.store.FinishCall(t.Context(), "c1", store.CallEnd{State: store.CallSucceeded, Finished: time.Now()}); err != nil {
		t.Fatal(err)
	}
	j.Append("a", Event{CallID: "c1", Body: &Call{Phase: CallFinished}}, output("after"))
	flush(t, j, "a")
	all := readAll(t, j, Query{Sandbox: "a"})
	behind := follow(t, j, Query{Sandbox: "a", CallID: "c1", After: all[3].Cursor})
	if err := behind.end(t); err != nil || len(behind.lines()) != 0 {
		t.Errorf("behind the end: %v %v", behind.lines(), err)
	}
	before := follow(t, j, Query{Sandbox: "a", CallID: "c1", After: all[0].Cursor})
	if err := before.end(t); err != nil {
		t.Error(err)
	}
	before.waitFor(t, "FINISHED c1")
	if before.at() != all[2].Cursor {
		t.Error("the last cursor is not that of the last event")
	}
	running := follow(t, j, Query{Sandbox: "a", CallID: "c2", After: all[3].Cursor})
	j.Append("a", Event{CallID: "c2", Body: &Call{Phase: CallFinished}})
	if err := running.end(t); err != nil {
		t.Error(err)
	}
	running.waitFor(t, "FINISHED c2")
}

func TestErrorOfTheCallbackEndsReading(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	j.Append("a", output("1"))
	flush(t, j, "a")
	for _, follow := range []bool{false, true} {
		err := j.Read(t.Context(), Query{Sandbox: "a", Follow: follow}, func([]Event, string) error { return errEnough })
		if !errors.Is(err, errEnough) {
			t.Errorf("follow %v: got %v", follow, err)
		}
	}
}

func TestCloseEndsFollowers(t *testing.T) {
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, Options{})
	j.Append("a", output("1"))
	one, all := follow(t, j, Query{Sandbox: "a"}), follow(t, j, Query{})
	one.waitFor(t, "1")
	all.waitFor(t, "1")
	j.Append("a", output("2"))
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	for _, f := range []*follower{one, all} {
		if err := f.end(t); !errs.Is(err, errs.Unavailable) {
			t.Errorf("got %v, want Unavailable", err)
		}
	}
	j.Append("a", output("3")) // is not taken, and does not hang
	j.AppendBatch("a", wire.Batch{Sid: "s", Seq: 1, Records: outputs("4")}, nil)
	if err := j.Flush(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	rows := 0
	err = st.Batches(t.Context(), store.BatchQuery{}, func(b store.BatchRow) (bool, error) { rows += int(b.LastSeq - b.FirstSeq + 1); return true, nil })
	if err != nil || rows != 2 {
		t.Errorf("got %d events kept, %v; want 2", rows, err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

// TestR7_StalledFollowerCostsNobody has one follower that never returns from its callback
// while another gets everything and memory stays bounded.
func TestR7_StalledFollowerCostsNobody(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	j.Append("a", output("first"))
	flush(t, j, "a")
	release, stalled := make(chan struct{}), make(chan error, 1)
	total := 0
	go func() {
		stalled <- j.Read(t.Context(), Query{Sandbox: "a", Follow: true}, func(evs []Event, _ string) error {
			if total == 0 {
				<-release
			}
			if total += len(evs); total == 2001 {
				return errEnough
			}
			return nil
		})
	}()
	var seen atomic.Int64
	live := make(chan error, 1)
	go func() {
		live <- j.Read(t.Context(), Query{Sandbox: "a", Follow: true}, func(evs []Event, _ string) error {
			if seen.Add(int64(len(evs))) == 2001 {
				return errEnough
			}
			return nil
		})
	}()
	await.True(t, func() bool { return seen.Load() == 1 }, "the first event")
	chunk := make([]byte, 10000)
	for range 2000 {
		j.Append("a", Event{Body: &Output{Stream: Stdout, Data: chunk}})
		if n := j.queued(); n > wire.MaxJournalQueue {
			flush(t, j, "a")
		}
	}
	if err := <-live; !errors.Is(err, errEnough) {
		t.Error(err)
	}
	stream := j.lookup("a")
	stream.mu.Lock()
	if stream.tail.bytes > tailBytes+batchBytes {
		t.Errorf("%d bytes are kept in memory", stream.tail.bytes)
	}
	stream.mu.Unlock()
	close(release)
	if err := <-stalled; !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

func (j *Journal) queued() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.bytes
}

func TestR7_FiveHundredFollowers(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	j.Append("a", output("0"))
	flush(t, j, "a")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const events = 200
	var ready, done sync.WaitGroup
	failures := make(chan string, 500)
	for range 500 {
		ready.Add(1)
		done.Go(func() {
			seen := uint64(0)
			err := j.Read(t.Context(), Query{Sandbox: "a", Follow: true}, func(evs []Event, _ string) error {
				for i := range evs {
					if seen++; evs[i].Seq != seen {
						return fmt.Errorf("seq %d after %d", evs[i].Seq, seen-1)
					}
					if seen == 1 {
						ready.Done()
					}
				}
				if seen == events+1 {
					return errEnough
				}
				return nil
			})
			if !errors.Is(err, errEnough) {
				failures <- fmt.Sprint(err)
			}
		})
	}
	ready.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse); grown > 500*64<<10 {
		t.Errorf("500 followers take %d bytes", grown)
	}
	for i := range events {
		j.Append("a", output(fmt.Sprint(i)))
	}
	done.Wait()
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
}
