package workerproc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentixd/agentixd/runtime/output"
)

// Death says how a worker ended.
type Death struct {
	WorkerID   string
	Calls      []string // that it had, and that nobody stopped
	Returncode *int     // nil: the pipe closed although the process was there
	Cause      string
	Message    string
	Limit      int64 // bytes of memory the sandbox may have, when it ran out of them
}

// BootError says why a worker did not become ready.
type BootError struct {
	Type    string
	Message string
	Calls   []string // that end with this
}

// Error is the message.
func (e BootError) Error() string { return e.Message }

// worker is one worker process from its start to its end. What p.mu guards is marked.
type worker struct {
	p     *Pool
	alone bool   // it is for one call
	only  string // its id, if so

	proc           *process     // set once, under p.mu
	stdout, stderr *output.Pipe // nil in foreign mode
	last           tail

	booted    chan struct{} // closed by the frame reader once it is ready
	readyOnce sync.Once
	ready     Ready
	bootError atomic.Pointer[BootError]
	failure   *BootError // why it did not start
	eof       chan error // one value: the frame reader ended
	wrote     atomic.Bool

	left      chan struct{} // closed when it is retired
	settled   chan struct{} // closed when the worker of one call has answered
	condemned chan struct{} // closed to kill it with all its processes
	condemn   func()        // closes condemned, once

	// Guarded by p.mu.
	outbox       []queued
	wake         chan struct{} // tells the writer that outbox changed; capacity 1
	flights      map[string]*flight
	stopping     int           // of flights
	turn         uint64        // when it got its last call
	retired      bool          // it gets no new calls
	final        *Frame        // of a worker of one call: the outcome, told when its processes are gone
	tellsStopped bool          // it answers pings and tells when stopped code has ended
	pinged       bool          // a ping is not answered yet
	stuck        bool          // and was not at the last look either
	busy         bool          // it computes, by the last look
	spun         time.Time     // when it was last seen to
	sampled      time.Time     // when used was read
	used         time.Duration // processor time
}

func newWorker(p *Pool) *worker {
	w := &worker{
		p: p, booted: make(chan struct{}), eof: make(chan error, 1), wake: make(chan struct{}, 1),
		left: make(chan struct{}), settled: make(chan struct{}), condemned: make(chan struct{}), flights: map[string]*flight{},
	}
	w.condemn = sync.OnceFunc(func() { close(w.condemned) })
	return w
}

// errCondemned says that a worker was ended on purpose before it was ready.
var errCondemned = errors.New("the worker is not wanted any more")

// run starts the worker and serves it until it is gone. booted is told whether it became ready,
// unless it was not wanted any more. The error says that it did not, or went at once without
// having been asked anythinw.
func (w *worker) run(ctx context.Context, booted func(ok bool)) error {
	p := w.p
	select {
	case p.boots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.condemned:
		return errCondemned
	}
	permit := sync.OnceFunc(func() { <-p.boots })
	defer permit()
	proc, err := w.spawn()
	if err != nil {
		w.failed(&BootError{Type: "RuntimeError", Message: err.Error()}, booted)
		return err
	}
	p.mu.Lock()
	w.proc = proc
	p.mu.Unlock()
	err = w.live(ctx, permit, booted)
	return errors.Join(err, proc.close())
}

// live is the life of a worker that was spawned.
func (w *worker) live(ctx context.Context, permit func(), booted func(ok bool)) error {
	w.readOutput()
	var owned sync.WaitGroup
	owned.Go(w.read) // ends with the frame pipe, at the latest by finish
	if w.proc.stderr != nil {
		owned.Go(w.relay) // ends with the worker's stderr, or when it is closed
	}
	finish := func() {
		if w.alone {
			w.killTree()
		}
		w.proc.frames.finish()
		if w.proc.stderr != nil {
			_ = w.proc.stderr.SetReadDeadline(pastDeadline)
		}
		owned.Wait()
		w.drain()
	}
	if failure := w.boot(ctx); failure != nil {
		w.kill()
		permit()
		finish()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.condemned:
			return errCondemned
		default:
		}
		failure.Message = w.explain(failure.Message)
		w.failed(failure, booted)
		return failure
	}
	permit()
	booted(true)
	stopWriter, writerDone := make(chan struct{}), make(chan struct{})
	go func() { // ends with stopWriter or the pipe; waited for below
		defer close(writerDone)
		w.write(stopWriter)
	}()
	death, natural := w.serve(ctx)
	close(stopWriter)
	_ = w.proc.toWorker.SetWriteDeadline(pastDeadline) // wakes a write that nobody reads
	<-writerDone
	finish()
	var stopped []string
	death.Calls, stopped = w.p.bury(w)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.report(death, natural, stopped)
	if natural && !w.alone && !w.wrote.Load() && time.Since(w.proc.started) < healthyLife {
		return errors.New(death.Message)
	}
	return nil
}

// report tells what became of the calls of a worker that is gone.
func (w *worker) report(death Death, natural bool, stopped []string) {
	h := w.p.cfg.Handler
	if w.final != nil {
		h.Frame(w.proc.id, *w.final)
	}
	if natural || len(death.Calls) > 0 {
		h.Died(death)
	}
	if len(stopped) > 0 {
		h.Stopped(stopped)
	}
}

// failed tells that the worker did not start.
func (w *worker) failed(e *BootError, booted func(ok bool)) {
	failure := *e
	failure.Calls, _ = w.p.bury(w)
	w.failure = &failure
	booted(false)
}

// name is the worker's id, for logs.
func (w *worker) name() string {
	if w.proc == nil {
		return ""
	}
	return w.proc.id
}

// push queues a frame for the worker; p.mu is held.
func (w *worker) push(q queued) {
	w.outbox = append(w.outbox, q)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// unwritten takes the calls back that were not written to the worker, and drops the frames that
// were meant for it; p.mu is held.
func (w *worker) unwritten() []queued {
	var calls []queued
	for _, q := range w.outbox {
		if !q.call {
			w.p.queued -= q.size
			continue
		}
		calls = append(calls, q)
		if f := w.flights[q.callID]; f != nil {
			w.p.land(f)
		}
	}
	w.outbox = nil
	return calls
}

// next takes the next frame off the outbox.
func (w *worker) next() (queued, bool) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if len(w.outbox) == 0 {
		w.outbox = nil
		return queued{}, false
	}
	q := w.outbox[0]
	w.outbox[0] = queued{}
	w.outbox = w.outbox[1:]
	w.p.queued -= q.size
	if f := w.flights[q.callID]; f != nil && q.call {
		f.written = true
	}
	return q, true
}
