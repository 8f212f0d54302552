package workerproc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

// module is what workers of these tests run.
const module = `
import asyncio, os, re, subprocess, sys, threading, time
def pid(): return os.getpid()
def wait_for(path):
    while not os.path.exists(path): time.sleep(0.005)
    return os.getpid()
def spin(path):
    while not os.path.exists(path): pass
def hold(): re.match(r"(a+)+$", "a" * 64 + "b")
def started(path):
    open(path, "w").write(str(os.getpid()))
    while True: time.sleep(60)
def litter(path, how, hidden=""):
    code = "import os, sys, time\nopen(sys.argv[1], 'a').write(str(os.getpid()) + '\\n')\nprint('child', flush=True)\ntime.sleep(1000)"
    argv = [sys.executable, "-S", "-c", code, path]
    for i in range(2):
        subprocess.Popen(argv, start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                if hidden: os.closerange(0, 64); [os.open("/dev/null", os.O_RDWR) for _ in range(3)]
                os.execve(sys.executable, argv, {})
            os._exit(0)
    while not os.path.exists(path) or len(open(path).read().split()) < 4: time.sleep(0.005)
    print("from a thread's parent")
    t = threading.Thread(target=print, args=("from a thread",)); t.start(); t.join()
    if how == "die": os._exit(3)
    if how == "stay": time.sleep(1000)
    return os.getpid()
async def stubborn(path):
    try: await asyncio.sleep(1000)
    except asyncio.CancelledError:
        while not os.path.exists(path): await asyncio.sleep(0.005)
def bye():
    import atexit
    atexit.register(lambda: print("goodbye"))
`

