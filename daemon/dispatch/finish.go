package dispatch

import (
	"strings"
	"time"

	"github.com/agentixd/agentixd/daemon/calls"
	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/runtime/wire"
)

const (
	maxEventText = 4096 // 4 KiB: error text of a FINISHED event
	maxErrorType = 256
)

// apply does what the table asks for.
func (d *Dispatcher) apply(p *pending, e calls.Effect) {
	id := p.request.ID
	if e.Cancel {
		d.inject("call/onCancel", id)
		if l := d.linkOf(p.request.Sandbox); l != nil {
			l.Cancel(id)
		}
	}
	switch e.End {
	case calls.Cancelled:
		o := failed(id, wire.ErrCancelled, "the call was cancelled before it was sent")
		o.Error.Cancelled = true
		d.end(p, o)
	case calls.Deadline:
		d.end(p, failed(id, wire.ErrDeadlineExceeded, "the timeout of the call ran out"))
	case calls.NotStopped:
		o := failed(id, wire.ErrCancelled, "the call was cancelled, but the runtime did not confirm it")
		o.Error.Cancelled = true
		d.end(p, o)
	case calls.NoCause:
	}
	d.wakeAt(p, e.Wake)
}

// wakeAt looks at a call again at this time, or earlier: each look says when the next is due.
func (d *Dispatcher) wakeAt(p *pending, at time.Time) {
	if at.IsZero() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.pending[p.request.ID] != p || (!p.wake.IsZero() && !p.wake.After(at)) {
		return
	}
	p.stopTimer()
	p.wake = at
	p.stop = d.opts.Clock.AfterFunc(at.Sub(d.opts.Clock.Now()), func() { d.look(p, at) })
}

func (d *Dispatcher) look(p *pending, at time.Time) {
	d.mu.Lock()
	if d.closed || d.pending[p.request.ID] != p || !p.wake.Equal(at) {
		d.mu.Unlock()
		return
	}
	p.wake = time.Time{}
	effect := d.table.Expire(d.opts.Clock.Now(), p.request.ID)
	d.mu.Unlock()
	d.apply(p, effect)
}

// stopTimer is called with Dispatcher.mu held.
func (p *pending) stopTimer() {
	if !p.wake.IsZero() {
		p.stop()
		p.wake = time.Time{}
	}
}

// end gives a call an outcome of the daemon's own, unless it has one.
func (d *Dispatcher) end(p *pending, o Outcome) {
	d.mu.Lock()
	now := d.opts.Clock.Now()
	won := d.table.End(now, p.request.ID, p.ended(o, now))
	if won {
		d.noteStill(p, o, now, true)
	}
	d.mu.Unlock()
	if won {
		d.finish(p, o, now)
	}
}

// answer takes an outcome from the runtime of a sandbox, failure being its error, if any. It
// counts if the table says so.
func (d *Dispatcher) answer(r *receiver, id string, failure *wire.Error, read func(want string) Outcome) {
	d.mu.Lock()
	p := d.pending[id]
	if d.receivers[r.sandbox] != r || p == nil || p.request.Sandbox != r.sandbox {
		current := d.receivers[r.sandbox] == r
		over := current && d.table.Finishes(r.sandbox, id)
		if current {
			d.still.answered(r.sandbox, id, failure)
		}
		d.mu.Unlock()
		if l := r.bound(); over && l != nil {
			l.AckResult(id) // late, but the runtime need not keep it
		}
		return
	}
	want := p.want
	d.mu.Unlock()
	o := read(want)
	d.mu.Lock()
	now := d.opts.Clock.Now()
	won := d.table.Answer(now, r.sandbox, id, p.ended(o, now), o.weight())
	if won {
		d.noteStill(p, o, now, false)
	}
	d.mu.Unlock()
	if won {
		d.finish(p, o, now)
	}
}

func finishedEvent(p *pending, o Outcome, now time.Time) events.Event {
	body := &events.Call{Phase: events.CallFinished, Callable: p.callable}
	if o.Error != nil {
		body.ErrorType, body.ErrorMessage = clip(o.Error.Type, maxErrorType), clip(o.Error.Message, maxEventText)
	}
	return events.Event{Time: now, Sandbox: p.request.Sandbox, CallID: p.request.ID, Body: body}
}

// clip makes text of the sandbox fit for an event: valid UTF-8 of at most n bytes.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// pruneLocked forgets old finished calls in the store now and then; d.mu is held.
func (d *Dispatcher) pruneLocked() {
	now := d.opts.Clock.Now()
	if now.Sub(d.prunedAt) < pruneEvery {
		return
	}
	d.prunedAt = now
	d.still.prune(now.Add(-keepFinished))
	d.goes(func() {
		if _, err := d.opts.Store.PruneCalls(d.ctx, now.Add(-keepFinished)); err != nil && d.ctx.Err() == nil {
			d.opts.Logger.Error("old calls not pruned", "err", err)
		}
	})
}

// SandboxLost ends each call in flight of a sandbox that is gone; cause is its reason.
func (d *Dispatcher) SandboxLost(sandbox, reason, message string) {
	d.mu.Lock()
	d.still.lost(sandbox)
	if r := d.receivers[sandbox]; r != nil {
		r.stopWatching()
		delete(d.receivers, sandbox) // what its link still says counts no more
	}
	d.left(sandbox)
	d.mu.Unlock()
	for _, p := range d.inFlight(sandbox) {
		o := failed(p.request.ID, wire.ErrSandboxLost, "%s", message)
		o.Error.Cause = reason
		d.end(p, o)
	}
}

// inFlight are the accepted calls of a sandbox that have no outcome.
func (d *Dispatcher) inFlight(sandbox string) []*pending {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*pending
	for _, id := range d.table.Pending(sandbox) {
		if p := d.pending[id]; p != nil {
			all = append(all, p)
		}
	}
	return all
}
