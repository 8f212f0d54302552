package workerproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentixd/agentixd/runtime/output"
	"github.com/agentixd/agentixd/runtime/reaper"
	"github.com/agentixd/agentixd/runtime/wire"
)

// boot waits until the worker is ready. It returns why it is not, and may leave it runninw.
func (w *worker) boot(ctx context.Context) *BootError {
	timer := time.NewTimer(w.p.cfg.BootTimeout)
	defer timer.Stop()
	select {
	case <-w.booted:
		return nil
	case <-ctx.Done():
		return &BootError{Type: "RuntimeError", Message: "the runtime is stopping"}
	case <-w.condemned:
		return &BootError{Type: "RuntimeError", Message: errCondemned.Error()}
	case <-timer.C:
		return &BootError{Type: "TimeoutError", Message: fmt.Sprintf("worker was not ready within %s", w.p.cfg.BootTimeout)}
	case <-w.proc.Done():
		w.proc.frames.finish() // it may have said why, or been ready, just before
		err := <-w.eof
		w.p.cfg.Logger.Debug("worker ended before it was ready", "err", err)
		w.eof <- err // for serve, should it have been ready
	case err := <-w.eof:
		if err != nil {
			return &BootError{Type: "RuntimeError", Message: fmt.Sprintf("worker spoke no frames before it was ready: %v", err)}
		}
		w.await(exitAfterEOF)
		w.eof <- err // for serve, should it have been ready
	}
	select {
	case <-w.booted:
		return nil
	default:
	}
	if failure := w.bootError.Load(); failure != nil {
		return failure
	}
	select {
	case <-w.proc.Done():
		text, _ := describe(w.proc.Returncode(), false)
		return &BootError{Type: "RuntimeError", Message: "worker ended before it was ready: " + text}
	default:
		return &BootError{Type: "RuntimeError", Message: "worker closed its pipe before it was ready"}
	}
}

// explain adds the last lines the worker wrote.
func (w *worker) explain(message string) string {
	if last := w.last.String(); last != "" {
		return message + "\n" + last
	}
	return message
}

// serve waits for the end of a ready worker. natural says that it was not ended on purpose.
func (w *worker) serve(ctx context.Context) (death Death, natural bool) {
	death.WorkerID = w.proc.id
	select {
	case <-w.proc.Done():
	case <-ctx.Done():
		death.Message = "the runtime is stopping"
		w.shutdown(shutdownWait, terminateWait)
		return death, false
	case <-w.settled:
		w.shutdown(goodbyeWait, 0)
		return death, false
	case <-w.condemned:
		death.Message, death.Cause = "runtime worker was ended: the code of a stopped call did not end", wire.CauseSignal
		w.killTree()
		return death, false
	case err := <-w.eof:
		if err != nil {
			w.p.cfg.Logger.Warn("worker broke its frame pipe", "err", err)
		}
		if !w.await(exitAfterEOF) {
			w.kill()
			death.Cause, death.Message = wire.CauseExit, "runtime worker exited: stdout closed"
			return death, true
		}
	}
	code := w.proc.Returncode()
	text, cause := describe(code, code == -int(syscall.SIGKILL) && w.p.oomKilled(w.proc.oomKills))
	death.Returncode, death.Cause, death.Message = &code, cause, "runtime worker exited: "+text
	if cause == wire.CauseOOM {
		death.Limit = memoryLimit()
	}
	return death, true
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
func (w *worker) await(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.proc.Done():
		return true
	case <-timer.C:
		return false
	case <-w.condemned:
		return false
	}
}

// kill ends the worker and its group; that of one call with all that it started.
func (w *worker) kill() {
	if w.alone {
		w.killTree()
		return
	}
	w.killGroup()
}

func (w *worker) killGroup() {
	if err := w.proc.Signal(syscall.SIGKILL, true); err != nil {
		w.p.cfg.Logger.Error("worker is not killed", "err", err)
		return
	}
	<-w.proc.Done()
}

// killTree ends the worker and every process that it started.
func (w *worker) killTree() {
	tree := reaper.Tree{Root: w.proc.Process, Marker: envWorkerID + "=" + w.proc.id}
	for _, pipe := range []*output.Pipe{w.stdout, w.stderr} {
		if pipe != nil {
			tree.Pipes = append(tree.Pipes, pipe.Inode())
		}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), treeWait, errors.New("its processes did not end in time"))
	defer cancel()
	if err := w.p.cfg.Reaper.KillTree(ctx, tree); err != nil {
		w.p.cfg.Logger.Error("processes of a worker are left", "worker", w.proc.id, "err", err)
	}
	w.killGroup()
}

// treeWait bounds how long the processes of a worker may take to be gone.
const treeWait = 5 * time.Second

