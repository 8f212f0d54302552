//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/faulttest"
)

const (
	gatedCalls  = 44 // of each round: they run, and wait for their gate, when the kill comes
	racingCalls = 6  // come at any moment around the kill
	inFlight    = 40 // at least so many are proved to run at the kill
)

// kill is what a round kills.
type kill struct{ daemon, worker, runtime bool }

func (k kill) String() string {
	var names []string
	for _, victim := range []struct {
		killed bool
		name   string
	}{{k.daemon, "daemon"}, {k.worker, "worker"}, {k.runtime, "runtime"}} {
		if victim.killed {
			names = append(names, victim.name)
		}
	}
	return strings.Join(names, "+")
}

// era is the life of one sandbox over many rounds, with all evidence of it.
type era struct {
	t       *testing.T
	d       *faulttest.Daemon
	rnd     *rand.Rand
	box     *faulttest.Sandbox
	follow  *faulttest.Follower
	history *faulttest.History
	name    string
	calls   []faulttest.Call
	counted int                       // calls of rounds, without probes
	kills   map[string]int            // rounds by what was killed
	mixes   map[string]map[string]int // outcomes by what was killed
	restart []time.Duration
	proved  int // fewest calls in flight at a kill
	dead    bool
}

func newEra(t *testing.T, d *faulttest.Daemon, rnd *rand.Rand, name string) *era {
	t.Helper()
	d.Template.Workers = int32(1 + rnd.IntN(3))
	return newEraIn(t, d, rnd, name, d.NewSandbox())
}

// newEraIn is newEra in a sandbox that is there.
func newEraIn(t *testing.T, d *faulttest.Daemon, rnd *rand.Rand, name string, box *faulttest.Sandbox) *era {
	t.Helper()
	e := &era{
		t: t, d: d, rnd: rnd, box: box, history: &faulttest.History{}, name: name,
		kills: map[string]int{}, mixes: map[string]map[string]int{}, proved: gatedCalls,
	}
	e.follow = e.box.Follow()
	return e
}

// ops waits for clients.
type ops struct {
	wg  sync.WaitGroup
	mu  sync.Mutex
	all []faulttest.Op
}

func (o *ops) ask(c faulttest.Client, call faulttest.Call) {
	o.wg.Go(func() { // ends with the op, which has its patience
		op := c.Do(context.Background(), call)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = append(o.all, op)
	})
}

func (e *era) client(name string) faulttest.Client {
	return faulttest.Client{Daemon: e.d, Name: name, Conn: e.rnd.IntN(100), History: e.history}
}

func (e *era) call(round, n int, gate string) faulttest.Call {
	c := faulttest.Call{
		ID: fmt.Sprintf("%s-%d-%d", e.name, round, n), Sandbox: e.box.Name, N: e.rnd.IntN(1000),
		Callable: faulttest.Work, Gate: gate, Round: round,
	}
	if n%5 == 0 {
		c.Callable = faulttest.WorkOnThread
	}
	e.calls = append(e.calls, c)
	return c
}

// round has 50 calls, and kills when at least 40 of them run.
func (e *era) round(round int, k kill) {
	e.t.Helper()
	e.warm(round)
	gate, o := fmt.Sprintf("gate-%d", round), &ops{}
	var gated, racing []faulttest.Call
	for n := range gatedCalls {
		gated = append(gated, e.call(round, n, gate))
		c := e.client("first")
		if n%3 == 0 {
			c.By = faulttest.BySubmit
		}
		o.ask(c, gated[n])
	}
	for n := range racingCalls {
		racing = append(racing, e.call(round, gatedCalls+n, ""))
	}
	e.await(func() bool { return e.box.Runs.InFlight(gated) == gatedCalls }, "calls to run")
	for n := range 6 { // a second observer joins
		c := e.client("second")
		c.By = faulttest.Way(n % 2)
		o.ask(c, gated[e.rnd.IntN(gatedCalls)])
	}
	workers, runtime := e.box.WorkerPIDs(), e.box.RuntimePID()
	for _, call := range racing {
		c, delay := e.client("racing"), time.Duration(e.rnd.IntN(8000))*time.Microsecond
		o.wg.Go(func() { // ends with the op
			<-time.After(delay)
			o.ask(c, call)
		})
	}
	<-time.After(time.Duration(e.rnd.IntN(8000)) * time.Microsecond) // the kill comes at any moment
	e.strike(k, workers, runtime)
	if !k.worker && !k.runtime {
		if now := e.box.Runs.InFlight(gated); now < inFlight {
			e.t.Fatalf("round %d: only %d calls were in flight", round, now)
		}
	}
	e.recover(k, gate)
	o.wg.Wait()
	for range 3 { // and someone asks later, also for calls of earlier rounds
		e.client("later").Do(e.t.Context(), gated[e.rnd.IntN(gatedCalls)])
		e.client("much later").Do(e.t.Context(), e.calls[e.rnd.IntN(len(e.calls))])
		c := e.client("by name")
		c.By = faulttest.ByName
		c.Do(e.t.Context(), e.calls[e.rnd.IntN(len(e.calls))])
	}
	e.count(round, k, o)
}

