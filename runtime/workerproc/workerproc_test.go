package workerproc

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/keeper"
	"github.com/agentixd/agentixd/runtime/reaper"
	"github.com/agentixd/agentixd/runtime/wire"
	pyworker "github.com/agentixd/agentixd/worker"
)

func TestMain(m *testing.M) {
	keeper.Run()
	goleak.VerifyTestMain(m)
}

// recorder is a handler that keeps what it is told.
type recorder struct {
	mu      sync.Mutex
	ready   []Ready
	deaths  []Death
	boots   []BootError
	frames  []Frame
	from    []string // the worker of each frame
	stopped []string
	output  map[string]string // by call id
	ended   []string          // workers whose output has ended
}

func (r *recorder) Output(_, _, callID string, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.output == nil {
		r.output = map[string]string{}
	}
	r.output[callID] += string(b)
}
func (r *recorder) OutputEnded(w string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, w)
}
func (r *recorder) State(ok bool, x Ready, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.ready); ok && (n == 0 || r.ready[n-1].WorkerID != x.WorkerID) {
		r.ready = append(r.ready, x)
	}
}
func (r *recorder) Stopped(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = append(r.stopped, ids...)
}
func (r *recorder) Died(d Death) { r.mu.Lock(); defer r.mu.Unlock(); r.deaths = append(r.deaths, d) }
func (r *recorder) BootFailed(e BootError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boots = append(r.boots, e)
}
func (r *recorder) Frame(w string, f Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Type == wire.FrameResult || f.Type == wire.FrameError || f.Type == wire.FrameLog {
		f.Value = append([]byte(nil), f.Value...)
		r.frames, r.from = append(r.frames, f), append(r.from, w)
	}
}

// count waits until there are n of something and returns the last one.
func wait[T any](t *testing.T, r *recorder, list *[]T, n int, what string) T {
	t.Helper()
	var last T
	await.True(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(*list) < n {
			return false
		}
		last = (*list)[n-1]
		return true
	}, what)
	return last
}

func supervise(t *testing.T, cfg Config) (*Pool, *recorder, func()) {
	t.Helper()
	s, rec := New(cfg), &recorder{}
	return s, rec, run(t, s, rec)
}

// run runs a pool with a handler that records.
func run(t *testing.T, s *Pool, rec *recorder) (stop func()) {
	t.Helper()
	cfg := &s.cfg
	cfg.Keeper = true
	cfg.Handler, cfg.Reaper, cfg.Logger = rec, reaper.New(false), slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	reapCtx, stopReaper := context.WithCancelCause(context.WithoutCancel(t.Context()))
	var reaping sync.WaitGroup
	reaping.Go(func() { cfg.Reaper.Run(reapCtx) })
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // ends with stop
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel(context.Canceled)
			if err := <-done; err != nil {
				t.Errorf("supervisor: %v", err)
			}
			stopReaper(context.Canceled)
			reaping.Wait()
		})
	}
	t.Cleanup(stop)
	return stop
}

func foreign(boot string) Config {
	return Config{Command: []string{"python3", "../testdata/foreign_worker.py", boot}}
}

