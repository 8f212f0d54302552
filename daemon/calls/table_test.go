package calls

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
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
	if !e.Cancel || !e.Wake.Equal(epoch.Add(10*time.Second)) {
		t.Errorf("cancel: %+v", e)
	}
	table.Disconnected("s")
	if e := table.Expire(epoch.Add(time.Minute), "a"); e.End != NoCause {
		t.Errorf("while disconnected: %+v", e)
	}
	ids, cancel, wake := table.Resume(epoch.Add(time.Minute), "s")
	if !slices.Equal(ids, []string{"a"}) || !slices.Equal(cancel, []string{"a"}) || !wake.Equal(epoch.Add(70*time.Second)) {
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
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		finish(id, 10)
	}
	if table.Finishes("s", "a") || !table.Finishes("s", "b") {
		t.Error("the count limit does not drop the oldest")
	}
	finish("e", 95)
	if table.Finished() != 1 || !table.Finishes("s", "e") {
		t.Errorf("%d kept after a large one", table.Finished())
	}
	reserve(t, table, Request{ID: "e", Sandbox: "s"}, Known)
	table.evict(epoch.Add(5 * time.Minute))
	if table.Finished() != 0 || table.bytes != 0 {
		t.Errorf("%d kept, %d bytes after their age", table.Finished(), table.bytes)
	}
}

// model is the table's promise in the plainest words: what happened to each id.
type model struct {
	request   Request
	accepted  bool
	sent      bool
	resumed   bool
	cancelled bool
	waiters   int
	lonely    time.Time
	deadline  time.Time
	outcome   string // empty = none
}

type machine struct {
	t     *rapid.T
	table *Table[string]
	now   time.Time
	calls map[string]*model
	n     int
}

func (m *machine) draw() (string, *model) {
	id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(m.t, "id")
	return id, m.calls[id]
}

// apply does what an effect asks for, and checks that it was right to ask.
func (m *machine) apply(id string, e Effect) {
	c := m.calls[id]
	if e == (Effect{}) {
		return
	}
	if c == nil || !c.accepted || c.outcome != "" {
		m.t.Fatalf("effect %+v for a call that is not open", e)
	}
	if e.Cancel {
		if !c.sent {
			m.t.Fatalf("cancel of a call that the runtime does not have")
		}
		c.cancelled = true
	}
	switch e.End {
	case Cancelled:
		if c.sent {
			m.t.Fatalf("a sent call ended as cancelled without the runtime's word")
		}
	case Deadline:
		if c.deadline.IsZero() || m.now.Before(c.deadline) {
			m.t.Fatalf("deadline too early")
		}
	case NotStopped:
		if !c.cancelled {
			m.t.Fatalf("gave up a cancel that was not asked for")
		}
	case NoCause:
		return
	}
	m.end(id, c)
}

func (m *machine) end(id string, c *model) {
	m.n++
	outcome := fmt.Sprint("own", m.n)
	if !m.table.End(m.now, id, outcome) {
		m.t.Fatalf("an open call could not be ended")
	}
	c.outcome = outcome
}

func (m *machine) reserve(*rapid.T) {
	id, c := m.draw()
	r := Request{ID: id, Sandbox: rapid.SampledFrom([]string{"s", "u"}).Draw(m.t, "sandbox"), Hash: rapid.SampledFrom([]string{"h", "i"}).Draw(m.t, "hash"), Named: rapid.Bool().Draw(m.t, "named")}
	got, outcome := m.table.Reserve(m.now, r)
	want := New
	switch {
	case c == nil:
		m.calls[id] = &model{request: r, waiters: 1}
	case c.request.Sandbox != r.Sandbox || c.request.Hash != r.Hash:
		want = Conflict
	case c.outcome != "":
		want = Known
		if outcome != c.outcome {
			m.t.Fatalf("outcome %q, want %q", outcome, c.outcome)
		}
	default:
		want = Joined
		c.waiters++
		c.lonely = time.Time{}
	}
	if got != want {
		m.t.Fatalf("Reserve = %v, want %v", got, want)
	}
}

func (m *machine) accept(*rapid.T) {
	id, c := m.draw()
	timeout := time.Duration(rapid.IntRange(0, 3).Draw(m.t, "timeout")) * 20 * time.Second
	open := c != nil && !c.accepted
	if open {
		c.accepted = true
		if timeout > 0 {
			c.deadline = m.now.Add(timeout)
		}
	}
	e := m.table.Accept(m.now, id, timeout)
	if !open && e != (Effect{}) {
		m.t.Fatalf("accept of a call that is not reserved: %+v", e)
	}
	m.apply(id, e)
}

