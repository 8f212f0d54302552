package workerproc

import (
	"context"
	"errors"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// slot keeps a worker running in one place of the pool. A retired worker leaves its place and
// goes on beside the next one.
func (p *Pool) slot(ctx context.Context, i int) {
	backOff := minBackOff
	first := true
	for ctx.Err() == nil {
		w := newWorker(p)
		ended := make(chan error, 1)
		p.owned.Go(func() { // ends with the worker, at the latest after ctx did
			ended <- w.run(ctx, func(ok bool) { p.settle(w, i, ok, first) })
		})
		select {
		case err := <-ended:
			p.vacate(i, w)
			if err == nil {
				backOff = minBackOff
				break
			}
			if ctx.Err() != nil {
				return
			}
			p.cfg.Logger.Warn("worker did not start", "err", err, "retry", backOff)
			pause(ctx, backOff)
			backOff = min(2*backOff, maxBackOff)
		case <-w.left:
			backOff = minBackOff
		}
		first = false
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// settle notes that a worker of a place is ready, or that it did not start.
func (p *Pool) settle(w *worker, i int, ok, first bool) {
	p.mu.Lock()
	if first {
		p.tried++
	}
	if ok {
		p.slots[i] = w
		p.failure, p.failures, p.ready = nil, 0, w.ready
	} else {
		p.failure = w.failure
		p.failures++
	}
	failed := p.hopeless()
	p.dispatch()
	p.mu.Unlock()
	p.tell()
	if len(failed.Calls) > 0 || !ok {
		p.cfg.Handler.BootFailed(failed)
	}
}

// hopeless withdraws the calls that wait if every place has tried in vain since a worker was
// ready; p.mu is held. One that was killed while it started leaves hope in the others.
func (p *Pool) hopeless() BootError {
	if p.failure == nil {
		return BootError{}
	}
	failed := *p.failure
	for _, w := range p.slots {
		if w != nil {
			return failed
		}
	}
	if p.tried < len(p.slots) || p.failures < len(p.slots) {
		return failed
	}
	for _, q := range p.waiting {
		p.queued -= q.size
		if q.call {
			failed.Calls = append(failed.Calls, q.callID)
		}
	}
	p.waiting = nil
	return failed
}

// vacate frees the place of a worker that is gone.
func (p *Pool) vacate(i int, w *worker) {
	p.mu.Lock()
	if p.slots[i] == w {
		p.slots[i] = nil
	}
	p.mu.Unlock()
	p.tell()
}

// tell has the handler know how the workers are together.
func (p *Pool) tell() {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	p.mu.Lock()
	ok := false
	for _, w := range p.slots {
		ok = ok || w != nil
	}
	ok = ok && p.tried == len(p.slots)
	ready, failure := p.ready, ""
	if p.failure != nil && p.tried == len(p.slots) {
		failure = p.failure.Message
	}
	p.mu.Unlock()
	p.cfg.Handler.State(ok, ready, failure)
}

// startAlone starts workers for calls that want one of their own; p.mu is held.
func (p *Pool) startAlone() {
	for p.ctx != nil && p.ctx.Err() == nil && len(p.lonely) > 0 && len(p.alone) < wire.MaxIsolated {
		q := p.lonely[0]
		p.lonely[0] = queued{}
		p.lonely = p.lonely[1:]
		w, ctx := newWorker(p), p.ctx
		w.alone, w.only = true, q.callID
		p.alone[w] = struct{}{}
		p.give(w, q)
		p.owned.Go(func() { p.runAlone(ctx, w) }) // ends with the worker
	}
}

// runAlone runs the worker of one call.
func (p *Pool) runAlone(ctx context.Context, w *worker) {
	err := w.run(ctx, func(ok bool) {
		if !ok {
			p.cfg.Handler.BootFailed(*w.failure)
		}
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, errCondemned) {
		p.cfg.Logger.Warn("worker of one call did not start", "call", w.only, "err", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alone, w)
	p.startAlone()
}
