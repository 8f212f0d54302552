package calls

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is the table's promise in the plainest words: what happened to each id.
type model struct {
	request   Request
	accepted  bool
	sent      bool
	resumed   bool
	wanted    bool // someone asked for the end
	cancelled bool // the runtime was asked for it
	waiters   int
	lonely    time.Time
	deadline  time.Time
	outcome   string // empty = none
	settled   bool
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
	if (e.Cancel && e.End == NoCause || e.End == Cancelled) && !c.wanted && !m.deserted(c) {
		m.t.Fatalf("effect %+v for a call that has a waiter or its grace", e)
	}
	if e.Cancel {
		if !c.sent {
			m.t.Fatalf("cancel of a call that the runtime does not have")
		}
		c.cancelled, c.wanted = true, true // whoever comes now comes too late
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

// deserted reports whether a call may be cancelled for want of a waiter.
func (m *machine) deserted(c *model) bool {
	return !c.request.Submitted && c.waiters == 0 && !c.lonely.IsZero() && (!c.request.Named || m.now.Sub(c.lonely) >= 30*time.Second)
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
	r := Request{ID: id, Sandbox: rapid.SampledFrom([]string{"s", "u"}).Draw(m.t, "sandbox"), Hash: rapid.SampledFrom([]string{"h", "i"}).Draw(m.t, "hash"), Named: rapid.Bool().Draw(m.t, "named"), Submitted: rapid.IntRange(0, 3).Draw(m.t, "submitted") == 0}
	got, outcome := m.table.Reserve(m.now, r)
	want := New
	switch {
	case c == nil:
		c = &model{request: r}
		m.calls[id] = c
		c.join(r.Submitted)
	case c.request.Sandbox != r.Sandbox || c.request.Hash != r.Hash:
		want = Conflict
	case c.outcome != "":
		want = Known
		if outcome != c.outcome {
			m.t.Fatalf("outcome %q, want %q", outcome, c.outcome)
		}
	default:
		want = Joined
		c.join(r.Submitted)
	}
	if got != want {
		m.t.Fatalf("Reserve = %v, want %v", got, want)
	}
}

func (c *model) join(submitted bool) {
	if submitted {
		c.request.Submitted = true
	} else {
		c.waiters++
	}
	c.lonely = time.Time{}
}

func (m *machine) wait(*rapid.T) {
	id, c := m.draw()
	sandbox := rapid.SampledFrom([]string{"s", "u"}).Draw(m.t, "sandbox")
	want := c != nil && c.request.Sandbox == sandbox && c.accepted && c.outcome == ""
	if got := m.table.Wait(sandbox, id); got != want {
		m.t.Fatalf("Wait = %v, want %v", got, want)
	}
	if want {
		c.join(false)
	}
}

// settle lets the table drop an outcome. Its limits are such that it does so by age only.
func (m *machine) settle(*rapid.T) {
	id, c := m.draw()
	m.table.Settle(m.now, id)
	if c != nil && c.outcome != "" {
		c.settled = true
	}
}

// restart is a daemon that was killed: of the calls it knows those that were accepted and
// have no outcome, each with its rest of time, and nobody waits.
func (m *machine) restart(*rapid.T) {
	m.table = NewTable[string](m.table.limits)
	for id, c := range m.calls {
		if !c.accepted || c.outcome != "" {
			delete(m.calls, id)
			continue
		}
		left := time.Duration(0)
		if !c.deadline.IsZero() {
			left = max(1, c.deadline.Sub(m.now))
			c.deadline = m.now.Add(left)
		}
		c.request.Named, c.sent, c.resumed, c.wanted, c.cancelled, c.waiters = true, true, false, false, false, 0
		c.lonely = time.Time{}
		if !c.request.Submitted {
			c.lonely = m.now
		}
		m.apply(id, m.table.Restore(m.now, c.request, left))
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

func (m *machine) missed(*rapid.T) {
	id, c := m.draw()
	want := c != nil && c.sent && c.outcome == ""
	e, got := m.table.Missed(m.now, id)
	if got != want {
		m.t.Fatalf("Missed = %v, want %v", got, want)
	}
	if want {
		c.sent, c.resumed = false, false
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

func (m *machine) cancel(*rapid.T) {
	id, c := m.draw()
	if c != nil && c.outcome == "" {
		c.wanted = true
	}
	m.apply(id, m.table.Cancel(m.now, id))
}

func (m *machine) endAny(*rapid.T) {
	id, c := m.draw()
	if c != nil && c.accepted && c.outcome == "" {
		m.end(id, c)
		return
	}
	if m.table.End(m.now, id, "second") {
		m.t.Fatalf("%q got an outcome although it is not open", id)
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
	if c.waiters == 0 && !c.request.Submitted {
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
			if got, ok := m.table.Outcome(c.request.Sandbox, id); !ok || got != c.outcome {
				m.t.Fatalf("outcome of %q is %q, want %q", id, got, c.outcome)
			}
			if _, foreign := m.table.Outcome("other", id); foreign {
				m.t.Fatalf("outcome of %q in another sandbox", id)
			}
			continue
		}
		open++
		if !c.accepted || c.waiters > 0 || c.lonely.IsZero() {
			continue
		}
		if m.deserted(c) && !c.cancelled {
			m.t.Fatalf("%q goes on without a waiter since %s, named %v", id, c.lonely, c.request.Named)
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
			"reserve": m.reserve, "accept": m.accept, "reject": m.reject, "send": m.send, "unsend": m.unsend, "missed": m.missed,
			"resume": m.resume, "answer": m.answer, "cancel": m.cancel, "end": m.endAny, "lose": m.lose, "leave": m.leave, "tick": m.tick,
			"wait": m.wait, "settle": m.settle, "restart": m.restart, "": m.check,
		})
	})
}