// shutdown asks the worker to end, then makes it.
func (w *worker) shutdown(ask, terminate time.Duration) {
	body, err := wire.Marshal(map[string]string{"type": wire.FrameShutdown})
	if err == nil {
		w.p.mu.Lock()
		w.p.queued += len(body)
		w.push(queued{body: [][]byte{body}, size: len(body)})
		w.p.mu.Unlock()
		if w.await(ask) {
			return
		}
	}
	if terminate > 0 {
		if err := w.proc.Signal(syscall.SIGTERM, true); err == nil && w.await(terminate) {
			return
		}
	}
	w.kill()
}

// write hands queued frames to the worker.
func (w *worker) write(stop <-chan struct{}) {
	out := wire.NewFrameWriter(w.proc.toWorker)
	for {
		select {
		case <-stop:
			return
		default:
		}
		q, ok := w.next()
		if !ok {
			select {
			case <-stop:
				return
			case <-w.wake:
			}
			continue
		}
		w.wrote.Store(w.wrote.Load() || q.call)
		if err := out.Write(q.body...); err != nil {
			// The worker goes or is gone; its end tells each call that was sent.
			w.p.cfg.Logger.Debug("frame is not written", "err", err)
			<-stop
			return
		}
	}
}

// read handles the worker's frames until its pipe ends.
func (w *worker) read() {
	r := wire.NewFrameReader(w.proc.frames)
	for {
		body, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			w.eof <- err
			return
		}
		f, err := parseFrame(body)
		if err != nil {
			w.p.cfg.Logger.Warn("worker sent a malformed frame", "err", err, "bytes", len(body))
			continue
		}
		w.handle(f)
	}
}

func (w *worker) handle(f Frame) {
	switch f.Type {
	case wire.FrameReady:
		w.readyOnce.Do(func() { w.becomeReady(f) })
	case wire.FrameBootError:
		var e wire.Error
		if err := wire.Unmarshal(f.Error, &e); err != nil {
			e = wire.Error{Type: "RuntimeError", Message: "worker failed to boot"}
		}
		w.bootError.Store(&BootError{Type: e.Type, Message: e.Message})
	case wire.FrameResult, wire.FrameError, wire.FrameStopped:
		w.drain() // what was printed before comes before
		deliver, stopped := w.p.answered(w, &f)
		if deliver {
			w.p.cfg.Handler.Frame(w.proc.id, f)
		}
		if stopped {
			w.p.cfg.Handler.Stopped([]string{f.CallID})
		}
	case wire.FramePong:
		w.p.mu.Lock()
		w.pinged, w.stuck = false, false
		w.p.mu.Unlock()
	default:
		if w.alone {
			f.CallID = w.only
		}
		w.p.cfg.Handler.Frame(w.proc.id, f)
	}
}

func (w *worker) becomeReady(f Frame) {
	w.ready = Ready{WorkerID: w.proc.id, Native: w.p.native() && f.Worker != "", Python: f.Python}
	if len(f.Capabilities) > 0 {
		if err := wire.Unmarshal(f.Capabilities, &w.ready.Capabilities); err != nil {
			w.p.cfg.Logger.Warn("worker announced malformed capabilities", "err", err)
		}
	}
	if w.stdout != nil {
		w.stdout.SetMarker(f.OutputMarker)
		w.stderr.SetMarker(f.OutputMarker)
	}
	w.p.mu.Lock()
	w.tellsStopped = w.ready.Native && slices.Contains(w.ready.Capabilities, wire.CapStopped)
	w.p.mu.Unlock()
	close(w.booted)
}

// readOutput reads what the worker and its children write until nobody does any more, which may
// be long after the worker is gone.
func (w *worker) readOutput() {
	left := &atomic.Int32{}
	left.Store(2)
	for name, pipe := range map[string]*output.Pipe{"stdout": w.stdout, "stderr": w.stderr} {
		if pipe == nil {
			continue
		}
		w.p.reading(pipe, func() {
			if err := pipe.Run(); err != nil {
				w.p.cfg.Logger.Error("output is not read any more", "stream", name, "err", err)
			}
			if left.Add(-1) == 0 {
				w.p.cfg.Handler.OutputEnded(w.proc.id)
			}
		})
	}
}

// emit takes pieces of output.
func (w *worker) emit(stream string) func(string, []byte) {
	return func(callID string, b []byte) {
		_, _ = w.last.Write(b)
		if w.alone {
			callID = w.only
		}
		w.p.cfg.Handler.Output(w.proc.id, stream, callID, b)
	}
}

// drain reads all output that was written until now.
func (w *worker) drain() {
	if w.stdout == nil {
		return
	}
	if err := errors.Join(w.stdout.Drain(), w.stderr.Drain()); err != nil {
		w.p.cfg.Logger.Error("output is not drained", "err", err)
	}
}

// relay copies a foreign worker's stderr to ours and keeps its tail.
func (w *worker) relay() {
	buf := make([]byte, 4096)
	for {
		n, err := w.proc.stderr.Read(buf)
		_, _ = w.last.Write(buf[:n])
		_, _ = os.Stderr.Write(buf[:n]) // a lost line of a foreign worker's console is no loss
		if err != nil {
			return
		}
	}
}
