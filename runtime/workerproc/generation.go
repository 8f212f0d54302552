package workerproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Death says how a worker ended.
type Death struct {
	WorkerID   string
	Returncode *int // nil: the pipe closed although the process was there
	Cause      string
	Message    string
	Limit      int64 // bytes of memory the sandbox may have, when it ran out of them
}

// BootError says why a worker did not become ready.
type BootError struct {
	Type    string
	Message string
}

// Error is the message.
func (e BootError) Error() string { return e.Message }

// generation is one worker from spawn to death.
type generation struct {
	s      *Supervisor
	p      *process
	logger *slog.Logger

	ready     chan struct{} // closed by the frame reader
	readyOnce sync.Once
	bootError atomic.Pointer[BootError]
	eof       chan error // one value: the frame reader ended
	wrote     atomic.Bool
}

// run serves the worker until it is gone; see Supervisor.once.
func (g *generation) run(ctx context.Context) (healthy bool, err error) {
	var owned sync.WaitGroup
	owned.Go(g.read) // ends with the frame pipe, at the latest by finish
	if g.p.stderr != nil {
		owned.Go(func() { g.s.relay(g.p.stderr) }) // ends with the worker's stderr, or when it is closed
	}
	closeStderr := func() {
		if g.p.stderr != nil {
			_ = g.p.stderr.SetReadDeadline(pastDeadline)
		}
	}
	if failure := g.boot(ctx); failure != nil {
		g.kill()
		g.p.frames.finish()
		closeStderr()
		owned.Wait()
		g.s.drain()
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		failure.Message = g.explain(failure.Message)
		g.s.cfg.Handler.BootFailed(*failure)
		return false, failure
	}
	stopWriter, writerDone := make(chan struct{}), make(chan struct{})
	go func() { // ends with stopWriter or the pipe; waited for below
		defer close(writerDone)
		g.write(stopWriter)
	}()
	death := g.serve(ctx)
	close(stopWriter)
	_ = g.p.toWorker.SetWriteDeadline(pastDeadline) // wakes a write that nobody reads
	<-writerDone
	g.p.frames.finish()
	closeStderr()
	owned.Wait()
	g.s.drain()
	g.s.keepCalls()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	g.s.cfg.Handler.Died(death)
	if !g.wrote.Load() && time.Since(g.p.started) < healthyLife {
		return false, errors.New(death.Message)
	}
	return true, nil
}

// boot waits until the worker is ready. It returns why it is not, and may leave it running.
func (g *generation) boot(ctx context.Context) *BootError {
	timer := time.NewTimer(g.s.cfg.BootTimeout)
	defer timer.Stop()
	select {
	case <-g.ready:
		return nil
	case <-ctx.Done():
		return &BootError{Type: "RuntimeError", Message: "the runtime is stopping"}
	case <-timer.C:
		return &BootError{Type: "TimeoutError", Message: fmt.Sprintf("worker was not ready within %s", g.s.cfg.BootTimeout)}
	case <-g.p.Done():
		g.p.frames.finish() // it may have said why, or been ready, just before
		err := <-g.eof
		g.logger.Debug("worker ended before it was ready", "err", err)
		g.eof <- err // for serve, should it have been ready
	case err := <-g.eof:
		if err != nil {
			return &BootError{Type: "RuntimeError", Message: fmt.Sprintf("worker spoke no frames before it was ready: %v", err)}
		}
		g.await(exitAfterEOF)
		g.eof <- err // for serve, should it have been ready
	}
	select {
	case <-g.ready:
		return nil
	default:
	}
	if failure := g.bootError.Load(); failure != nil {
		return failure
	}
	select {
	case <-g.p.Done():
		text, _ := describe(g.p.Returncode(), false)
		return &BootError{Type: "RuntimeError", Message: "worker ended before it was ready: " + text}
	default:
		return &BootError{Type: "RuntimeError", Message: "worker closed its pipe before it was ready"}
	}
}

// explain adds the last lines the worker wrote.
func (g *generation) explain(message string) string {
	if last := g.s.last.String(); last != "" {
		return message + "\n" + last
	}
	return message
}

