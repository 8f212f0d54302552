// Package workerproc keeps one worker process running: it spawns it, hands it frames, reads
// its frames and its output, notices its death and spawns the next. Everything a worker
// sends is hostile.
package workerproc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/agentixd/agentixd/runtime/output"
	"github.com/agentixd/agentixd/runtime/reaper"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Times of a worker's life.
const (
	BootTimeout    = 15 * time.Second
	minBackOff     = 50 * time.Millisecond
	maxBackOff     = 5 * time.Second
	exitAfterEOF   = 2 * time.Second
	shutdownWait   = 5 * time.Second
	terminateWait  = 2 * time.Second
	healthyLife    = time.Second
	maxQueuedBytes = 2 * wire.MaxFrameBytes // frames on their way to a worker
)

// Config says what to run. ImportRoot and Bootstrap are those of package worker.
type Config struct {
	Python      string   // an interpreter; "" = python3 from PATH
	Project     string   // first on the worker's import path
	ImportRoot  string   // holds the packages of package worker
	Bootstrap   string   // program text for python -c
	Command     []string // another worker, in foreign mode: frames on fd 0 and 1
	Dir         string   // working directory; "" = the runtime's
	BootTimeout time.Duration
	Reaper      *reaper.Reaper
	Handler     Handler
	Logger      *slog.Logger
}

// Handler is told what a worker does. All but Output are called by one goroutine at a time,
// in the order of the worker's frames; Output by one goroutine per stream, or by the one
// that is about to report what came after. Each may block, which slows the worker.
type Handler interface {
	Output(stream, callID string, b []byte) // b is good until it returns
	Ready(Ready)
	Frame(Frame)
	Died(Death)
	BootFailed(BootError)
}

// Ready is what a worker said of itself.
type Ready struct {
	WorkerID     string
	Native       bool // our worker; false: a neighbour's
	Python       string
	Capabilities []string
}

// Supervisor runs workers one after the other.
type Supervisor struct {
	cfg            Config
	stdout, stderr *output.Pipe
	last           tail
	wake           chan struct{} // tells Run's writer that queue changed; capacity 1

	mu     sync.Mutex
	queue  []queued
	queued int // bytes
}

type queued struct {
	callID string   // of a call frame
	body   [][]byte // parts
	size   int
}

// New prepares a supervisor; Run starts it.
func New(cfg Config) (*Supervisor, error) {
	if cfg.BootTimeout == 0 {
		cfg.BootTimeout = BootTimeout
	}
	s := &Supervisor{cfg: cfg, wake: make(chan struct{}, 1)}
	var err error
	if s.stdout, err = output.NewPipe(s.emit("stdout")); err != nil {
		return nil, err
	}
	if s.stderr, err = output.NewPipe(s.emit("stderr")); err != nil {
		return nil, errors.Join(err, s.stdout.Close())
	}
	return s, nil
}

func (s *Supervisor) emit(stream string) func(string, []byte) {
	return func(callID string, b []byte) {
		_, _ = s.last.Write(b)
		s.cfg.Handler.Output(stream, callID, b)
	}
}

// ErrQueueFull says that a worker does not take its frames fast enough.
var ErrQueueFull = errors.New("too many bytes wait for the worker")

// Send queues a frame, given in parts, for the worker, now or once it is ready. It does not block. callID
// names the call of a call frame and is empty for others. Errors: wire.ErrFrameLimit,
// ErrQueueFull.
func (s *Supervisor) Send(callID string, body ...[]byte) error {
	size := 0
	for _, part := range body {
		size += len(part)
	}
	if size > wire.MaxFrameBytes {
		return fmt.Errorf("%w: %d bytes", wire.ErrFrameLimit, size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued > 0 && s.queued+size > maxQueuedBytes {
		return ErrQueueFull
	}
	s.queue = append(s.queue, queued{callID: callID, body: body, size: size})
	s.queued += size
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Unsend takes a call frame back that was not written yet.
func (s *Supervisor) Unsend(callID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q.callID == callID {
			s.queued -= q.size
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

// Waiting reports which calls were not written to any worker.
func (s *Supervisor) Waiting() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[string]bool{}
	for _, q := range s.queue {
		if q.callID != "" {
			ids[q.callID] = true
		}
	}
	return ids
}

// Withdraw empties the queue and returns the calls that were in it.
func (s *Supervisor) Withdraw() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, q := range s.queue {
		if q.callID != "" {
			ids = append(ids, q.callID)
		}
	}
	s.queue, s.queued = nil, 0
	return ids
}

// keepCalls drops the frames that meant a worker which is gone.
func (s *Supervisor) keepCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []queued
	s.queued = 0
	for _, q := range s.queue {
		if q.callID != "" {
			kept, s.queued = append(kept, q), s.queued+q.size
		}
	}
	s.queue = kept
}

// next takes the next frame off the queue.
func (s *Supervisor) next() (queued, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil
		return queued{}, false
	}
	q := s.queue[0]
	s.queue[0] = queued{}
	s.queue = s.queue[1:]
	s.queued -= q.size
	return q, true
}

// Run keeps a worker running until ctx ends, then stops it in order. Output must not block
// any more once ctx ended.
func (s *Supervisor) Run(ctx context.Context) error {
	var readers sync.WaitGroup
	for name, p := range map[string]*output.Pipe{"stdout": s.stdout, "stderr": s.stderr} {
		readers.Go(func() { // ends with Close below
			if err := p.Run(); err != nil {
				s.cfg.Logger.Error("output is not read any more", "stream", name, "err", err)
			}
		})
	}
	s.loop(ctx)
	err := errors.Join(s.stdout.Close(), s.stderr.Close())
	readers.Wait()
	return err
}

func (s *Supervisor) loop(ctx context.Context) {
	backOff := minBackOff
	for ctx.Err() == nil {
		healthy, err := s.once(ctx)
		if healthy {
			backOff = minBackOff
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.cfg.Logger.Warn("worker did not start", "err", err, "retry", backOff)
		timer := time.NewTimer(backOff)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		backOff = min(2*backOff, maxBackOff)
	}
}

// once runs one worker until it is gone. healthy is false if it did not become ready, or
// went at once without having been asked anything.
func (s *Supervisor) once(ctx context.Context) (healthy bool, err error) {
	p, err := s.spawn()
	if err != nil {
		s.cfg.Handler.BootFailed(BootError{Type: "RuntimeError", Message: err.Error()})
		return false, err
	}
	g := &generation{s: s, p: p, logger: s.cfg.Logger, ready: make(chan struct{}), eof: make(chan error, 1)}
	healthy, err = g.run(ctx)
	return healthy, errors.Join(err, p.close())
}

// drain reads all output that was written until now.
func (s *Supervisor) drain() {
	if err := errors.Join(s.stdout.Drain(), s.stderr.Drain()); err != nil {
		s.cfg.Logger.Error("output is not drained", "err", err)
	}
}

// relay copies a foreign worker's stderr to ours and keeps its tail.
func (s *Supervisor) relay(f *os.File) {
	buf := make([]byte, 4096)
	for {
		n, err := f.Read(buf)
		_, _ = s.last.Write(buf[:n])
		_, _ = os.Stderr.Write(buf[:n]) // a lost line of a foreign worker's console is no loss
		if err != nil {
			return
		}
	}
}