func project(t *testing.T, cfg Config) Config {
	t.Helper()
	cfg.Project = t.TempDir()
	if err := os.WriteFile(filepath.Join(cfg.Project, "m.py"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// pool starts n workers of ours and waits for them.
func pool(t *testing.T, n int, grace time.Duration) (*Pool, *recorder) {
	t.Helper()
	cfg := project(t, native(t))
	cfg.Workers, cfg.StopGrace = n, grace
	p, rec, _ := supervise(t, cfg)
	wait(t, rec, &rec.ready, 1, "the workers")
	return p, rec
}

func ask(t *testing.T, p *Pool, alone bool, id, fn string, arguments ...any) {
	t.Helper()
	var list []string
	for _, a := range arguments {
		list = append(list, fmt.Sprintf("%q", a))
	}
	if err := p.Send(id, alone, callFrame(t, id, "m::"+fn, "[["+strings.Join(list, ",")+"],{}]")); err != nil {
		t.Fatal(err)
	}
}

// end waits for the frame that ended a call.
func (r *recorder) end(t *testing.T, id string) Frame {
	t.Helper()
	var found Frame
	await.True(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, f := range r.frames {
			if f.CallID == id && f.Type != wire.FrameLog {
				found = f
				return true
			}
		}
		return false
	}, "the end of call "+id)
	return found
}

// pidOf runs a call that tells the pid of its worker.
func pidOf(t *testing.T, p *Pool, r *recorder, id string) string {
	t.Helper()
	ask(t, p, false, id, "pid")
	return string(r.end(t, id).Value)
}

func (p *Pool) live() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for range p.all() {
		n++
	}
	return n
}

func TestCallsGoToTheWorkerWithTheFewest(t *testing.T) {
	p, rec := pool(t, 3, 0)
	for i := range 9 {
		ask(t, p, false, fmt.Sprint(i), "wait_for", filepath.Join(p.cfg.Project, fmt.Sprint("go", i)))
	}
	p.mu.Lock()
	for _, w := range p.slots {
		if len(w.flights) != 3 {
			t.Errorf("worker %s has %d of 9 calls", w.proc.id, len(w.flights))
		}
	}
	p.mu.Unlock()
	byPid := map[string]int{}
	for i := range 9 {
		if err := os.WriteFile(filepath.Join(p.cfg.Project, fmt.Sprint("go", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		byPid[string(rec.end(t, fmt.Sprint(i)).Value)]++
	}
	if len(byPid) != 3 {
		t.Errorf("ran in %v", byPid)
	}
}

func TestDeathOfAWorkerIsItsOwn(t *testing.T) {
	p, rec := pool(t, 2, 0)
	a, b := pidOf(t, p, rec, "a"), pidOf(t, p, rec, "b")
	if a == b {
		t.Fatal("one worker took both calls although the other was idle for longer")
	}
	path := filepath.Join(p.cfg.Project, "go")
	ask(t, p, false, "c", "wait_for", path)
	ask(t, p, false, "d", "wait_for", path)
	n, err := strconv.Atoi(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d := wait(t, rec, &rec.deaths, 1, "the death")
	if !slices.Equal(d.Calls, []string{"c"}) || d.Cause != wire.CauseSignal {
		t.Errorf("got %+v", d)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := string(rec.end(t, "d").Value); got != b {
		t.Errorf("the other call came from %s, not %s", got, b)
	}
	await.True(t, func() bool { return p.live() == 2 }, "the next worker")
	seen := map[string]bool{pidOf(t, p, rec, "e"): true, pidOf(t, p, rec, "f"): true}
	if len(seen) != 2 || seen[a] || !seen[b] {
		t.Errorf("calls run in %v; there were %s, dead, and %s", seen, a, b)
	}
}

// TestBusyWorkersAreAvoided has a worker with fewer calls compute, in Python and with the
// interpreter held, beside one that only waits.
func TestBusyWorkersAreAvoided(t *testing.T) {
	for _, fn := range []string{"spin", "hold"} {
		t.Run(fn, func(t *testing.T) {
			p, rec := pool(t, 2, 200*time.Millisecond)
			path := filepath.Join(p.cfg.Project, "go")
			ask(t, p, false, "busy", fn, []any{path}[:truth(fn == "spin")]...)
			for i := range 6 {
				ask(t, p, false, fmt.Sprint("w", i), "wait_for", path)
			}
			p.mu.Lock()
			busy := p.flights["busy"].worker
			p.mu.Unlock()
			await.True(t, func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return busy.busy || busy.stuck
			}, "the worker to be seen computing")
			p.mu.Lock()
			other := p.choose()
			p.mu.Unlock()
			if other == busy {
				t.Error("the next call would go to the worker that computes")
			}
			for i := range 4 { // more than the other has
				if got := pidOf(t, p, rec, fmt.Sprint("now", i)); got == strconv.Itoa(busy.proc.Pid) {
					t.Error("a call went to the worker that computes")
				}
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if fn == "hold" { // nothing but a kill ends it
				return
			}
			rec.end(t, "busy")
		})
	}
}

func TestBootFailureOfOnePlaceIsNotThatOfAll(t *testing.T) {
	cfg := project(t, native(t))
	cfg.Workers = 2
	// The first interpreter does not start, every other does.
	script := filepath.Join(cfg.Project, "python")
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/sh\nmkdir %s/first 2>/dev/null && { sleep 0.3; exit 3; }\nexec %s \"$@\"\n", cfg.Project, python)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil { //nolint:gosec // It is to be run.
		t.Fatal(err)
	}
	cfg.Python = script
	p, rec, _ := supervise(t, cfg)
	ask(t, p, false, "a", "pid") // waits until both were tried
	rec.end(t, "a")
	if e := wait(t, rec, &rec.boots, 1, "the boot error"); len(e.Calls) > 0 {
		t.Errorf("calls ended although a worker was ready: %v", e.Calls)
	}
	await.True(t, func() bool { return p.live() == 2 }, "both workers")
}

func TestForeignWorkersAreAPoolToo(t *testing.T) {
	cfg := foreign("ready")
	cfg.Workers = 2
	p, rec, _ := supervise(t, cfg)
	wait(t, rec, &rec.ready, 1, "the workers")
	for _, id := range []string{"a", "b"} {
		body, err := wire.Marshal(map[string]any{
			"type": "call", "call_id": id, "callable": "t::echo", "arguments": []byte("\x80\x04]K\x07a\x85}\x86."),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Send(id, false, body); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b"} {
		rec.end(t, id)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.from[0] == rec.from[1] {
		t.Error("one worker had both calls")
	}
}

// TestCallsOfNeighboursMayHaveAnEmptyID: frames that are no call have none either.
func TestCallsOfNeighboursMayHaveAnEmptyID(t *testing.T) {
	p, rec := pool(t, 2, 0)
	if err := p.Tell("", []byte("\x81\xa4type\xa4ping")); err != nil {
		t.Fatal(err)
	}
	ask(t, p, false, "", "pid")
	rec.end(t, "")
	ask(t, p, false, "", "wait_for", "/nonexistent")
	if !p.Unsend("") && p.Cancel("") == NotThere {
		t.Error("the call is not there")
	}
}
