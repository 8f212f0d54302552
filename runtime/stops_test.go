package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime"
	"github.com/agentixd/agentixd/runtime/wire"
)

const stops = `
import asyncio, logging, os, subprocess, sys, time
def pid(): return os.getpid()
def goes_on(path):
    p = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"], start_new_session=True)
    open(path, "w").write(f"{os.getpid()} {p.pid}")
    while True: time.sleep(60)
def until(path):
    while not os.path.exists(path): time.sleep(0.005)
    return os.getpid()
async def asleep(): await asyncio.sleep(1000)
def speaks():
    print("printed")
    subprocess.run([sys.executable, "-S", "-c", "print('child')"])
    logging.getLogger("app").warning("logged")
    return os.getpid()
`

// retiring is a daemon session that is told about stopped calls.
func (s *server) retiring(last *daemon) *daemon {
	s.t.Helper()
	return s.connect(last, func(_ *daemon, a *wire.Auth) { a.Capabilities = []string{wire.CapRetire, wire.CapIsolation} })
}

func (d *daemon) cancel(id string) {
	d.client.Emit(wire.NamespaceRPC, wire.EventCancel, wire.CallRef{CallID: id})
}

// pidsIn are the numbers that a function wrote to a file.
func pidsIn(t *testing.T, path string) []string {
	t.Helper()
	var pids []string
	await.True(t, func() bool {
		b, err := os.ReadFile(path)
		pids = strings.Fields(string(b))
		return err == nil && len(pids) == 2
	}, "the function to start")
	return pids
}

func goneProcess(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestP4_DeadlineKillsWhatGoesOn(t *testing.T) {
	s := start(t, map[string]string{"stops": stops}, func(c *runtime.Config) { c.StopGrace = 300 * time.Millisecond })
	d := s.retiring(nil)
	before := d.run("before", "stops::pid", `[[],{}]`)
	path := filepath.Join(t.TempDir(), "pids")
	d.send(wire.Call{CallID: "c", Callable: "stops::goes_on", Arguments: fmt.Appendf(nil, `[[%q],{}]`, path), Encoding: wire.EncodingJSON, TimeoutMS: 1500})
	pids := pidsIn(t, path)
	if _, e := d.outcome("c"); e == nil || e.Type != wire.ErrDeadlineExceeded {
		t.Errorf("got %+v", e)
	}
	await.True(t, func() bool { _, ok := d.hasStopped("c"); return ok }, "the call to stop")
	if n, _ := d.hasStopped("c"); n != 1 {
		t.Errorf("told as stopped after %d outcomes", n)
	}
	for _, pid := range pids {
		if !goneProcess(pid) {
			t.Errorf("process %s is there", pid)
		}
	}
	if after := d.run("after", "stops::pid", `[[],{}]`); after == before {
		t.Error("the worker is the same")
	}
	d.check()
}

func TestP4_OtherCallsOfAStoppedOnesWorkerGoOn(t *testing.T) {
	s := start(t, map[string]string{"stops": stops}, func(c *runtime.Config) { c.StopGrace = 200 * time.Millisecond })
	d := s.retiring(nil)
	dir := t.TempDir()
	d.call("c", "stops::goes_on", fmt.Sprintf(`[["%s/pids"],{}]`, dir))
	pids := pidsIn(t, dir+"/pids")
	d.call("beside", "stops::until", fmt.Sprintf(`[["%s/go"],{}]`, dir))
	d.run("begun", "stops::pid", `[[],{}]`)
	d.cancel("c")
	if _, e := d.outcome("c"); e == nil || !e.Cancelled {
		t.Errorf("got %+v", e)
	}
	n := 0
	await.True(t, func() bool { // the next worker is there
		n++
		return d.run(fmt.Sprint("n", n), "stops::pid", `[[],{}]`) != pids[0]
	}, "another worker")
	// A session that comes now is told what still runs.
	again := s.retiring(d)
	if r := again.lastReady(); !slices.Equal(r.StillRunning, []string{"c"}) || !slices.Contains(r.Capabilities, wire.CapIsolation) {
		t.Errorf("got %+v", r)
	}
	again.client.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"beside"}, Fence: true, Epoch: 1})
	if goneProcess(pids[0]) {
		t.Error("the worker was ended under the other call")
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := again.value("beside"); got != pids[0] {
		t.Errorf("got %s, want %s", got, pids[0])
	}
	await.True(t, func() bool { _, ok := again.hasStopped("c"); return ok }, "the call to stop")
	for _, pid := range pids {
		if !goneProcess(pid) {
			t.Errorf("process %s is there", pid)
		}
	}
	if r := s.retiring(again).lastReady(); len(r.StillRunning) > 0 {
		t.Errorf("got %+v", r)
	}
}

