package workerproc

import (
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Cancelled is what became of a call to cancel.
type Cancelled int

// What Cancel finds.
const (
	NotThere Cancelled = iota // no worker has the call
	Stopping                  // its code may still run; Handler.Stopped will tell when it does not
	Settled                   // its outcome is about to be reported
)

// Cancel asks for the end of a call whose caller gets, or has, another outcome. Its code has
// the grace to end; then it costs its worker.
func (p *Pool) Cancel(callID string) Cancelled {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flights[callID]
	switch {
	case f == nil:
		return NotThere
	case f.settled && !f.stopping:
		f.worker.condemn() // the outcome comes at once then
		return Settled
	case f.stopping:
		return Stopping
	}
	body, err := wire.Marshal(map[string]string{"type": wire.FrameCancel, "call_id": callID})
	if err == nil {
		q := queued{body: [][]byte{body}, size: len(body)}
		p.queued += q.size // never refused for want of room: it is what makes room
		f.worker.push(q)
	}
	p.stop(f)
	return Stopping
}

// stop begins the grace of a call; p.mu is held.
func (p *Pool) stop(f *flight) {
	if f.stopping {
		return
	}
	f.stopping = true
	f.worker.stopping++
	f.timer = time.AfterFunc(p.cfg.StopGrace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.flights[f.id] == f {
			p.expire(f)
		}
	})
}

// expire deals with a call whose code did not end within the grace; p.mu is held.
func (p *Pool) expire(f *flight) {
	f.overdue = true
	w := f.worker
	if !w.retired {
		p.cfg.Logger.Warn("a stopped call does not end", "worker", w.name(), "call", f.id, "beside", len(w.flights)-w.stopping)
		p.retire(w)
	}
	p.review(w)
}

// retire takes a worker out of its place, for which the next one is started at once. What was
// not written to it goes to others. p.mu is held.
func (p *Pool) retire(w *worker) {
	w.retired = true
	if w.alone {
		return
	}
	for i, other := range p.slots {
		if other == w {
			p.slots[i] = nil
		}
	}
	p.former[w] = struct{}{}
	close(w.left)
	p.waiting = append(w.unwritten(), p.waiting...)
	p.dispatch()
}

// review kills a retired worker once it has no calls but those that do not end; p.mu is held.
func (p *Pool) review(w *worker) {
	if !w.retired {
		return
	}
	for _, f := range w.flights {
		if !f.overdue {
			return
		}
	}
	w.condemn()
}

// land ends a flight; p.mu is held.
func (p *Pool) land(f *flight) {
	w := f.worker
	if f.timer != nil {
		f.timer.Stop()
	}
	if f.stopping {
		w.stopping--
	}
	delete(p.flights, f.id)
	delete(w.flights, f.id)
	p.review(w)
}

// answered takes a frame about the end of a call. deliver says whether the caller's outcome is
// in it, stopped that the code of a stopped call has ended; a worker of one call goes then.
func (p *Pool) answered(w *worker, f *Frame) (deliver, stopped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := w.flights[f.CallID]
	if call == nil || call.settled || !call.written {
		return false, false // nothing that this worker was asked
	}
	deliver = !call.stopping && f.Type != wire.FrameStopped
	switch {
	case f.Type == wire.FrameStopped && !call.stopping:
		return false, false
	case f.Type == wire.FrameError && f.Running:
		p.stop(call)
		return deliver, false
	case w.alone:
		call.settled = true
		if call.timer != nil {
			call.timer.Stop()
		}
		if deliver {
			last := *f
			w.final = &last
		}
		close(w.settled)
		return false, false
	}
	stopped = call.stopping
	p.land(call)
	return deliver, stopped
}

// bury takes a worker that is gone away. dead are the calls that it had, stopped those of them
// that were stopped before; what was not written to it goes to others.
func (p *Pool) bury(w *worker) (dead, stopped []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.slots {
		if other == w {
			p.slots[i] = nil
		}
	}
	delete(p.former, w)
	w.retired = false // there is nothing left to kill
	again := w.unwritten()
	for id, f := range w.flights {
		switch {
		case f.stopping:
			stopped = append(stopped, id)
		case w.final != nil: // it is reported next
		default:
			dead = append(dead, id)
		}
		p.land(f)
	}
	if w.alone {
		for _, q := range again {
			p.queued -= q.size
			dead = append(dead, q.callID)
		}
		return dead, stopped
	}
	p.waiting = append(again, p.waiting...)
	p.dispatch()
	return dead, stopped
}
