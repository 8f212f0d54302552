package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/agentixd/agentixd/daemon/calls"
	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/internal/mutant"
	"github.com/agentixd/agentixd/runtime/wire"
)

// submit joins the call that c asks for or starts it. The caller is one waiter of the
// pending call that is returned; without one, outcome or err is the answer.
func (d *Dispatcher) submit(ctx context.Context, c checked) (*pending, Outcome, error) {
	now := d.opts.Clock.Now()
	id := c.request.ID
	d.mu.Lock()
	verdict, known := d.table.Reserve(now, c.request)
	outcome := known.outcome
	p := d.pending[id]
	switch verdict {
	case calls.New:
		p = d.newPending(c)
	case calls.Conflict:
		d.mu.Unlock()
		return nil, Outcome{}, conflict(id)
	case calls.Full:
		d.mu.Unlock()
		return nil, Outcome{}, errs.OverLimit("open_calls", int64(d.opts.Limits.Open), int64(d.opts.Limits.Open)+1)
	case calls.Joined, calls.Known:
		d.mu.Unlock()
		return p, outcome, nil // a known outcome that is not delivered yet has its pending
	}
	inflight := d.inflight
	d.mu.Unlock()

	if inflight > wire.MaxInflightBytes {
		return nil, Outcome{}, d.reject(p, Outcome{}, errs.OverLimit("inflight_bytes", wire.MaxInflightBytes, inflight))
	}
	written := false
	if c.request.Named {
		earlier, open, err := d.earlier(ctx, c)
		if earlier != nil || err != nil {
			if earlier != nil {
				outcome = *earlier
			}
			return nil, outcome, d.reject(p, outcome, err)
		}
		written = open
	}
	if err := d.accept(ctx, p, c, written); err != nil {
		return nil, Outcome{}, d.reject(p, Outcome{}, err)
	}
	return p, Outcome{}, nil
}

func conflict(id string) *errs.Error {
	return errs.New(errs.AlreadyExists, errs.CallIDConflict, "call %s belongs to a different request", id).WithMeta("call_id", id)
}

