package workerproc

import (
	"os"
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

func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (r *recorder) printed(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output[id]
}

func (p *Pool) lonelyWorkers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.alone)
}

func TestCallAloneHasAWorkerOfItsOwn(t *testing.T) {
	p, rec := pool(t, 1, 0)
	shared := pidOf(t, p, rec, "shared")
	seen := map[string]bool{shared: true}
	for _, id := range []string{"a", "b"} {
		ask(t, p, true, id, "pid")
		pid := string(rec.end(t, id).Value)
		if seen[pid] || !gone(pid) {
			t.Errorf("call %s ran in %s, which others had (%v) or which is there still", id, pid, seen)
		}
		seen[pid] = true
	}
	if again := pidOf(t, p, rec, "again"); again != shared {
		t.Errorf("the shared worker was %s and is %s", shared, again)
	}
}

// TestCallAloneLeavesNothing ends a call that left processes in sessions of their own and orphans
// without an environment and an open file, in each way that a call can end.
func TestCallAloneLeavesNothing(t *testing.T) {
	for _, how := range []string{"return", "die", "stay", "kill", "keeper"} {
		t.Run(how, func(t *testing.T) {
			p, rec := pool(t, 1, shortGrace)
			path := filepath.Join(p.cfg.Project, "litter")
			what, hidden := how, "hidden"
			if how == "kill" || how == "keeper" {
				what = "stay"
			}
			if how == "keeper" { // who kills it has to leave a trace to be found by
				hidden = ""
			}
			ask(t, p, true, "c", "litter", path, what, hidden)
			pids := litter(t, path)
			await.True(t, func() bool { return strings.Contains(rec.printed("c"), "a thread\n") }, "the output")
			switch how {
			case "return":
				f := rec.end(t, "c")
				pids = append(pids, string(f.Value))
			case "die":
				if d := wait(t, rec, &rec.deaths, 1, "the death"); !slices.Equal(d.Calls, []string{"c"}) || *d.Returncode != 3 {
					t.Errorf("got %+v", d)
				}
			case "stay":
				p.Cancel("c")
				await.True(t, func() bool { return rec.hasStopped("c") }, "the call to stop")
			case "kill", "keeper":
				p.mu.Lock()
				pid := strconv.Itoa(p.flights["c"].worker.proc.Pid)
				p.mu.Unlock()
				if how == "kill" { // the worker itself is the keeper's first child
					b, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
					if err != nil {
						t.Fatal(err)
					}
					pid = strings.Fields(string(b))[0]
				}
				kill(t, pid)
				if d := wait(t, rec, &rec.deaths, 1, "the death"); !slices.Equal(d.Calls, []string{"c"}) || d.Cause != wire.CauseSignal {
					t.Errorf("got %+v", d)
				}
			}
			for _, pid := range pids {
				if !gone(pid) {
					t.Errorf("process %s is there although the call has ended", pid)
				}
			}
			out := rec.printed("c")
			for _, line := range []string{"child", "from a thread's parent", "from a thread"} {
				if !strings.Contains(out, line+"\n") {
					t.Errorf("the output of the call has no %q: %q", line, out)
				}
			}
			if other := rec.printed(""); other != "" {
				t.Errorf("output without a call: %q", other)
			}
			await.True(t, func() bool { return p.lonelyWorkers() == 0 }, "the worker to be forgotten")
		})
	}
}

func TestGoodbyeOfACallAloneIsHeard(t *testing.T) {
	p, rec := pool(t, 1, 0)
	ask(t, p, true, "c", "bye")
	rec.end(t, "c")
	if out := rec.printed("c"); out != "goodbye\n" {
		t.Errorf("got %q before the outcome", out)
	}
}

func TestCallAloneThatDoesNotStart(t *testing.T) {
	cfg := project(t, native(t))
	p, rec, _ := supervise(t, cfg)
	wait(t, rec, &rec.ready, 1, "the worker")
	p.cfg.Python = "/nonexistent/python3" // of the next one
	ask(t, p, true, "c", "pid")
	if e := wait(t, rec, &rec.boots, 1, "the boot error"); !slices.Equal(e.Calls, []string{"c"}) {
		t.Errorf("got %+v", e)
	}
	await.True(t, func() bool { return p.lonelyWorkers() == 0 }, "the worker to be forgotten")
}

func TestCallAloneIsTakenBackWhileItsWorkerBoots(t *testing.T) {
	cfg := project(t, native(t))
	p, rec, _ := supervise(t, cfg)
	wait(t, rec, &rec.ready, 1, "the worker")
	for range 5 {
		ask(t, p, true, "c", "pid")
		if !p.Unsend("c") && p.Cancel("c") == NotThere {
			t.Error("the call is not there")
		}
		await.True(t, func() bool { return p.lonelyWorkers() == 0 }, "the worker to go")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued != 0 || len(p.flights) != 0 {
		t.Errorf("%d bytes and %d calls are left", p.queued, len(p.flights))
	}
}

func TestCallsAloneAreBounded(t *testing.T) {
	cfg := project(t, native(t))
	cfg.Workers = 1
	p, rec, _ := supervise(t, cfg)
	wait(t, rec, &rec.ready, 1, "the worker")
	p.mu.Lock()
	for range wire.MaxIsolated { // as if so many ran
		p.alone[newWorker(p)] = struct{}{}
	}
	p.mu.Unlock()
	ask(t, p, true, "c", "pid")
	p.mu.Lock()
	if len(p.lonely) != 1 {
		t.Error("one more worker was started")
	}
	for w := range p.alone {
		delete(p.alone, w)
		break
	}
	p.startAlone()
	p.mu.Unlock()
	rec.end(t, "c")
	p.mu.Lock()
	clear(p.alone)
	p.mu.Unlock()
}

// TestForeignCallAlone: a neighbour's worker for one call.
func TestForeignCallAlone(t *testing.T) {
	p, rec, _ := supervise(t, foreign("ready"))
	wait(t, rec, &rec.ready, 1, "the worker")
	body, err := wire.Marshal(map[string]any{
		"type": "call", "call_id": "c", "callable": "t::echo", "arguments": []byte("\x80\x04]K\x07a\x85}\x86."),
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := p.Send("c", true, body); err != nil {
		t.Fatal(err)
	}
	rec.end(t, "c")
	t.Logf("a call alone took %s", time.Since(began))
}