func native(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	err := fs.WalkDir(pyworker.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(pyworker.FS, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return Config{ImportRoot: dir, Bootstrap: pyworker.Bootstrap}
}

func callFrame(t *testing.T, id, callable, arguments string) []byte {
	t.Helper()
	body, err := wire.Marshal(struct {
		Type string `msgpack:"type"`
		wire.Call
	}{wire.FrameCall, wire.Call{CallID: id, Callable: callable, Arguments: []byte(arguments), Encoding: wire.EncodingJSON}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestNativeWorkerBootsAndAnswers(t *testing.T) {
	s, rec, stop := supervise(t, native(t))
	if err := s.Send("c1", false, callFrame(t, "c1", "os::getpid", `[[], {}]`)); err != nil { // before it is ready
		t.Fatal(err)
	}
	f := wait(t, rec, &rec.frames, 1, "the result")
	if f.Type != wire.FrameResult || f.CallID != "c1" {
		t.Fatalf("got %+v", f)
	}
	pid := string(f.Value)
	if !rec.ready[0].Native || rec.ready[0].Python == "" || len(rec.ready[0].WorkerID) != 8 {
		t.Errorf("ready: %+v", rec.ready[0])
	}
	if b, err := os.ReadFile("/proc/" + pid + "/oom_score_adj"); err != nil || strings.TrimSpace(string(b)) != "500" {
		t.Errorf("oom_score_adj: %s, %v", b, err)
	}
	stop()
	if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, 0) == nil {
		t.Errorf("worker %s is still there", pid)
	}
	if len(rec.deaths) > 0 {
		t.Errorf("an orderly stop was reported as %+v", rec.deaths)
	}
}

func TestDeathsTellCodeAndCause(t *testing.T) {
	s, rec, _ := supervise(t, native(t))
	cases := []struct {
		callable, arguments string
		code                int
		cause, message      string
	}{
		{"os::_exit", `[[7], {}]`, 7, wire.CauseExit, "runtime worker exited: exit code 7"},
		{"signal::raise_signal", `[[15], {}]`, -15, wire.CauseSignal, "runtime worker exited: killed by signal 15"},
		{"signal::raise_signal", `[[9], {}]`, -9, wire.CauseSignal, "runtime worker exited: killed by signal 9 (likely OOM-killed)"},
	}
	for i, c := range cases {
		if err := s.Send(fmt.Sprint(i), false, callFrame(t, fmt.Sprint(i), c.callable, c.arguments)); err != nil {
			t.Fatal(err)
		}
		d := wait(t, rec, &rec.deaths, i+1, "the death")
		if d.Returncode == nil || *d.Returncode != c.code || d.Cause != c.cause || d.Message != c.message {
			t.Errorf("got %+v, want %+v", d, c)
		}
	}
	wait(t, rec, &rec.ready, len(cases)+1, "the next worker")
}

func TestForeignWorkerThatForksIsSeenToDie(t *testing.T) {
	s, rec, _ := supervise(t, foreign("ready"))
	wait(t, rec, &rec.ready, 1, "the worker")
	if rec.ready[0].Native {
		t.Error("a bare ready counts as native")
	}
	send(t, s, "t::fork_and_die")
	began := time.Now()
	d := wait(t, rec, &rec.deaths, 1, "the death")
	if *d.Returncode != 9 || time.Since(began) > 4*time.Second {
		t.Errorf("got %+v after %s, while its child held the pipe", d, time.Since(began))
	}
}

func TestForeignWorkerThatClosesItsPipeIsEnded(t *testing.T) {
	s, rec, _ := supervise(t, foreign("ready"))
	wait(t, rec, &rec.ready, 1, "the worker")
	send(t, s, "t::close_pipe")
	d := wait(t, rec, &rec.deaths, 1, "the death")
	if d.Returncode != nil || d.Message != "runtime worker exited: stdout closed" {
		t.Errorf("got %+v", d)
	}
}

// send calls a function of the foreign worker without arguments.
func send(t *testing.T, s *Pool, callable string) {
	t.Helper()
	body, err := wire.Marshal(map[string]any{
		"type": "call", "call_id": "c", "callable": callable, "arguments": []byte("\x80\x04)}\x86."),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send("c", false, body); err != nil {
		t.Fatal(err)
	}
}

func TestBootFailuresSayWhy(t *testing.T) {
	cases := map[string]struct{ kind, text string }{
		"exit":    {"RuntimeError", "worker ended before it was ready: exit code 3\nit cannot start"},
		"silent":  {"TimeoutError", "worker was not ready within 300ms"},
		"garbage": {"RuntimeError", "worker spoke no frames before it was ready: frame over the limit"},
		"error":   {"ImportError", "no module"},
	}
	for boot, want := range cases {
		t.Run(boot, func(t *testing.T) {
			cfg := foreign(boot)
			if boot == "silent" {
				cfg.BootTimeout = 300 * time.Millisecond
			}
			s, rec, _ := supervise(t, cfg)
			if err := s.Send("c1", false, []byte{0x80}); err != nil {
				t.Fatal(err)
			}
			e := wait(t, rec, &rec.boots, 1, "the boot error")
			if e.Type != want.kind || !strings.HasPrefix(e.Message, want.text) {
				t.Errorf("got %+v", e)
			}
			if len(e.Calls) != 1 || e.Calls[0] != "c1" {
				t.Errorf("waiting calls: %v", e.Calls)
			}
			if again := wait(t, rec, &rec.boots, 2, "another try"); again.Type != want.kind {
				t.Errorf("the next time: %+v", again)
			}
		})
	}
}

func TestMissingInterpreterSaysSo(t *testing.T) {
	_, rec, _ := supervise(t, Config{Python: "/nonexistent/python3"})
	e := wait(t, rec, &rec.boots, 1, "the boot error")
	if !strings.Contains(e.Message, "/nonexistent/python3") {
		t.Errorf("got %+v", e)
	}
}

func TestOversizedFrameIsRefused(t *testing.T) {
	if err := New(Config{Handler: &recorder{}}).Send("c", false, make([]byte, wire.MaxFrameBytes+1)); err == nil {
		t.Error("268435457 bytes were taken")
	}
}

func TestQueueIsBoundedAndCallsCanBeTakenBack(t *testing.T) {
	p := New(Config{Handler: &recorder{}})
	big := make([]byte, wire.MaxFrameBytes)
	for i, id := range []string{"a", "b"} {
		if err := p.Send(id, i == 0, big); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Send("c", false, []byte("x")); err == nil {
		t.Error("a third frame was taken over the limit")
	}
	if !p.Unsend("a") || p.Unsend("a") {
		t.Error("Unsend")
	}
	if err := p.Tell("", []byte("x")); err != nil {
		t.Error(err)
	}
	if !p.Unsend("b") || p.queued != 1 {
		t.Errorf("%d bytes are left", p.queued)
	}
}
