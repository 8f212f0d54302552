//go:build faults

package faults

import (
	"syscall"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/faulttest"
)

// TestR3_StoppedProcesses: the daemon, the runtime or the worker stands still under running
// calls and new ones, and goes on. All calls have their results, and ran once.
func TestR3_StoppedProcesses(t *testing.T) {
	still := 2 * time.Second
	if long() {
		still = 20 * time.Second
	}
	e := newEra(t, start(t), random(t), "stops")
	for round, victim := range []string{"daemon", "runtime", "worker"} {
		pids := map[string][]int{"daemon": {e.d.PID()}, "runtime": {e.box.RuntimePID()}, "worker": e.box.WorkerPIDs()}[victim]
		o, gate := &ops{}, "gate-"+victim
		running := make([]faulttest.Call, 0, 20)
		for n := range 20 {
			running = append(running, e.call(round, n, gate))
			o.ask(e.client("first"), running[n])
		}
		e.await(func() bool { return e.box.Runs.InFlight(running) == len(running) }, "calls to run")
		for _, pid := range pids {
			check(t, syscall.Kill(pid, syscall.SIGSTOP))
		}
		e.box.Open(gate)
		for n := range 20 {
			o.ask(e.client("meanwhile"), e.call(round, 20+n, ""))
		}
		<-time.After(still)
		for _, pid := range pids {
			check(t, syscall.Kill(pid, syscall.SIGCONT))
		}
		o.wg.Wait()
	}
	report := e.end()
	t.Log(report.Text())
	assertClean(t, report)
	if report.Mix["value"] != len(e.calls) {
		t.Errorf("of %d calls only %d have results", len(e.calls), report.Mix["value"])
	}
}

// TestR2_StoppedRuntimeDeadDaemon: calls wait in the socket of a runtime that stands still when
// their daemon dies. Whatever the next daemon is told of them, the other observers are told,
// too, and none begins after its end.
func TestR2_StoppedRuntimeDeadDaemon(t *testing.T) {
	e := newEra(t, start(t), random(t), "halt")
	for round := range 3 {
		pid, o := e.box.RuntimePID(), &ops{}
		check(t, syscall.Kill(pid, syscall.SIGSTOP))
		var calls []faulttest.Call
		for n := range 20 {
			calls = append(calls, e.call(round, n, ""))
			o.ask(e.client("first"), calls[n])
		}
		e.accepted(calls)
		e.d.Kill()
		if round == 1 { // the next daemon comes while it stands still
			e.d.Exec()
			<-time.After(200 * time.Millisecond)
		}
		check(t, syscall.Kill(pid, syscall.SIGCONT))
		if round != 1 {
			e.d.Exec()
		}
		e.d.WaitReady()
		o.wg.Wait()
	}
	report := e.end()
	t.Log(report.Text())
	assertClean(t, report)
}
