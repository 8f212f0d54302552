// Package calls is the table of calls: which are known, who waits for them, and the one
// outcome of each. It is a pure state machine: no I/O, no goroutines, no clock and no lock;
// package dispatch feeds it and does what it says.
package calls

import "time"

// Verdict is what became of a request.
type Verdict uint8

// The verdicts.
const (
	New      Verdict = iota // reserved: the caller has to accept or reject it
	Joined                  // the same request is known and not finished
	Known                   // the same request is finished; its outcome is there
	Conflict                // the id belongs to a different request
	Full                    // too many calls are open
)

// Limits bound a Table.
type Limits struct {
	Open          int           // calls without an outcome
	Finished      int           // calls with an outcome
	FinishedBytes int           // of outcomes, as told to Answer and End
	FinishedAge   time.Duration // how long an outcome is kept
	OrphanGrace   time.Duration // how long a named call may be without a waiter
	CancelGrace   time.Duration // how long a connected runtime may take to confirm a cancel
}

// DefaultLimits are those of a daemon.
var DefaultLimits = Limits{
	Open:          100000,   // wire.MaxCallIDs: all fit one resume
	Finished:      10000,    //
	FinishedBytes: 67108864, // 64 MiB
	FinishedAge:   5 * time.Minute,
	OrphanGrace:   30 * time.Second,
	CancelGrace:   80 * time.Millisecond, // so that who cancels is answered within 100 ms
}

// Request is what a call is known by.
type Request struct {
	ID        string
	Sandbox   string
	Hash      string // of the request; the same id with another hash is a conflict
	Named     bool   // somebody may ask for it by its id, so the call may outlive its waiters
	Submitted bool   // it goes on without a waiter; who asks for it does not wait
}

// Effect is what the caller of the table has to do.
type Effect struct {
	Cancel bool      // ask the runtime to cancel
	End    Cause     // end the call with the outcome for this cause
	Wake   time.Time // call Expire at this time, if not zero
}

// Cause is why the table wants a call ended.
type Cause uint8

// The causes.
const (
	NoCause    Cause = iota
	Cancelled        // cancelled before it was sent
	Deadline         // its timeout ran out
	NotStopped       // the runtime did not confirm a cancel in time
)

// state of a call.
type state uint8

const (
	reserved state = iota // being written to the store
	accepted              // written, surely not sent
	sent                  // handed to a connection: the runtime may have it
	finished
)

type entry[O any] struct {
	Request
	state      state
	waiters    int
	deadline   time.Time // zero = none
	orphaned   time.Time // since when a named call has no waiter; zero = it has
	cancelling bool      // a cancel was asked for
	confirmBy  time.Time // when a cancel that reached a connection must be confirmed
	resumed    bool      // its id was part of a resume: it must not be sent any more
	outcome    O
	size       int
	finishedAt time.Time
	settled    bool // the outcome may be dropped
}

// Table is the calls of a daemon. O is an outcome.
type Table[O any] struct {
	limits Limits
	calls  map[string]*entry[O]
	open   int
	done   []*entry[O] // finished and settled, in the order of that
	bytes  int
}

// NewTable returns an empty table.
func NewTable[O any](limits Limits) *Table[O] {
	return &Table[O]{limits: limits, calls: map[string]*entry[O]{}}
}

// Open is how many calls have no outcome yet, Finished how many are kept with theirs.
func (t *Table[O]) Open() int { return t.open }

// Finished is how many settled outcomes are kept.
func (t *Table[O]) Finished() int { return len(t.done) }

// Reserve takes a request. New, Joined: the caller is one more waiter of the call, or, if it
// submits, the call needs none from now on. Known: the outcome is returned too.
func (t *Table[O]) Reserve(now time.Time, r Request) (Verdict, O) {
	var none O
	t.evict(now)
	e, found := t.calls[r.ID]
	switch {
	case !found && t.open >= t.limits.Open:
		return Full, none
	case !found:
		t.open++
		e = &entry[O]{Request: r}
		t.calls[r.ID] = e
		e.join(r.Submitted)
		return New, none
	case e.Sandbox != r.Sandbox || e.Hash != r.Hash:
		return Conflict, none
	case e.state == finished:
		return Known, e.outcome
	}
	e.join(r.Submitted)
	return Joined, none
}

func (e *entry[O]) join(submitted bool) {
	if submitted {
		e.Submitted = true
	} else {
		e.waiters++
	}
	e.orphaned = time.Time{}
}

