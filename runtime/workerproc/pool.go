// Package workerproc keeps the worker processes of a sandbox running: it spawns them, hands
// them frames, reads their frames and their output, notices their deaths and spawns the
// next. Everything a worker sends is hostile.
package workerproc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/agentixd/agentixd/runtime/output"
	"github.com/agentixd/agentixd/runtime/reaper"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Times of a worker's life.
const (
	BootTimeout    = 15 * time.Second
	StopGrace      = 2 * time.Second // how long the code of a stopped call may go on
	minBackOff     = 50 * time.Millisecond
	maxBackOff     = 5 * time.Second
	exitAfterEOF   = 2 * time.Second
	shutdownWait   = 5 * time.Second
	terminateWait  = 2 * time.Second
	goodbyeWait    = time.Second // for a worker of one call to end by itself
	healthyLife    = time.Second
	maxQueuedBytes = 2 * wire.MaxFrameBytes // frames on their way to workers
)

// Config says what to run. ImportRoot and Bootstrap are those of package worker.
type Config struct {
	Workers     int           // how many run side by side; 0 = 1
	Python      string        // an interpreter; "" = python3 from PATH
	Project     string        // first on a worker's import path
	ImportRoot  string        // holds the packages of package worker
	Bootstrap   string        // program text for python -c
	Command     []string      // another worker, in foreign mode: frames on fd 0 and 1
	Dir         string        // working directory; "" = the runtime's
	BootTimeout time.Duration // 0 = BootTimeout
	StopGrace   time.Duration // 0 = StopGrace
	Keeper      bool          // package keeper is the parent of workers of one call: main calls keeper.Run
	Reaper      *reaper.Reaper
	Handler     Handler
	Logger      *slog.Logger
}

// Handler is told what workers do. Of one worker, Frame and Died come in order, one at a time;
// Output from one goroutine per stream, or from the one that is about to report what came
// after. Each may block, which slows the worker. Of two workers anything may come at once.
type Handler interface {
	Output(worker, stream, callID string, b []byte) // b is good until it returns
	OutputEnded(worker string)                      // nothing writes to its streams any more
	// State is how the workers are together, one at a time: ok once all were started and one is
	// ready; otherwise failure says why none starts, if that is so.
	State(ok bool, ready Ready, failure string)
	// Frame gets results and errors only of calls that the worker has, and once.
	Frame(worker string, f Frame)
	Died(Death)
	BootFailed(BootError)
	// Stopped tells that the code of stopped calls does not run any more.
	Stopped(callIDs []string)
}

// Ready is what a worker said of itself.
type Ready struct {
	WorkerID     string
	Native       bool // our worker; false: a neighbour's
	Python       string
	Capabilities []string
}

// Pool runs workers side by side and gives each call to one of them.
type Pool struct {
	cfg   Config
	boots chan struct{} // one token for each worker that may boot at the same time

	stateMu sync.Mutex // held while Handler.State is called; taken before mu

	mu       sync.Mutex
	ctx      context.Context // of Run; nil while it does not run
	owned    sync.WaitGroup  // workers and their readers; added to while ctx is set
	readers  sync.WaitGroup  // of output; they may outlive their workers
	pipes    map[*output.Pipe]struct{}
	slots    []*worker // the worker of each place; nil = none just now
	alone    map[*worker]struct{}
	former   map[*worker]struct{} // retired ones
	waiting  []queued             // frames for which no worker is ready
	lonely   []queued             // calls that wait for a worker of their own
	queued   int                  // bytes of all frames that were not written
	flights  map[string]*flight   // calls that a worker has, or will have alone
	tried    int                  // places whose first worker was ready, or failed
	failure  *BootError           // why the last one did not start; nil once one is ready
	failures int                  // starts that failed since one succeeded
	ready    Ready                // the last one
	turn     uint64               // grows with each call that is given away
	watched  bool                 // a timer will look at the workers
	oomKills func() uint64
	oomSeen  uint64 // kills for memory that were told as the cause of a death
}

type queued struct {
	call   bool // a call, whose id may be empty if a neighbour's host gave it
	callID string
	body   [][]byte // parts
	size   int
}

// flight is a call on a worker.
type flight struct {
	id       string
	worker   *worker
	began    time.Time
	written  bool // its frame, or a part of it, went to the worker
	settled  bool // alone: the worker has answered, and goes
	stopping bool // cancelled, or its time ran out: the caller has its answer
	overdue  bool // and the grace is over
	timer    *time.Timer
}

// New prepares a pool; Run starts it.
func New(cfg Config) *Pool {
	if cfg.BootTimeout == 0 {
		cfg.BootTimeout = BootTimeout
	}
	if cfg.StopGrace == 0 {
		cfg.StopGrace = StopGrace
	}
	cfg.Workers = max(cfg.Workers, 1)
	return &Pool{
		cfg: cfg, boots: make(chan struct{}, max(2, runtime.NumCPU())),
		slots: make([]*worker, cfg.Workers), alone: map[*worker]struct{}{}, former: map[*worker]struct{}{},
		oomKills: oomKills, flights: map[string]*flight{}, pipes: map[*output.Pipe]struct{}{},
	}
}

