package calls

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newTable() *Table[string] {
	l := DefaultLimits
	l.Open, l.Finished, l.FinishedBytes = 4, 3, 100
	return NewTable[string](l)
}

func reserve(t *testing.T, table *Table[string], r Request, want Verdict) string {
	t.Helper()
	got, outcome := table.Reserve(epoch, r)
	if got != want {
		t.Fatalf("Reserve(%+v) = %v, want %v", r, got, want)
	}
	return outcome
}

func TestJoinConflictAndKnown(t *testing.T) {
	table := newTable()
	r := Request{ID: "a", Sandbox: "s", Hash: "h", Named: true}
	reserve(t, table, r, New)
	reserve(t, table, r, Joined)
	reserve(t, table, Request{ID: "a", Sandbox: "s", Hash: "other"}, Conflict)
	reserve(t, table, Request{ID: "a", Sandbox: "other", Hash: "h"}, Conflict)
	table.Accept(epoch, "a", 0)
	if table.Answer(epoch, "s", "a", "early", 0) {
		t.Error("an answer to a call that was not sent counted")
	}
	table.Send("a")
	if table.Answer(epoch, "other", "a", "foreign", 0) {
		t.Error("an answer of another sandbox counted")
	}
	if !table.Answer(epoch, "s", "a", "first", 5) || table.Answer(epoch, "s", "a", "second", 5) || table.End(epoch, "a", "third") {
		t.Error("not exactly the first outcome counted")
	}
	if got := reserve(t, table, r, Known); got != "first" {
		t.Errorf("outcome %q", got)
	}
}

func TestRejectedCallDoesNotExist(t *testing.T) {
	table := newTable()
	r := Request{ID: "a", Sandbox: "s", Hash: "h"}
	reserve(t, table, r, New)
	table.Reject("a")
	reserve(t, table, Request{ID: "a", Sandbox: "s", Hash: "other"}, New)
}

func TestFull(t *testing.T) {
	table := newTable()
	for n := range 4 {
		reserve(t, table, Request{ID: fmt.Sprint(n), Sandbox: "s"}, New)
	}
	reserve(t, table, Request{ID: "5", Sandbox: "s"}, Full)
	table.Reject("0")
	reserve(t, table, Request{ID: "5", Sandbox: "s"}, New)
}

// sentCall makes a call that the runtime has.
func sentCall(t *testing.T, table *Table[string], r Request, timeout time.Duration) {
	t.Helper()
	reserve(t, table, r, New)
	table.Accept(epoch, r.ID, timeout)
	if !table.Send(r.ID) {
		t.Fatal("cannot send")
	}
}

func TestLeaving(t *testing.T) {
	t.Run("unnamed is cancelled by the last waiter", func(t *testing.T) {
		table := newTable()
		r := Request{ID: "a", Sandbox: "s"}
		sentCall(t, table, r, 0)
		reserve(t, table, r, Joined)
		if e := table.Leave(epoch, "a"); e != (Effect{}) {
			t.Errorf("first of two: %+v", e)
		}
		if e := table.Leave(epoch, "a"); !e.Cancel || e.End != NoCause {
			t.Errorf("last: %+v", e)
		}
	})
	t.Run("unsent ends at once", func(t *testing.T) {
		table := newTable()
		reserve(t, table, Request{ID: "a", Sandbox: "s"}, New)
		table.Accept(epoch, "a", 0)
		if e := table.Leave(epoch, "a"); e.End != Cancelled || e.Cancel {
			t.Errorf("got %+v", e)
		}
		if table.Send("a") {
			t.Error("a cancelled call may be sent")
		}
	})
	t.Run("named has its grace, and a new waiter stops it", func(t *testing.T) {
		table := newTable()
		r := Request{ID: "a", Sandbox: "s", Named: true}
		sentCall(t, table, r, 0)
		if e := table.Leave(epoch, "a"); e.Cancel || !e.Wake.Equal(epoch.Add(30*time.Second)) {
			t.Errorf("leave: %+v", e)
		}
		reserve(t, table, r, Joined)
		if e := table.Expire(epoch.Add(31*time.Second), "a"); e != (Effect{}) {
			t.Errorf("with a waiter: %+v", e)
		}
		table.Leave(epoch.Add(40*time.Second), "a")
		if e := table.Expire(epoch.Add(69*time.Second), "a"); e.Cancel {
			t.Errorf("before the grace is over: %+v", e)
		}
		if e := table.Expire(epoch.Add(70*time.Second), "a"); !e.Cancel {
			t.Errorf("after the grace: %+v", e)
		}
	})
}

func TestTimeout(t *testing.T) {
	table := newTable()
	sentCall(t, table, Request{ID: "a", Sandbox: "s", Named: true}, time.Second)
	if e := table.Expire(epoch.Add(999*time.Millisecond), "a"); e.End != NoCause || !e.Wake.Equal(epoch.Add(time.Second)) {
		t.Errorf("early: %+v", e)
	}
	if e := table.Expire(epoch.Add(time.Second), "a"); e.End != Deadline || !e.Cancel {
		t.Errorf("due: %+v", e)
	}
}

