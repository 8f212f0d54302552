//go:build faults

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/faulttest"
)

// fleet is many sandboxes.
type fleet struct {
	boxes   []*faulttest.Sandbox
	history *faulttest.History
	calls   [][]faulttest.Call // by sandbox
}

func newFleet(t *testing.T, d *faulttest.Daemon, n int) *fleet {
	t.Helper()
	f := &fleet{boxes: make([]*faulttest.Sandbox, n), calls: make([][]faulttest.Call, n), history: &faulttest.History{}}
	d.Template.Env = map[string]string{"FAULT_POLL": "0.5"}
	var wg sync.WaitGroup
	for lane := range 4 {
		wg.Go(func() { // ends with the last sandbox of its lane
			for i := lane; i < n; i += 4 {
				f.boxes[i] = d.NewSandbox()
			}
		})
	}
	wg.Wait()
	return f
}

// ask calls each sandbox once.
func (f *fleet) ask(d *faulttest.Daemon, round int, gate string) *ops {
	o := &ops{}
	for i, box := range f.boxes {
		call := faulttest.Call{ID: fmt.Sprintf("fleet-%d-%d", round, i), Sandbox: box.Name, N: i, Callable: faulttest.Work, Gate: gate}
		f.calls[i] = append(f.calls[i], call)
		o.ask(faulttest.Client{Daemon: d, Name: "first", Conn: i, History: f.history}, call)
	}
	return o
}

func (f *fleet) inFlight() int {
	n := 0
	for i, box := range f.boxes {
		n += box.Runs.InFlight(f.calls[i])
	}
	return n
}

func (f *fleet) pids() []string {
	var pids []string
	for _, box := range f.boxes {
		pids = append(pids, fmt.Sprint(box.ID(), box.RuntimePID(), box.WorkerPIDs()))
	}
	return pids
}

// TestR8_HundredSandboxes: each has a running call when the daemon is killed. The next daemon
// links all of them again, none is started anew, and each call has its result.
func TestR8_HundredSandboxes(t *testing.T) {
	many := 100
	if n, err := strconv.Atoi(os.Getenv("AGENTIX_FAULTS_SANDBOXES")); err == nil {
		many = n
	}
	d := start(t)
	d.Kill()
	empty := d.Start()
	f := newFleet(t, d, many)
	began := time.Now()
	f.ask(d, 0, "").wg.Wait()
	warm := time.Since(began)
	waiting := f.ask(d, 1, "gate")
	e := &era{t: t, d: d}
	e.await(func() bool { return f.inFlight() == many }, "a call in each sandbox")
	before := f.pids()
	d.Kill()
	began = time.Now()
	start := d.Start()
	for _, box := range f.boxes {
		box.Open("gate")
	}
	f.ask(d, 2, "").wg.Wait()
	linked := time.Since(began)
	waiting.wg.Wait()
	if os.Getenv("AGENTIX_FAULTS_LOG") != "" {
		t.Log(d.LogTail(1 << 30))
	}
	if after := f.pids(); !slices.Equal(before, after) {
		t.Errorf("processes changed: %v, %v", before, after)
	}
	t.Logf("%d sandboxes: ready after %s, all linked and called after %s; an empty daemon starts in %s, all calls took %s before", many,
		start.Round(time.Millisecond), linked.Round(time.Millisecond), empty.Round(time.Millisecond), warm.Round(time.Millisecond))
	if limit := 20 * (empty + warm); linked > limit {
		t.Errorf("all sandboxes were linked after %s, more than %s", linked, limit)
	}
	for i, box := range f.boxes {
		runs, bad := box.Runs.All()
		r := faulttest.Check(faulttest.Evidence{Calls: f.calls[i], Ops: f.history.Ops(), Runs: runs, Bad: bad, Journal: box.ReadJournal()})
		assertClean(t, r)
		if r.Mix["value"] != 3 {
			t.Errorf("sandbox %d: %v", i, r.Mix)
		}
	}
}

// TestSecondDaemon: another daemon on the same state directory ends at once, also while the
// first stands still; once the first is dead it takes over.
func TestSecondDaemon(t *testing.T) {
	d := start(t)
	box := d.NewSandbox()
	second := func() (string, error) {
		command := exec.CommandContext(t.Context(), d.Binaries.Daemon, "--state-dir", d.StateDir, "--socket", d.Dir+"/other.sock",
			"--runtime", d.Binaries.Runtime, "--provider", "process", "--insecure-process-as-root")
		output, err := command.CombinedOutput()
		return string(output), err
	}
	for _, still := range []bool{false, true} {
		if still {
			check(t, syscall.Kill(d.PID(), syscall.SIGSTOP))
		}
		output, err := second()
		if err == nil || !strings.Contains(output, d.StateDir) {
			t.Errorf("the second daemon ended with %v: %s", err, output)
		}
		if still {
			check(t, syscall.Kill(d.PID(), syscall.SIGCONT))
		}
	}
	if _, err := os.Stat(d.Dir + "/other.sock"); err == nil {
		t.Error("the second daemon has left a socket")
	}
	call := faulttest.Call{ID: "after", Sandbox: box.Name, Callable: faulttest.Work}
	if op := (faulttest.Client{Daemon: d}).Do(t.Context(), call); op.Outcome.Value == "" {
		t.Errorf("the first daemon answers %s", op.Outcome)
	}
	d.Kill()
	d.Start()
	call.ID = "later"
	if op := (faulttest.Client{Daemon: d}).Do(t.Context(), call); op.Outcome.Value == "" {
		t.Errorf("the next daemon answers %s", op.Outcome)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