// newPending notes a reserved call; d.mu is held.
func (d *Dispatcher) newPending(c checked) *pending {
	p := &pending{
		request: c.request, callable: c.call.Callable, call: c.call, want: c.call.ResultEncoding,
		bytes: int64(len(c.call.Arguments)), accepted: make(chan struct{}), done: make(chan struct{}), written: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(d.ctx)
	d.pending[c.request.ID] = p
	d.opened(c.request.Sandbox)
	d.inflight += p.bytes
	return p
}

// reject forgets a reserved call, tells those who joined it what became of it, and returns err.
func (d *Dispatcher) reject(p *pending, o Outcome, err error) error {
	d.mu.Lock()
	d.table.Reject(p.request.ID)
	d.forget(p, false)
	d.mu.Unlock()
	p.outcome, p.err = o, err
	p.cancel(errOver)
	close(p.accepted)
	close(p.done)
	return err
}

var errOver = errors.New("the call is over")

// forget ends the pending state of a call, which was accepted or not; d.mu is held.
func (d *Dispatcher) forget(p *pending, accepted bool) {
	delete(d.pending, p.request.ID)
	d.closedOne(p.request.Sandbox, accepted)
	d.inflight -= p.bytes
	p.stopTimer()
}

// earlier looks up a call that is in the store but not in memory: its outcome, or that it
// is written and open. Then an AcceptCall failed after it was done, and the call was never sent.
func (d *Dispatcher) earlier(ctx context.Context, c checked) (_ *Outcome, open bool, _ error) {
	row, err := d.opts.Store.Call(context.WithoutCancel(ctx), c.request.ID)
	switch {
	case errs.Is(err, errs.NotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case row.Sandbox != c.request.Sandbox || string(row.RequestHash) != c.request.Hash:
		return nil, false, conflict(row.ID)
	case row.Finished.IsZero() || mutant.Is(mutant.SkippedDedupe):
		return nil, true, nil
	}
	outcome, err := d.storedOutcome(context.WithoutCancel(ctx), row)
	if outcome == nil {
		o := notKept(row)
		outcome = &o
	}
	return outcome, false, err
}

// accept writes the call down, unless it is written already, and sends it. An error means
// that it was not accepted.
func (d *Dispatcher) accept(ctx context.Context, p *pending, c checked, written bool) error {
	id, sandbox := p.request.ID, p.request.Sandbox
	l, err := d.opts.Links.Link(sandbox)
	if err != nil {
		return err
	}
	session := l.Session()
	if session == 0 {
		return errs.New(errs.Unavailable, errs.RuntimeUnavailable, "no connection to the runtime of sandbox %s just now", sandbox).WithRetry(time.Second)
	}
	peer, _ := l.PeerIn(session)
	if err := canIsolate(p, peer); err != nil {
		return err
	}
	if peer.Neighbour {
		if p.call, err = pickled(p.call); err != nil {
			return err
		}
	}
	now := d.opts.Clock.Now()
	timeout := c.timeout
	if timeout > 0 {
		p.deadline = now.Add(timeout)
		if !peer.Neighbour {
			timeout += timeoutSlack
		}
	}
	row := store.CallRow{
		ID: id, Sandbox: sandbox, RequestHash: []byte(p.request.Hash), Callable: p.callable, Accepted: now,
		Deadline: p.deadline, Encoding: p.want, Submitted: p.request.Submitted,
	}
	if !written {
		// The caller's end must not leave it open whether the row was written.
		if err := d.opts.Store.AcceptCall(context.WithoutCancel(ctx), row); err != nil {
			return d.notAccepted(ctx, p, err)
		}
	}
	d.inject("call/afterRecord", id)
	d.opts.Journal.Append(sandbox, events.Event{
		Time: now, Sandbox: sandbox, CallID: id, Body: &events.Call{Phase: events.CallAccepted, Callable: p.callable},
	})
	d.mu.Lock()
	p.acceptedAt, p.submitted = now, p.request.Submitted && !written
	effect := d.table.Accept(now, id, timeout)
	d.mu.Unlock()
	close(p.accepted)
	d.apply(p, effect)
	sent, ended := false, uint64(0)
	if p.bytes <= inlineBytes {
		sent = d.send(p, l, session, func(c *wire.Call) (bool, error) {
			queued, err := l.TryCallIn(session, c)
			if err != nil {
				ended = session
			}
			return queued, err
		})
	}
	if !sent {
		d.mu.Lock()
		d.goes(func() { d.sendLater(p, ended) })
		d.mu.Unlock()
	}
	return nil
}

// notAccepted makes sure that a call without a name, which nobody can ask for again, is not
// left open in the store; a named one that was written after all is found by the next try.
func (d *Dispatcher) notAccepted(ctx context.Context, p *pending, err error) error {
	if errs.Is(err, errs.AlreadyExists) {
		return conflict(p.request.ID)
	}
	if !p.request.Named {
		end := store.CallEnd{State: store.CallFailed, ErrorType: wire.ErrResultUnavailable, Finished: d.opts.Clock.Now()}
		_ = d.opts.Store.FinishCall(context.WithoutCancel(ctx), p.request.ID, end) // most likely there is none
	}
	return err
}

// inject lets a fault test act at a named moment of a call.
func (d *Dispatcher) inject(point, id string) {
	if err := failpoint.Inject(point); err != nil {
		d.opts.Logger.Error("failpoint", "call", id, "err", err)
	}
}

// send hands the call to a connection by way of f. False means that it surely was not sent
// and still has to be.
func (d *Dispatcher) send(p *pending, l Link, session uint64, f func(*wire.Call) (bool, error)) bool {
	id := p.request.ID
	peer, known := l.PeerIn(session)
	if !known { // it has ended
		return false
	}
	call, err := d.callFor(p, peer)
	if err != nil {
		d.end(p, failed(id, wire.ErrArgumentsInvalid, "%v", err))
		return true
	}
	d.mu.Lock()
	ours := d.table.Send(id)
	p.life = peer.Life
	p.atRuntime = p.atRuntime || ours
	d.mu.Unlock()
	if !ours {
		return true // over before it was sent
	}
	sent, err := f(call)
	var limit *errs.Error
	switch {
	case err == nil && sent:
		d.inject("call/afterSend", id)
		return true
	case err == nil || errs.Is(err, errs.Unavailable):
		d.mu.Lock()
		effect, again := d.table.Unsend(d.opts.Clock.Now(), id)
		p.atRuntime = p.atRuntime && !again
		d.mu.Unlock()
		d.apply(p, effect)
		return !again || effect.End != calls.NoCause
	case errors.As(err, &limit) && limit.Kind == errs.ResourceExhausted:
		d.end(p, failed(id, wire.ErrFrameTooLarge, "%s", limit.Message))
	default:
		d.opts.Logger.Error("call not sent", "sandbox", p.request.Sandbox, "call", id, "err", err)
		d.end(p, failed(id, wire.ErrResultUnavailable, "the call could not be sent"))
	}
	return true
}

// callFor is the call as this runtime takes it. An error is about its arguments.
func (d *Dispatcher) callFor(p *pending, peer link.Peer) (*wire.Call, error) {
	if err := canIsolate(p, peer); err != nil { // another runtime than the one that it was accepted for
		return nil, err
	}
	now := d.opts.Clock.Now()
	if peer.Neighbour {
		return neighbourCall(p.call, now)
	}
	call := *p.call
	if !p.deadline.IsZero() {
		call.TimeoutMS = max(1, (p.deadline.Sub(now) + time.Millisecond - 1).Milliseconds())
	}
	return &call, nil
}

// canIsolate refuses a call that wants a worker of its own from a runtime that has none to give.
func canIsolate(p *pending, peer link.Peer) error {
	if p.call.Isolation == "" || !peer.Neighbour && slices.Contains(peer.Health.Capabilities, wire.CapIsolation) {
		return nil
	}
	return errs.New(errs.FailedPrecondition, errs.Unsupported,
		"isolation: the runtime of sandbox %s cannot run a call in a process of its own; leave it unset", p.request.Sandbox)
}

// sendLater sends a call as soon as there is a connection other than ended; it ends with the
// call.
func (d *Dispatcher) sendLater(p *pending, ended uint64) {
	for {
		l, err := d.opts.Links.Link(p.request.Sandbox)
		if err != nil {
			d.end(p, lost(p, err))
			return
		}
		session, err := l.WaitSession(p.ctx, ended)
		if err != nil || d.send(p, l, session, func(c *wire.Call) (bool, error) { return true, l.CallIn(p.ctx, session, c) }) {
			return
		}
		ended = session
	}
}

// lost is the outcome of a call whose sandbox is no longer there, as err says.
func lost(p *pending, err error) Outcome {
	o := failed(p.request.ID, wire.ErrSandboxLost, "the sandbox was lost before the call was sent")
	var e *errs.Error
	if errors.As(err, &e) {
		o.Error.Cause = e.Metadata["reason"]
	}
	return o
}

// leave takes a caller away whose ctx has ended, and returns why it has.
func (d *Dispatcher) leave(ctx context.Context, p *pending) error {
	if !d.stopping.Load() {
		d.leaves(p)
	}
	return d.gone(ctx, p)
}

// leaves takes one waiter of a call away.
func (d *Dispatcher) leaves(p *pending) {
	d.mu.Lock()
	effect := d.table.Leave(d.opts.Clock.Now(), p.request.ID)
	d.mu.Unlock()
	d.apply(p, effect)
}
