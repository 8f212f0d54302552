package workerproc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

const shortGrace = 300 * time.Millisecond

func gone(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func (r *recorder) hasStopped(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.stopped, id)
}

// pidIn reads the pid that a function wrote to a file.
func pidIn(t *testing.T, path string) string {
	t.Helper()
	var pid string
	await.True(t, func() bool {
		b, err := os.ReadFile(path)
		pid = string(b)
		return err == nil && pid != ""
	}, "the function to start")
	return pid
}

// litter reads the pids of the processes that a call left: children in sessions of their own, and
// orphans without an environment.
func litter(t *testing.T, path string) []string {
	t.Helper()
	var pids []string
	await.True(t, func() bool {
		b, err := os.ReadFile(path)
		pids = strings.Fields(string(b))
		return err == nil && len(pids) == 4
	}, "four processes")
	return pids
}

func TestStoppedCallAloneCostsItsWorker(t *testing.T) {
	p, rec := pool(t, 1, shortGrace)
	path := filepath.Join(p.cfg.Project, "litter")
	before := pidOf(t, p, rec, "before")
	ask(t, p, false, "c", "litter", path, "stay")
	pids := litter(t, path)
	if got := p.Cancel("c"); got != Stopping {
		t.Fatalf("got %v", got)
	}
	await.True(t, func() bool { return rec.hasStopped("c") }, "the call to stop")
	for _, pid := range append(pids, before) {
		if !gone(pid) {
			t.Errorf("process %s is there although its call has stopped", pid)
		}
	}
	if after := pidOf(t, p, rec, "after"); after == before {
		t.Error("the worker is the same")
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.deaths) > 0 || len(rec.stopped) != 1 {
		t.Errorf("deaths %+v, stopped %v", rec.deaths, rec.stopped)
	}
}

func TestStoppedCallBesideOthersRetiresItsWorker(t *testing.T) {
	p, rec := pool(t, 1, shortGrace)
	file := filepath.Join(p.cfg.Project, "pid")
	ask(t, p, false, "goes-on", "started", file)
	old := pidIn(t, file)
	other := filepath.Join(p.cfg.Project, "go")
	ask(t, p, false, "beside", "wait_for", other)
	await.True(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.flights["beside"].written }, "the other call to be there")
	p.Cancel("goes-on")
	await.True(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.former) == 1 && p.slots[0] != nil }, "another worker")
	if now := pidOf(t, p, rec, "new"); now == old {
		t.Error("a retired worker got a call")
	}
	if gone(old) || rec.hasStopped("goes-on") {
		t.Error("the worker ended under a call of somebody else")
	}
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := rec.end(t, "beside"); f.Type != wire.FrameResult || string(f.Value) != old {
		t.Errorf("the other call got %+v", f)
	}
	await.True(t, func() bool { return rec.hasStopped("goes-on") }, "the call to stop")
	if !gone(old) {
		t.Error("the retired worker is there")
	}
}

func TestCallThatStopsInTimeCostsNothing(t *testing.T) {
	p, rec := pool(t, 1, time.Minute)
	before := pidOf(t, p, rec, "before")
	path := filepath.Join(p.cfg.Project, "go")
	ask(t, p, false, "sync", "wait_for", path)
	ask(t, p, false, "async", "stubborn", path)
	await.True(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.flights["sync"].written && p.flights["async"].written
	}, "both to be there")
	pidOf(t, p, rec, "between") // they have begun: frames are handled in order
	p.Cancel("sync")
	p.Cancel("async")
	pidOf(t, p, rec, "meanwhile")
	if rec.hasStopped("sync") || rec.hasStopped("async") {
		t.Fatal("code that runs counts as stopped")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return rec.hasStopped("sync") && rec.hasStopped("async") }, "both to stop")
	if after := pidOf(t, p, rec, "after"); after != before {
		t.Errorf("the worker was %s and is %s", before, after)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.former) > 0 || len(p.flights) > 0 {
		t.Errorf("%d retired workers, %d calls", len(p.former), len(p.flights))
	}
}

// TestWorkersOwnDeadline: the worker's timer runs out first, and says so.
func TestWorkersOwnDeadline(t *testing.T) {
	p, rec := pool(t, 1, shortGrace)
	file := filepath.Join(p.cfg.Project, "pid")
	body, err := wire.Marshal(map[string]any{
		"type": wire.FrameCall, "call_id": "c", "callable": "m::started", "encoding": "json", "timeout_ms": 200,
		"arguments": []byte(`[["` + file + `"],{}]`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send("c", false, body); err != nil {
		t.Fatal(err)
	}
	old := pidIn(t, file)
	if f := rec.end(t, "c"); !f.Running {
		t.Errorf("got %+v", f)
	}
	await.True(t, func() bool { return rec.hasStopped("c") }, "the call to stop")
	if !gone(old) {
		t.Error("the worker is there")
	}
}

// TestHeldInterpreterIsKilled: a worker that answers nothing any more.
func TestHeldInterpreterIsKilled(t *testing.T) {
	p, rec := pool(t, 1, shortGrace)
	before := pidOf(t, p, rec, "before")
	ask(t, p, false, "c", "hold")
	await.True(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.flights["c"].written }, "the call to be there")
	p.Cancel("c")
	await.True(t, func() bool { return rec.hasStopped("c") }, "the call to stop")
	if after := pidOf(t, p, rec, "after"); after == before {
		t.Error("the worker is the same")
	}
}

func TestKillOfARetiredWorkerEndsItsCalls(t *testing.T) {
	p, rec := pool(t, 1, shortGrace)
	file := filepath.Join(p.cfg.Project, "pid")
	ask(t, p, false, "goes-on", "started", file)
	old := pidIn(t, file)
	ask(t, p, false, "beside", "wait_for", "/nonexistent")
	await.True(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.flights["beside"].written }, "the other call to be there")
	p.Cancel("goes-on")
	await.True(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.former) == 1 }, "the worker to be retired")
	kill(t, old)
	d := wait(t, rec, &rec.deaths, 1, "the death")
	if !slices.Equal(d.Calls, []string{"beside"}) {
		t.Errorf("got %+v", d)
	}
	await.True(t, func() bool { return rec.hasStopped("goes-on") }, "the call to stop")
	await.True(t, func() bool { return p.live() == 1 }, "one worker")
}