func (m *machine) reject(*rapid.T) {
	id, c := m.draw()
	m.table.Reject(id)
	if c != nil && !c.accepted {
		delete(m.calls, id)
	}
}

func (m *machine) send(*rapid.T) {
	id, c := m.draw()
	want := c != nil && c.accepted && !c.sent && c.outcome == ""
	if got := m.table.Send(id); got != want {
		m.t.Fatalf("Send = %v, want %v", got, want)
	}
	if want {
		c.sent = true
	}
}

func (m *machine) unsend(*rapid.T) {
	id, c := m.draw()
	want := c != nil && c.sent && !c.resumed && c.outcome == ""
	e, got := m.table.Unsend(m.now, id)
	if got != want {
		m.t.Fatalf("Unsend = %v, want %v", got, want)
	}
	if want {
		c.sent = false
	}
	m.apply(id, e)
}

func (m *machine) resume(*rapid.T) {
	ids, cancel, _ := m.table.Resume(m.now, "s")
	for id, c := range m.calls {
		want := c.request.Sandbox == "s" && c.sent && c.outcome == ""
		if slices.Contains(ids, id) != want || slices.Contains(cancel, id) != (want && c.cancelled) {
			m.t.Fatalf("Resume = %v %v, want %q there: %v", ids, cancel, id, want)
		}
		c.resumed = c.resumed || want
	}
}

func (m *machine) answer(*rapid.T) {
	id, c := m.draw()
	sandbox := rapid.SampledFrom([]string{"s", "u"}).Draw(m.t, "sandbox")
	m.n++
	outcome := fmt.Sprint("answer", m.n)
	want := c != nil && c.request.Sandbox == sandbox && c.sent && c.outcome == ""
	if got := m.table.Answer(m.now, sandbox, id, outcome, 1); got != want {
		m.t.Fatalf("Answer = %v, want %v", got, want)
	}
	if want {
		c.outcome = outcome
	}
}

func (m *machine) lose(*rapid.T) {
	for _, id := range m.table.Pending("u") {
		c := m.calls[id]
		if c == nil || c.request.Sandbox != "u" || !c.accepted || c.outcome != "" {
			m.t.Fatalf("%q is not pending", id)
		}
		m.end(id, c)
	}
}

func (m *machine) leave(*rapid.T) {
	id, c := m.draw()
	e := m.table.Leave(m.now, id)
	if c == nil || c.outcome != "" || c.waiters == 0 {
		if e != (Effect{}) {
			m.t.Fatalf("leave without a waiter: %+v", e)
		}
		return
	}
	c.waiters--
	if c.waiters == 0 {
		c.lonely = m.now
	}
	m.apply(id, e)
}

func (m *machine) tick(*rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(m.t, "seconds")) * time.Second)
	for id, c := range m.calls {
		if c.outcome == "" {
			m.apply(id, m.table.Expire(m.now, id))
		}
	}
}

// check holds after every step: nothing that is due was left undone.
func (m *machine) check(*rapid.T) {
	open := 0
	for id, c := range m.calls {
		if c.outcome != "" {
			if !m.table.Finishes(c.request.Sandbox, id) {
				m.t.Fatalf("outcome of %q is lost", id)
			}
			continue
		}
		open++
		if !c.accepted || c.waiters > 0 || c.lonely.IsZero() {
			continue
		}
		alone := m.now.Sub(c.lonely)
		late := !c.request.Named || alone >= 30*time.Second
		if late && !c.cancelled {
			m.t.Fatalf("%q goes on without a waiter for %s, named %v", id, alone, c.request.Named)
		}
	}
	if open != m.table.Open() {
		m.t.Fatalf("%d open, want %d", m.table.Open(), open)
	}
}

func TestR1_TableAgainstModel(t *testing.T) {
	limits := DefaultLimits
	limits.FinishedAge = 1000 * time.Hour
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, table: NewTable[string](limits), now: epoch, calls: map[string]*model{}}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": m.reserve, "accept": m.accept, "reject": m.reject, "send": m.send, "unsend": m.unsend,
			"resume": m.resume, "answer": m.answer, "lose": m.lose, "leave": m.leave, "tick": m.tick, "": m.check,
		})
	})
}