// Wait makes the caller one more waiter of an accepted call without an outcome; false if
// there is none of this id in the sandbox.
func (t *Table[O]) Wait(sandbox, id string) bool {
	e := t.calls[id]
	if e == nil || e.Sandbox != sandbox || e.state == reserved || e.state == finished {
		return false
	}
	e.join(false)
	return true
}

// Waiters is how many wait for a call.
func (t *Table[O]) Waiters(id string) int {
	if e := t.calls[id]; e != nil {
		return e.waiters
	}
	return 0
}

// Outcome is the outcome of a call, if it has one that is kept.
func (t *Table[O]) Outcome(sandbox, id string) (O, bool) {
	if e := t.calls[id]; e != nil && e.Sandbox == sandbox && e.state == finished {
		return e.outcome, true
	}
	var none O
	return none, false
}

// Reject forgets a reserved call: it was not written, so it does not exist.
func (t *Table[O]) Reject(id string) {
	if e := t.calls[id]; e != nil && e.state == reserved {
		delete(t.calls, id)
		t.open--
	}
}

// Accept marks a reserved call as written; timeout 0 = none.
func (t *Table[O]) Accept(now time.Time, id string, timeout time.Duration) Effect {
	e := t.calls[id]
	if e == nil || e.state != reserved {
		return Effect{}
	}
	e.state = accepted
	if timeout > 0 {
		e.deadline = now.Add(timeout)
	}
	return t.react(now, e)
}

// Restore adds a call that an earlier daemon accepted; timeout is what is left of its time,
// 0 = no limit. Whether it was sent is unknown, and nobody waits for it now.
func (t *Table[O]) Restore(now time.Time, r Request, timeout time.Duration) Effect {
	if t.calls[r.ID] != nil {
		return Effect{}
	}
	r.Named = true
	e := &entry[O]{Request: r, state: sent}
	if !r.Submitted {
		e.orphaned = now
	}
	if timeout > 0 {
		e.deadline = now.Add(timeout)
	}
	t.calls[r.ID] = e
	t.open++
	return t.react(now, e)
}

// Send marks an accepted call as handed to a connection; false means that it must not be sent.
func (t *Table[O]) Send(id string) bool {
	e := t.calls[id]
	if e == nil || e.state != accepted || e.cancelling {
		return false
	}
	e.state = sent
	return true
}

// Unsend takes Send back: the call surely was not sent. False means that it must not be
// sent again: it is finished, or a resume asked for it and the runtime will answer.
func (t *Table[O]) Unsend(now time.Time, id string) (Effect, bool) {
	e := t.calls[id]
	if e == nil || e.state != sent || e.resumed {
		return Effect{}, false
	}
	e.state = accepted
	return t.react(now, e), true
}

// Missed takes Send back after a resume: the runtime told that the call never came to it.
// False means that it is finished.
func (t *Table[O]) Missed(now time.Time, id string) (Effect, bool) {
	e := t.calls[id]
	if e == nil || e.state != sent {
		return Effect{}, false
	}
	e.state, e.resumed, e.confirmBy = accepted, false, time.Time{}
	return t.react(now, e), true
}

// Resume returns the calls of a sandbox whose outcome a new connection has to ask for, and
// those of them that it then has to cancel.
func (t *Table[O]) Resume(now time.Time, sandbox string) (ids, cancel []string, wake time.Time) {
	for id, e := range t.calls {
		if e.Sandbox != sandbox || e.state != sent {
			continue
		}
		e.resumed = true
		ids = append(ids, id)
		if e.cancelling {
			cancel = append(cancel, id)
			e.confirmBy = now.Add(t.limits.CancelGrace)
			wake = e.confirmBy
		}
	}
	return ids, cancel, wake
}

// Disconnected stops the clock of the cancels of a sandbox: nobody can confirm them now.
func (t *Table[O]) Disconnected(sandbox string) {
	for _, e := range t.calls {
		if e.Sandbox == sandbox && e.state == sent {
			e.confirmBy = time.Time{}
		}
	}
}

// Answer is the outcome that the runtime of a sandbox gave. It counts only for a call of
// that sandbox that was sent and has no outcome yet; size is what it weighs in memory.
func (t *Table[O]) Answer(now time.Time, sandbox, id string, o O, size int) bool {
	e := t.calls[id]
	if e == nil || e.Sandbox != sandbox || e.state != sent {
		return false
	}
	t.finish(now, e, o, size)
	return true
}

