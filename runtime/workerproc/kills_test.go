package workerproc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

// TestOneOOMKillIsTheCauseOfOneDeath: another worker that is killed by hand was not killed for memory.
func TestOneOOMKillIsTheCauseOfOneDeath(t *testing.T) {
	cfg := project(t, native(t))
	cfg.Workers = 2
	var kills atomic.Uint64
	kills.Store(7) // of times before
	p, rec := New(cfg), &recorder{}
	p.oomKills = kills.Load
	run(t, p, rec)
	wait(t, rec, &rec.ready, 1, "the workers")
	a, b := pidOf(t, p, rec, "a"), pidOf(t, p, rec, "b")
	kills.Add(1)
	kill(t, a)
	wait(t, rec, &rec.deaths, 1, "the death")
	kill(t, b)
	wait(t, rec, &rec.deaths, 2, "the death")
	for i, want := range []string{wire.CauseOOM, wire.CauseSignal} {
		if got := rec.deaths[i].Cause; got != want {
			t.Errorf("death %d: got %s, want %s", i, got, want)
		}
	}
}

// TestDeathsOfCallsAloneTellCodeAndCause: as the keeper passes them on.
func TestDeathsOfCallsAloneTellCodeAndCause(t *testing.T) {
	p, rec := pool(t, 1, 0)
	for i, c := range []struct {
		callable string
		n, code  int
		cause    string
	}{
		{"os::_exit", 7, 7, wire.CauseExit}, {"signal::raise_signal", 15, -15, wire.CauseSignal},
		{"signal::raise_signal", 11, -11, wire.CauseSignal}, {"signal::raise_signal", 9, -9, wire.CauseSignal},
	} {
		id := fmt.Sprint("c", i)
		if err := p.Send(id, true, callFrame(t, id, c.callable, fmt.Sprintf("[[%d],{}]", c.n))); err != nil {
			t.Fatal(err)
		}
		d := wait(t, rec, &rec.deaths, i+1, "the death")
		if !slices.Equal(d.Calls, []string{id}) || d.Returncode == nil || *d.Returncode != c.code || d.Cause != c.cause {
			t.Errorf("got %+v, want %+v", d, c)
		}
	}
}

// TestR3_KillAtEveryStep kills workers at random moments, while calls of all kinds come, run, are
// cancelled and end: each call ends exactly once, nothing is left, and the pool is whole again.
func TestR3_KillAtEveryStep(t *testing.T) {
	p, rec := pool(t, 2, 50*time.Millisecond)
	file := filepath.Join(p.cfg.Project, "go")
	const rounds = 12
	var ids []string
	for i := range rounds {
		for j := range 6 {
			id := fmt.Sprintf("c%d-%d", i, j)
			fn, arguments := "pid", []any(nil)
			if j%2 == 1 {
				fn, arguments = "wait_for", []any{file}
			}
			ask(t, p, j == 5, id, fn, arguments...)
			ids = append(ids, id)
			if j == 3 && !p.Unsend(id) {
				p.Cancel(id)
			}
		}
		p.mu.Lock()
		var pids []int
		for w := range p.all() {
			pids = append(pids, w.proc.Pid)
		}
		p.mu.Unlock()
		if len(pids) > 0 {
			_ = syscall.Kill(pids[i%len(pids)], syscall.SIGKILL) // it may have ended
		}
		<-time.After(time.Duration(i*i) * time.Millisecond) // another moment each time
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		whole := p.slots[0] != nil && p.slots[1] != nil
		return whole && len(p.flights)+len(p.waiting)+len(p.lonely)+len(p.alone)+len(p.former) == 0 && p.queued == 0
	}, "all calls to end")
	ends := map[string]int{}
	rec.mu.Lock()
	for _, f := range rec.frames {
		if f.Type != wire.FrameLog {
			ends[f.CallID]++
		}
	}
	for _, d := range rec.deaths {
		for _, id := range d.Calls {
			ends[id]++
		}
	}
	for _, b := range rec.boots {
		for _, id := range b.Calls {
			ends[id]++
		}
	}
	rec.mu.Unlock()
	for _, id := range ids {
		if strings.HasSuffix(id, "-3") { // the caller of a stopped call has its answer
			continue
		}
		if ends[id] != 1 {
			t.Errorf("call %s ended %d times", id, ends[id])
		}
	}
	seen := map[string]bool{pidOf(t, p, rec, "x"): true, pidOf(t, p, rec, "y"): true}
	if len(seen) != 2 {
		t.Errorf("calls run in %v", seen)
	}
	for pid := range seen {
		if _, err := strconv.Atoi(pid); err != nil {
			t.Error(err)
		}
	}
}