func TestUnconfirmedCancelEnds(t *testing.T) {
	table := newTable()
	sentCall(t, table, Request{ID: "a", Sandbox: "s", Named: true}, 0)
	e := table.Cancel(epoch, "a")
	if !e.Cancel || !e.Wake.Equal(epoch.Add(80*time.Millisecond)) {
		t.Errorf("cancel: %+v", e)
	}
	table.Disconnected("s")
	if e := table.Expire(epoch.Add(time.Minute), "a"); e.End != NoCause {
		t.Errorf("while disconnected: %+v", e)
	}
	ids, cancel, wake := table.Resume(epoch.Add(time.Minute), "s")
	if !slices.Equal(ids, []string{"a"}) || !slices.Equal(cancel, []string{"a"}) || !wake.Equal(epoch.Add(time.Minute+80*time.Millisecond)) {
		t.Errorf("resume: %v %v %v", ids, cancel, wake)
	}
	if e := table.Expire(wake, "a"); e.End != NotStopped {
		t.Errorf("unconfirmed: %+v", e)
	}
}

func TestResumedCallIsNeverSentAgain(t *testing.T) {
	table := newTable()
	sentCall(t, table, Request{ID: "a", Sandbox: "s", Named: true}, 0)
	sentCall(t, table, Request{ID: "b", Sandbox: "s", Named: true}, 0)
	if _, ok := table.Unsend(epoch, "b"); !ok {
		t.Error("unsent call cannot be taken back")
	}
	if ids, _, _ := table.Resume(epoch, "s"); !slices.Equal(ids, []string{"a"}) {
		t.Errorf("resumed %v", ids)
	}
	if _, ok := table.Unsend(epoch, "a"); ok || table.Send("a") {
		t.Error("a resumed call may be sent again")
	}
	if !table.Send("b") {
		t.Error("the unsent call cannot be sent")
	}
}

func TestEviction(t *testing.T) {
	table := newTable()
	finish := func(id string, size int) {
		sentCall(t, table, Request{ID: id, Sandbox: "s"}, 0)
		table.Answer(epoch, "s", id, id, size)
		table.Settle(epoch, id)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		finish(id, 10)
	}
	if table.Finishes("s", "a") || !table.Finishes("s", "b") {
		t.Error("the count limit does not drop the oldest")
	}
	sentCall(t, table, Request{ID: "unsettled", Sandbox: "s"}, 0)
	table.Answer(epoch, "s", "unsettled", "u", 1000)
	finish("e", 95)
	if table.Finished() != 1 || !table.Finishes("s", "e") {
		t.Errorf("%d kept after a large one", table.Finished())
	}
	reserve(t, table, Request{ID: "e", Sandbox: "s"}, Known)
	table.evict(epoch.Add(5 * time.Minute))
	if got, ok := table.Outcome("s", "unsettled"); !ok || got != "u" {
		t.Errorf("the outcome that is not settled: %q, %v", got, ok)
	}
	table.Settle(epoch, "unsettled")
	if table.Finished() != 0 || table.bytes != 0 {
		t.Errorf("%d kept, %d bytes after their age", table.Finished(), table.bytes)
	}
}

func TestSubmitted(t *testing.T) {
	r := Request{ID: "a", Sandbox: "s", Hash: "h", Named: true}
	submitted := r
	submitted.Submitted = true
	t.Run("goes on without a waiter", func(t *testing.T) {
		table := newTable()
		sentCall(t, table, submitted, 0)
		reserve(t, table, r, Joined)
		if e := table.Leave(epoch, "a"); e != (Effect{}) {
			t.Errorf("the one waiter left: %+v", e)
		}
		if e := table.Expire(epoch.Add(time.Hour), "a"); e != (Effect{}) {
			t.Errorf("an hour later: %+v", e)
		}
		if e := table.Cancel(epoch, "a"); !e.Cancel {
			t.Errorf("cancel: %+v", e)
		}
	})
	t.Run("so does a call that is submitted once more", func(t *testing.T) {
		table := newTable()
		sentCall(t, table, r, 0)
		table.Leave(epoch, "a")
		reserve(t, table, submitted, Joined)
		if e := table.Expire(epoch.Add(time.Hour), "a"); e != (Effect{}) {
			t.Errorf("an hour later: %+v", e)
		}
	})
	t.Run("and one of an earlier daemon, for its time", func(t *testing.T) {
		table := newTable()
		if e := table.Restore(epoch, submitted, time.Minute); e != (Effect{Wake: epoch.Add(time.Minute)}) {
			t.Errorf("restored: %+v", e)
		}
		if e := table.Expire(epoch.Add(time.Minute), "a"); e.End != Deadline {
			t.Errorf("a minute later: %+v", e)
		}
	})
}

func TestWaitingKeepsACall(t *testing.T) {
	table := newTable()
	r := Request{ID: "a", Sandbox: "s", Hash: "h", Named: true}
	if table.Wait("s", "a") {
		t.Error("waits for an unknown call")
	}
	reserve(t, table, r, New)
	if table.Wait("s", "a") {
		t.Error("waits for a call that is not accepted")
	}
	table.Accept(epoch, "a", 0)
	table.Send("a")
	if table.Wait("other", "a") || !table.Wait("s", "a") {
		t.Error("waits in the wrong sandbox, or not in the right one")
	}
	table.Leave(epoch, "a")
	if e := table.Expire(epoch.Add(time.Minute), "a"); e != (Effect{}) {
		t.Errorf("with a waiter: %+v", e)
	}
	if e := table.Leave(epoch.Add(time.Minute), "a"); !e.Wake.Equal(epoch.Add(90 * time.Second)) {
		t.Errorf("without: %+v", e)
	}
}
