package dispatch

import (
	"errors"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
)

// finish is called once for each accepted call, by whoever gave it its outcome.
func (d *Dispatcher) finish(p *pending, o Outcome, now time.Time) {
	p.outcome = o
	end, err := o.end(now, p.request.Named)
	if err != nil { // it cannot be encoded, which cannot be: how it ended is kept
		d.opts.Logger.Error("outcome not encoded", "call", p.request.ID, "err", err)
		end.Keep = false
	}
	err = errNotWritten
	if !p.quiet && !end.Large() {
		err = d.write(p, end) // here, so that its event stands where it happened
	}
	p.cancel(errOver)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.goes(func() { d.deliver(p, end, err) })
}

var errNotWritten = errors.New("the outcome is not handed to the journal yet")

// write hands a call's terminal event and its outcome to the journal, which commits both at
// once: a daemon that dies leaves a call that is open, or one whose end all are told alike.
// p.written is closed then.
func (d *Dispatcher) write(p *pending, end store.CallEnd) error {
	id, sandbox := p.request.ID, p.request.Sandbox
	d.inject("call/beforeCommit", id)
	if p.quiet { // its event is there
		err := d.opts.Store.FinishCall(d.ctx, id, end)
		if err == nil || errs.Is(err, errs.AlreadyExists) || errs.Is(err, errs.NotFound) {
			close(p.written)
			return nil
		}
		return err
	}
	ending, err := d.opts.Store.NewEnding(id, end)
	if err != nil {
		return err
	}
	p.ending = ending
	return d.opts.Journal.AppendEnd(sandbox, finishedEvent(p, p.outcome, end.Finished), ending, func() { close(p.written) })
}

// deliver sees that an outcome is written, lets the runtime forget it and tells the waiters.
// err is why it was not handed to the journal. When journal or store refuse, the waiters are
// told all the same, since they have waited enough, and the runtime keeps the outcome until it
// is acked.
func (d *Dispatcher) deliver(p *pending, end store.CallEnd, err error) {
	id, sandbox := p.request.ID, p.request.Sandbox
	if errors.Is(err, errNotWritten) {
		err = d.write(p, end)
	}
	handed := err == nil
	if handed {
		err = d.opts.Journal.Flush(d.ctx, sandbox)
	}
	if err != nil && d.ctx.Err() == nil {
		d.opts.Logger.Error("call finished but its end is not written", "sandbox", sandbox, "call", id, "err", err)
	}
	if !p.request.Named { // nobody can ask again, so nobody can be told otherwise
		close(p.done)
	}
	written := err == nil && d.isWritten(p)
	if written {
		d.settle(p)
	}
	d.mu.Lock()
	d.forget(p, true)
	if !written && !p.request.Named {
		d.table.Settle(d.opts.Clock.Now(), id)
	}
	d.pruneLocked()
	if !written {
		d.goes(func() { d.writeLater(p, end, handed) })
	}
	d.mu.Unlock()
	if p.request.Named {
		close(p.done)
	}
}

// isWritten waits for what was committed to be told; false = the Dispatcher was closed.
func (d *Dispatcher) isWritten(p *pending) bool {
	select {
	case <-p.written:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// writeLater ends once the outcome is written, or with the Dispatcher.
func (d *Dispatcher) writeLater(p *pending, end store.CallEnd, handed bool) {
	for !handed {
		due := make(chan struct{})
		stop := d.opts.Clock.AfterFunc(saveAgain, func() { close(due) })
		select {
		case <-due:
		case <-d.ctx.Done():
			stop()
			return
		}
		handed = d.write(p, end) == nil
	}
	if d.isWritten(p) {
		d.settle(p)
	}
}

// settle is called once the outcome of a call is written.
func (d *Dispatcher) settle(p *pending) {
	id := p.request.ID
	d.inject("call/afterCommit", id)
	if p.ending != nil {
		d.opts.Store.Ended(p.ending)
	}
	if l := d.linkOf(p.request.Sandbox); l != nil {
		l.AckResult(id)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Settle(d.opts.Clock.Now(), id)
}