// End gives an accepted call an outcome of the daemon's own; false if it has one already.
func (t *Table[O]) End(now time.Time, id string, o O) bool {
	e := t.calls[id]
	if e == nil || e.state == reserved || e.state == finished {
		return false
	}
	t.finish(now, e, o, 0)
	return true
}

func (t *Table[O]) finish(now time.Time, e *entry[O], o O, size int) {
	e.state, e.outcome, e.size, e.finishedAt = finished, o, size, now
	t.open--
}

// Settle tells that the outcome of a call is kept elsewhere, or that nobody will ask for it:
// from now on the limits apply to it. Until then it is kept, so that the call is known.
func (t *Table[O]) Settle(now time.Time, id string) {
	e := t.calls[id]
	if e == nil || e.state != finished || e.settled {
		return
	}
	e.settled = true
	t.done = append(t.done, e)
	t.bytes += e.size
	t.evict(now)
}

// evict drops settled outcomes over the limits, oldest first.
func (t *Table[O]) evict(now time.Time) {
	for len(t.done) > 0 {
		e := t.done[0]
		old := now.Sub(e.finishedAt) >= t.limits.FinishedAge
		if !old && len(t.done) <= t.limits.Finished && t.bytes <= t.limits.FinishedBytes {
			return
		}
		t.done[0] = nil
		t.done = t.done[1:]
		t.bytes -= e.size
		delete(t.calls, e.ID)
	}
}

// Finishes reports whether id is known and has its outcome.
func (t *Table[O]) Finishes(sandbox, id string) bool {
	e := t.calls[id]
	return e != nil && e.Sandbox == sandbox && e.state == finished
}

// Pending returns the accepted calls of a sandbox without an outcome.
func (t *Table[O]) Pending(sandbox string) []string {
	var ids []string
	for id, e := range t.calls {
		if e.Sandbox == sandbox && (e.state == accepted || e.state == sent) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Leave takes one waiter away. Without a name, a call is cancelled when the last one
// leaves; with one it may be without a waiter for OrphanGrace. A submitted call goes on.
func (t *Table[O]) Leave(now time.Time, id string) Effect {
	e := t.calls[id]
	if e == nil || e.state == finished || e.waiters == 0 {
		return Effect{}
	}
	e.waiters--
	if e.waiters == 0 && !e.Submitted {
		e.orphaned = now
	}
	return t.react(now, e)
}

// Cancel asks for the end of a call.
func (t *Table[O]) Cancel(now time.Time, id string) Effect {
	e := t.calls[id]
	if e == nil || e.state == finished {
		return Effect{}
	}
	return t.cancel(now, e)
}

// Expire looks at what has become due for a call.
func (t *Table[O]) Expire(now time.Time, id string) Effect {
	e := t.calls[id]
	if e == nil {
		return Effect{}
	}
	return t.react(now, e)
}

// react says what is due for e now, and when something will be.
func (t *Table[O]) react(now time.Time, e *entry[O]) Effect {
	if e.state == reserved || e.state == finished {
		return Effect{}
	}
	if due(now, e.deadline) {
		return Effect{End: Deadline, Cancel: e.state == sent}
	}
	if due(now, e.confirmBy) {
		return Effect{End: NotStopped}
	}
	if e.cancelling {
		return t.cancel(now, e)
	}
	var orphanEnd time.Time
	if !e.orphaned.IsZero() {
		orphanEnd = e.orphaned
		if e.Named {
			orphanEnd = orphanEnd.Add(t.limits.OrphanGrace)
		}
	}
	if due(now, orphanEnd) {
		return t.cancel(now, e)
	}
	return Effect{Wake: earliest(e.deadline, orphanEnd)}
}

// cancel notes the wish and says what follows from it.
func (t *Table[O]) cancel(now time.Time, e *entry[O]) Effect {
	first := !e.cancelling
	e.cancelling = true
	switch e.state {
	case accepted:
		return Effect{End: Cancelled}
	case sent:
		if first {
			e.confirmBy = now.Add(t.limits.CancelGrace)
		}
		return Effect{Cancel: first, Wake: earliest(e.deadline, e.confirmBy)}
	case reserved, finished: // Accept will see the wish; the finished call is over
	}
	return Effect{}
}

func due(now, at time.Time) bool { return !at.IsZero() && !now.Before(at) }

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
