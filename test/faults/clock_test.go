//go:build faults

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentixd/agentixd/internal/faulttest"
)

// clockShift is clock.ShiftEnv, which only builds with the tag failpoint have.
const clockShift = "AGENTIX_CLOCK_SHIFT_FILE"

// TestR15_ClockJumps: the wall clock jumps by an hour, forth and back, under running calls that
// have a timeout, and while the daemon is down. No result, no order and no timeout changes.
func TestR15_ClockJumps(t *testing.T) {
	d := faulttest.NewDaemon(t, faulttest.Build(t, "failpoint"))
	file := filepath.Join(d.Dir, "shift")
	jump := func(seconds int) { check(t, os.WriteFile(file, fmt.Append(nil, seconds), 0o600)) }
	jump(0)
	d.Env = []string{clockShift + "=" + file}
	d.Start()
	e := newEra(t, d, random(t), "clock")
	for round, shift := range []int{3600, -3600, 0, -3600, 3600} {
		o, gate := &ops{}, fmt.Sprint("gate-", round)
		var running []faulttest.Call
		for n := range 20 {
			c := e.client("first")
			c.Timeout = faulttest.Patience
			running = append(running, e.call(round, n, gate))
			o.ask(c, running[n])
		}
		e.await(func() bool { return e.box.Runs.InFlight(running) == len(running) }, "calls to run")
		if round%2 == 1 {
			d.Kill()
		}
		jump(shift)
		if round%2 == 1 {
			d.Start()
		}
		for n := range 10 {
			o.ask(e.client("meanwhile"), e.call(round, 20+n, ""))
		}
		e.box.Open(gate)
		o.wg.Wait()
		for n := range 5 {
			c := e.client("later")
			c.By = faulttest.Way(n % 3)
			c.Timeout = faulttest.Patience
			c.Do(t.Context(), e.calls[e.rnd.IntN(len(e.calls)/30)*30+e.rnd.IntN(20)])
		}
	}
	report := e.end()
	t.Log(report.Text())
	assertClean(t, report)
	if report.Mix["value"] != len(e.calls) {
		t.Errorf("of %d calls only %d have results", len(e.calls), report.Mix["value"])
	}
}