// ErrQueueFull says that workers do not take their frames fast enough.
var ErrQueueFull = errors.New("too many bytes wait for the worker")

// Send gives a call, whose frame comes in parts, to a worker, now or once one is ready; with
// alone to a new worker that is for it only. It does not block. Errors: wire.ErrFrameLimit,
// ErrQueueFull.
func (p *Pool) Send(callID string, alone bool, body ...[]byte) error {
	q, err := newQueued(body)
	q.call, q.callID = true, callID
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued > 0 && p.queued+q.size > maxQueuedBytes {
		return ErrQueueFull
	}
	p.queued += q.size
	switch w := (*worker)(nil); {
	case alone:
		p.lonely = append(p.lonely, q)
		p.startAlone()
	default:
		if len(p.waiting) == 0 {
			w = p.choose()
		}
		if w == nil {
			p.waiting = append(p.waiting, q)
			return nil
		}
		p.give(w, q)
	}
	return nil
}

func newQueued(body [][]byte) (queued, error) {
	q := queued{body: body}
	for _, part := range body {
		q.size += len(part)
	}
	if q.size > wire.MaxFrameBytes {
		return q, fmt.Errorf("%w: %d bytes", wire.ErrFrameLimit, q.size)
	}
	return q, nil
}

// Tell queues a frame that is no call for one worker, or with "" for all of them, or for the
// next one if there is none. Errors: those of Send.
func (p *Pool) Tell(workerID string, body []byte) error {
	q, err := newQueued([][]byte{body})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued > 0 && p.queued+q.size > maxQueuedBytes {
		return ErrQueueFull
	}
	told := false
	for w := range p.all() {
		if workerID == "" || w.proc.id == workerID {
			p.queued += q.size
			w.push(q)
			told = true
		}
	}
	if !told && workerID == "" {
		p.queued += q.size
		p.waiting = append(p.waiting, q)
	}
	return nil
}

// all yields every worker that lives; p.mu is held.
func (p *Pool) all() func(yield func(*worker) bool) {
	return func(yield func(*worker) bool) {
		for _, w := range p.slots {
			if w != nil && !yield(w) {
				return
			}
		}
		for _, more := range []map[*worker]struct{}{p.former, p.alone} {
			for w := range more {
				if w.proc != nil && !yield(w) {
					return
				}
			}
		}
	}
}

// give hands a frame to a worker; p.mu is held.
func (p *Pool) give(w *worker, q queued) {
	if q.call {
		f := &flight{id: q.callID, worker: w, began: time.Now()}
		p.flights[q.callID], w.flights[q.callID] = f, f
		p.turn++
		w.turn = p.turn
		p.watch()
	}
	w.push(q)
}

// Unsend takes a call back that was not written to a worker yet.
func (p *Pool) Unsend(callID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q, ok := take(&p.waiting, callID); ok {
		p.queued -= q.size
		return true
	}
	if q, ok := take(&p.lonely, callID); ok {
		p.queued -= q.size
		return true
	}
	f := p.flights[callID]
	if f == nil || f.written {
		return false
	}
	q, ok := take(&f.worker.outbox, callID)
	if !ok {
		return false
	}
	p.queued -= q.size
	p.land(f)
	if f.worker.alone {
		f.worker.condemn()
	}
	return true
}

// take removes the frame of a call from a queue.
func take(queue *[]queued, callID string) (queued, bool) {
	for i, q := range *queue {
		if q.call && q.callID == callID {
			*queue = append((*queue)[:i:i], (*queue)[i+1:]...)
			return q, true
		}
	}
	return queued{}, false
}

// Run keeps workers running until ctx ends, then stops them in order. Output must not block
// any more once ctx ended.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	for i := range p.slots {
		p.owned.Go(func() { p.slot(ctx, i) }) // ends with ctx
	}
	p.startAlone()
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	p.owned.Wait()
	p.mu.Lock()
	var errs []error
	for pipe := range p.pipes {
		errs = append(errs, pipe.Close())
	}
	p.pipes = nil
	p.mu.Unlock()
	p.readers.Wait()
	return errors.Join(errs...)
}

// reading runs the reader of a pipe, which is closed at its end. The caller is a worker.
func (p *Pool) reading(pipe *output.Pipe, run func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipes[pipe] = struct{}{}
	p.readers.Go(func() { // ends with the last writer, or when Run closes the pipe
		run()
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, open := p.pipes[pipe]; open {
			delete(p.pipes, pipe)
			if err := pipe.Close(); err != nil {
				p.cfg.Logger.Warn("output pipe is not closed", "err", err)
			}
		}
	})
}