// serve waits for the end of a ready worker.
func (g *generation) serve(ctx context.Context) Death {
	select {
	case <-g.p.Done():
	case <-ctx.Done():
		g.shutdown()
		return Death{WorkerID: g.p.id, Message: "the runtime is stopping"}
	case err := <-g.eof:
		if err != nil {
			g.logger.Warn("worker broke its frame pipe", "err", err)
		}
		if !g.await(exitAfterEOF) {
			g.kill()
			return Death{WorkerID: g.p.id, Cause: wire.CauseExit, Message: "runtime worker exited: stdout closed"}
		}
	}
	code := g.p.Returncode()
	text, cause := describe(code, oomKills() > g.p.oomKills)
	death := Death{WorkerID: g.p.id, Returncode: &code, Cause: cause, Message: "runtime worker exited: " + text}
	if cause == wire.CauseOOM {
		death.Limit = memoryLimit()
	}
	return death
}

// describe is the text and the cause of an exit.
func describe(code int, oom bool) (text, cause string) {
	if code >= 0 {
		return fmt.Sprintf("exit code %d", code), wire.CauseExit
	}
	text, cause = fmt.Sprintf("killed by signal %d", -code), wire.CauseSignal
	if code == -int(syscall.SIGKILL) {
		text += " (likely OOM-killed)"
		if oom {
			cause = wire.CauseOOM
		}
	}
	return text, cause
}

// await waits for the exit of the process.
func (g *generation) await(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-g.p.Done():
		return true
	case <-timer.C:
		return false
	}
}

// kill ends the worker and its group.
func (g *generation) kill() {
	if err := g.p.Signal(syscall.SIGKILL, true); err != nil {
		g.logger.Error("worker is not killed", "err", err)
		return
	}
	<-g.p.Done()
}

// shutdown asks the worker to end, then makes it.
func (g *generation) shutdown() {
	body, err := wire.Marshal(map[string]string{"type": wire.FrameShutdown})
	if err == nil {
		err = g.s.Send("", body)
	}
	if err == nil && g.await(shutdownWait) {
		return
	}
	if err := g.p.Signal(syscall.SIGTERM, true); err == nil && g.await(terminateWait) {
		return
	}
	g.kill()
}

// write hands queued frames to the worker.
func (g *generation) write(stop <-chan struct{}) {
	w := wire.NewFrameWriter(g.p.toWorker)
	for {
		select {
		case <-stop:
			return
		default:
		}
		q, ok := g.s.next()
		if !ok {
			select {
			case <-stop:
				return
			case <-g.s.wake:
			}
			continue
		}
		g.wrote.Store(g.wrote.Load() || q.callID != "")
		if err := w.Write(q.body...); err != nil {
			// The worker goes or is gone; its end tells each call that was sent.
			g.logger.Debug("frame is not written", "err", err)
			<-stop
			return
		}
	}
}

// read handles the worker's frames until its pipe ends.
func (g *generation) read() {
	r := wire.NewFrameReader(g.p.frames)
	for {
		body, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			g.eof <- err
			return
		}
		f, err := parseFrame(body)
		if err != nil {
			g.logger.Warn("worker sent a malformed frame", "err", err, "bytes", len(body))
			continue
		}
		g.handle(f)
	}
}

func (g *generation) handle(f Frame) {
	switch f.Type {
	case wire.FrameReady:
		g.readyOnce.Do(func() { g.becomeReady(f) })
	case wire.FrameBootError:
		var e wire.Error
		if err := wire.Unmarshal(f.Error, &e); err != nil {
			e = wire.Error{Type: "RuntimeError", Message: "worker failed to boot"}
		}
		g.bootError.Store(&BootError{Type: e.Type, Message: e.Message})
	case wire.FrameResult, wire.FrameError:
		g.s.drain() // what was printed before comes before
		g.s.cfg.Handler.Frame(f)
	default:
		g.s.cfg.Handler.Frame(f)
	}
}

func (g *generation) becomeReady(f Frame) {
	ready := Ready{WorkerID: g.p.id, Native: g.s.native() && f.Worker != "", Python: f.Python}
	if len(f.Capabilities) > 0 {
		if err := wire.Unmarshal(f.Capabilities, &ready.Capabilities); err != nil {
			g.logger.Warn("worker announced malformed capabilities", "err", err)
		}
	}
	g.s.stdout.SetMarker(f.OutputMarker)
	g.s.stderr.SetMarker(f.OutputMarker)
	g.s.cfg.Handler.Ready(ready)
	close(g.ready)
}