// warm waits until a worker takes calls: those that wait for one end when it cannot start,
// as one that is killed while it starts.
func (e *era) warm(round int) {
	e.t.Helper()
	for n := 0; ; n++ {
		op := e.client("probe").Do(e.t.Context(), e.call(round, gatedCalls+racingCalls+n, ""))
		switch {
		case op.Outcome.Value != "":
			return
		case n == 100 || op.Outcome.Hung != "":
			e.t.Fatalf("round %d: no worker takes calls: %s; %s", round, op.Outcome, e.d.LogTail(3000))
		}
	}
}

// strike kills what is to be killed, in any order.
func (e *era) strike(k kill, workers []int, runtime int) {
	var victims []func()
	if k.daemon {
		victims = append(victims, e.d.Kill)
	}
	if k.runtime {
		victims = append(victims, func() { _ = syscall.Kill(runtime, syscall.SIGKILL) })
		e.dead = true
	}
	if k.worker {
		one := e.rnd.IntN(2 * len(workers)) // beyond their number: all of them
		victims = append(victims, func() {
			for n, pid := range workers {
				if one >= len(workers) || one == n {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		})
	}
	e.rnd.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, strike := range victims {
		strike()
	}
}

// recover starts the daemon again and lets the functions go on, in any order.
func (e *era) recover(k kill, gate string) {
	early := e.rnd.IntN(2) == 0
	if early {
		e.box.Open(gate)
	}
	if k.daemon {
		if e.rnd.IntN(4) == 0 { // results come while nobody is there
			<-time.After(time.Duration(e.rnd.IntN(50)) * time.Millisecond)
		}
		e.restart = append(e.restart, e.d.Start())
	}
	if !early {
		e.box.Open(gate)
	}
}

func (e *era) count(round int, k kill, o *ops) {
	e.kills[k.String()]++
	mix := e.mixes[k.String()]
	if mix == nil {
		mix = map[string]int{}
		e.mixes[k.String()] = mix
	}
	seen := map[string]bool{}
	for _, op := range o.all {
		if op.Outcome.Hung != "" {
			e.t.Errorf("round %d: call %s of client %s: %s", round, op.Call, op.Client, op.Outcome)
		}
		if !seen[op.Call] {
			seen[op.Call] = true
			mix[op.Outcome.Kind()]++
		}
	}
	e.counted += len(seen)
	if len(seen) != gatedCalls+racingCalls {
		e.t.Errorf("round %d: %d calls", round, len(seen))
	}
}

// end checks all evidence and deletes the sandbox.
func (e *era) end() faulttest.Report {
	e.t.Helper()
	journal := e.box.ReadJournal()
	last := uint64(0)
	if len(journal) > 0 {
		last = journal[len(journal)-1].Seq
	}
	followed, err := e.follow.Stop(last)
	if err != nil {
		e.t.Error(err)
	}
	runs, bad := e.box.Runs.All()
	report := faulttest.Check(faulttest.Evidence{
		Calls: e.calls, Ops: e.history.Ops(), Runs: runs, Bad: bad, Journal: journal, Followed: followed, RuntimeKilled: e.dead,
	})
	e.box.Delete()
	return report
}

func (e *era) await(cond func() bool, what string) {
	e.t.Helper()
	deadline := time.NewTimer(faulttest.Patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			e.t.Fatalf("waited in vain for %s; %s", what, e.d.LogTail(3000))
		}
	}
}
