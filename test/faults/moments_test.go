//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/internal/faulttest"
)

// moments are the failpoints of a call's way, with how often each is passed before the end.
var moments = map[string]int{
	"call/afterRecord": 7, "call/afterSend": 7, "call/beforeCommit": 7, "call/afterCommit": 7, "call/onResume": 0,
	"events/beforeAppend": 9, "events/afterAppend": 9,
	"store/beforeCommit": 25, "store/afterCommit": 25, "store/beforeSync": 0, "store/afterSync": 0,
}

// TestR1_R5_DeathAtEachMoment: the daemon dies at a named moment under load; and another one
// is told there that something failed which was done.
func TestR1_R5_DeathAtEachMoment(t *testing.T) {
	d := faulttest.NewDaemon(t, faulttest.Build(t, "failpoint"))
	d.Start()
	rnd := random(t)
	repeats := 1
	if long() {
		repeats = 10
	}
	n := 0
	for point, passes := range moments {
		for range repeats {
			n++
			t.Run(point, func(t *testing.T) {
				e := newEra(t, d, rnd, fmt.Sprint("moment", n))
				d.Kill()
				terms := fmt.Sprintf("%d*off->1*exit", passes+rnd.IntN(5))
				if passes == 0 {
					terms = "1*exit"
				}
				d.Env = []string{failpoint.EnvVar + "=" + point + "=" + terms}
				d.Exec()
				o := &ops{}
				for i := range 40 {
					o.ask(e.client("first"), e.call(0, i, ""))
				}
				select {
				case <-d.Exited():
				case <-time.After(faulttest.Patience):
					t.Errorf("the daemon did not die at %s", point)
					d.Kill()
				}
				if code := d.ExitCode(); code != 137 {
					t.Errorf("the daemon ended with %d: %s", code, d.LogTail(1000))
				}
				d.Env = nil
				d.Start()
				o.wg.Wait()
				report := e.end()
				t.Log(report.Text())
				assertClean(t, report)
				if report.Mix["value"] == 0 { // calls that were written down and not sent have none: their arguments are not kept
					t.Errorf("no call has a result: %v", report.Mix)
				}
			})
		}
	}
}

// TestR1_DoneAndYetAnError: the store and the journal say that a write failed which was done.
func TestR1_DoneAndYetAnError(t *testing.T) {
	for _, point := range []string{"store/afterCommit", "events/afterAppend", "store/beforeCommit"} {
		t.Run(point, func(t *testing.T) {
			d := faulttest.NewDaemon(t, faulttest.Build(t, "failpoint"))
			d.Env = []string{failpoint.EnvVar + "=" + point + "=40*off->1*error(told)->3*off->1*error(told)->2*off->2*error(told)"}
			d.Start()
			e := newEra(t, d, random(t), "told")
			o := &ops{}
			for i := range 60 {
				o.ask(e.client("first"), e.call(0, i, ""))
			}
			o.wg.Wait()
			d.Env = nil
			d.Kill()
			d.Start()
			for _, call := range e.calls {
				e.client("later").Do(t.Context(), call)
			}
			report := e.end()
			t.Log(report.Text())
			assertClean(t, report)
		})
	}
}

// TestR9_DeathUnderACreate: a daemon that dies while it makes a sandbox leaves nothing.
func TestR9_DeathUnderACreate(t *testing.T) {
	for _, point := range []string{"create/afterRecord", "create/beforeReady"} {
		t.Run(point, func(t *testing.T) {
			d := faulttest.NewDaemon(t, faulttest.Build(t, "failpoint"))
			d.Env = []string{failpoint.EnvVar + "=" + point + "=1*exit"}
			d.Start()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("the create took too long"))
			defer cancel()
			if _, err := d.Sandboxes().CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{Sandbox: d.Template}); err == nil {
				t.Error("the create did not fail")
			}
			<-d.Exited()
			d.Env = nil
			d.Start()
			e := &era{t: t, d: d}
			e.await(func() bool {
				list, err := d.Sandboxes().ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{})
				entries, dirErr := os.ReadDir(d.StateDir + "/process")
				return err == nil && dirErr == nil && len(list.GetSandboxes()) == 0 && len(entries) == 0 && !strings.Contains(processes(), d.StateDir)
			}, "nothing to be left")
		})
	}
}

// processes are the command lines of all processes but daemons.
func processes() string {
	var all strings.Builder
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err.Error()
	}
	for _, entry := range entries {
		if line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline"); err == nil && !strings.Contains(string(line), "agentixd\x00") {
			all.Write(line)
		}
	}
	return all.String()
}