// TestEveryStoppedCallIsToldAsStopped: whatever is cancelled, and whenever.
func TestEveryStoppedCallIsToldAsStopped(t *testing.T) {
	s := start(t, map[string]string{"stops": stops}, nil)
	d := s.retiring(nil)
	d.call("unsent", "stops::asleep", `[[],{}]`) // perhaps before there is a worker
	d.cancel("unsent")
	d.run("done", "stops::pid", `[[],{}]`)
	for _, id := range []string{"done", "unknown"} {
		d.cancel(id)
	}
	d.call("task", "stops::asleep", `[[],{}]`)
	d.run("begun", "stops::pid", `[[],{}]`)
	d.cancel("task")
	d.send(wire.Call{CallID: "late", Callable: "stops::asleep", Arguments: []byte(`[[],{}]`), Encoding: wire.EncodingJSON, TimeoutMS: 1})
	for id, outcomes := range map[string]int{"unsent": 1, "done": 1, "unknown": 0, "task": 1, "late": 1} {
		await.True(t, func() bool { _, ok := d.hasStopped(id); return ok }, id+" to be told as stopped")
		if n, _ := d.hasStopped(id); n != outcomes {
			t.Errorf("%s was told as stopped after %d outcomes, want %d", id, n, outcomes)
		}
	}
	if _, ok := d.hasStopped("begun"); ok {
		t.Error("a call that returned was told as stopped")
	}
	d.check()
}

func TestDaemonsThatDoNotKnowItAreNotToldOfStops(t *testing.T) {
	s := start(t, map[string]string{"stops": stops}, nil)
	d, knows := s.connect(nil, nil), s.retiring(nil)
	knows.call("c", "stops::asleep", `[[],{}]`)
	knows.cancel("c")
	await.True(t, func() bool { _, ok := knows.hasStopped("c"); return ok }, "the call to stop")
	if _, ok := d.hasStopped("c"); ok {
		t.Error("it was told")
	}
	if r := d.lastReady(); len(r.Capabilities)+len(r.StillRunning) > 0 {
		t.Errorf("got %+v", r)
	}
}

func TestIsolatedCall(t *testing.T) {
	s := start(t, map[string]string{"stops": stops}, nil)
	d := s.retiring(nil)
	shared := d.run("shared", "stops::pid", `[[],{}]`)
	d.send(wire.Call{CallID: "c", Callable: "stops::speaks", Arguments: []byte(`[[],{}]`), Encoding: wire.EncodingJSON, Isolation: wire.IsolationProcess})
	pid := d.value("c")
	if pid == shared || !goneProcess(pid) {
		t.Errorf("it ran in %s; the shared worker is %s", pid, shared)
	}
	if got := d.outputOf("c", d.place("c")); got != "printed\nchild\n" {
		t.Errorf("its output before its end: %q", got)
	}
	d.mu.Lock()
	logged := slices.ContainsFunc(d.records, func(r wire.Record) bool { return r.Kind == wire.RecordLog && r.CallID == "c" })
	d.mu.Unlock()
	if !logged {
		t.Error("its log record is not there")
	}
	d.send(wire.Call{CallID: "bad", Callable: "stops::pid", Arguments: []byte(`[[],{}]`), Encoding: wire.EncodingJSON, Isolation: "vm"})
	if _, e := d.outcome("bad"); e == nil || !strings.Contains(e.Message, "isolation") {
		t.Errorf("got %+v", e)
	}
	d.check()
}
