//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/internal/faulttest"
	"google.golang.org/protobuf/proto"
)

// steps are the failpoints in the life of a sandbox, by the operation that passes them.
var steps = map[string][]string{
	"create":  {"create/afterRecord", "create/afterDir", "create/afterSpawn", "create/beforeReady"},
	"delete":  {"delete/afterRecord", "delete/afterKill", "delete/beforeForget", "delete/afterForget"},
	"pause":   {"pause/afterRecord", "pause/afterFreeze"},
	"resume":  {"resume/afterRecord", "resume/afterThaw"},
	"refill":  {"create/afterRecord", "create/afterDir", "create/afterSpawn", "create/beforeReady", "pool/beforeFreeze", "pause/afterRecord", "pause/afterFreeze", "pool/afterFreeze"},
	"take":    {"pool/beforeThaw", "pool/afterThaw", "pool/beforeTake", "pool/afterTake"},
	"restart": {"reconcile/afterList", "reconcile/midAdopt"},
}

// life is a daemon whose sandboxes go through their operations.
type life struct {
	t    *testing.T
	d    *faulttest.Daemon
	engs func() []string // ids of what the engine has
}

func (l *life) templates() agentixv1.TemplateServiceClient {
	return agentixv1.NewTemplateServiceClient(l.d.Conn(0))
}

// list is the state of each sandbox that clients see.
func (l *life) list() map[string]agentixv1.SandboxState {
	l.t.Helper()
	page, err := l.d.Sandboxes().ListSandboxes(l.t.Context(), &agentixv1.ListSandboxesRequest{PageSize: 1000})
	check(l.t, err)
	all := map[string]agentixv1.SandboxState{}
	for _, s := range page.GetSandboxes() {
		all[strings.TrimPrefix(s.GetName(), "sandboxes/")] = s.GetState()
	}
	return all
}

// census waits until what the engine has is what clients see and what waits in full pools.
func (l *life) census(e *era) {
	l.t.Helper()
	e.await(func() bool {
		pools, err := l.templates().ListTemplates(l.t.Context(), &agentixv1.ListTemplatesRequest{})
		check(l.t, err)
		waiting := 0
		for _, p := range pools.GetTemplates() {
			if p.GetReady() != p.GetSize() || p.GetStarting() != 0 {
				return false
			}
			waiting += int(p.GetReady())
		}
		listed, have := l.list(), l.engs()
		for id, state := range listed {
			if !slices.Contains(have, id) || state != agentixv1.SandboxState_SANDBOX_STATE_READY && state != agentixv1.SandboxState_SANDBOX_STATE_PAUSED {
				return false
			}
		}
		return len(have) == len(listed)+waiting
	}, "the census to be clean")
}

// do begins an operation on the victim; the daemon dies under it.
func (l *life) do(ctx context.Context, operation, victim string) {
	name := "sandboxes/" + victim
	switch operation {
	case "create":
		_, _ = l.d.Sandboxes().CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{Sandbox: proto.CloneOf(l.d.Template)})
	case "delete":
		_, _ = l.d.Sandboxes().DeleteSandbox(ctx, &agentixv1.DeleteSandboxRequest{Name: name})
	case "pause":
		_, _ = l.d.Sandboxes().PauseSandbox(ctx, &agentixv1.PauseSandboxRequest{Name: name})
	case "resume":
		_, _ = l.d.Sandboxes().ResumeSandbox(ctx, &agentixv1.ResumeSandboxRequest{Name: name})
	case "refill":
		_, _ = l.templates().UpdateTemplate(ctx, &agentixv1.UpdateTemplateRequest{Template: &agentixv1.Template{Name: "templates/warm", Size: 2}})
	case "take":
		_, _ = l.d.Sandboxes().CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{Template: "templates/warm"}})
	}
}

// works makes sure that each sandbox of the list can be called, paused ones after their resume.
func (l *life) works() {
	l.t.Helper()
	for id, state := range l.list() {
		name := "sandboxes/" + id
		if state == agentixv1.SandboxState_SANDBOX_STATE_PAUSED {
			_, err := l.d.Sandboxes().ResumeSandbox(l.t.Context(), &agentixv1.ResumeSandboxRequest{Name: name})
			check(l.t, err)
		}
		ctx, cancel := context.WithTimeoutCause(l.t.Context(), faulttest.Patience, errors.New("no answer"))
		r, err := agentixv1.NewRemoteServiceClient(l.d.Conn(0)).Remote(ctx, &agentixv1.RemoteRequest{Sandbox: name, Callable: "math::factorial", Args: "[5]"})
		cancel()
		if err != nil || r.GetValue() != "120" {
			l.t.Errorf("%s, which was %s, answers %v, %v", id, state, r, err)
		}
	}
}

// round kills the daemon at one step, and looks at what is left.
func (l *life) round(n int, operation, point string) {
	t := l.t
	l.d.Template.Workers = 1
	box := l.d.NewSandbox()
	e := newEraIn(t, l.d, random(t), fmt.Sprint("life", n), box)
	victim := l.d.NewSandbox()
	if operation == "resume" {
		l.do(t.Context(), "pause", victim.ID())
	}
	waiting, inside := &ops{}, &ops{}
	ours := e.call(1, 0, "gate")
	waiting.ask(e.client("first"), ours)
	theirs := newEraIn(t, l.d, e.rnd, fmt.Sprint("victim", n), victim)
	if operation != "resume" {
		call := theirs.call(1, 0, "gate")
		inside.ask(theirs.client("first"), call)
		e.await(func() bool { return victim.Runs.InFlight([]faulttest.Call{call}) == 1 }, "a call in the victim")
	}
	e.await(func() bool { return box.Runs.InFlight([]faulttest.Call{ours}) == 1 }, "a call")
	l.d.Kill()
	l.d.Env = []string{failpoint.EnvVar + "=" + point + "=1*exit"}
	l.d.Exec()
	done := make(chan struct{})
	ctx, cancel := context.WithTimeoutCause(t.Context(), faulttest.Patience, errors.New("the operation is over"))
	go func() { // ends with the daemon
		defer close(done)
		if operation != "restart" {
			l.d.WaitReady()
			l.do(ctx, operation, victim.ID())
		}
	}()
	select {
	case <-l.d.Exited():
	case <-time.After(faulttest.Patience):
		t.Errorf("the daemon did not die at %s: %s", point, l.d.LogTail(2000))
		l.d.Kill()
	}
	cancel()
	l.d.Env = nil
	l.d.Start()
	<-done
	box.Open("gate")
	if operation != "delete" {
		victim.Open("gate")
	}
	if l.list()[victim.ID()] == agentixv1.SandboxState_SANDBOX_STATE_PAUSED {
		l.do(t.Context(), "resume", victim.ID())
	}
	waiting.wg.Wait() // every call is told its outcome
	inside.wg.Wait()
	l.census(e)
	after := &ops{} // and both can be called
	after.ask(e.client("first"), e.call(2, 0, ""))
	if operation != "delete" {
		after.ask(theirs.client("first"), theirs.call(2, 0, ""))
	}
	after.wg.Wait()
	if operation == "refill" {
		_, err := l.templates().UpdateTemplate(t.Context(), &agentixv1.UpdateTemplateRequest{Template: &agentixv1.Template{Name: "templates/warm", Size: 1}})
		check(t, err)
	}
	theirs.dead = operation == "delete"
	if theirs.dead { // and its journal gone
		if _, err := theirs.follow.Stop(0); err != nil {
			t.Log(err)
		}
	} else {
		assertClean(t, theirs.end())
	}
	report := e.end()
	assertClean(t, report)
	if report.Mix["value"] != len(e.calls) {
		t.Errorf("outcomes: %v", report.Mix)
	}
	l.works()
	for id := range l.list() {
		l.do(t.Context(), "delete", id)
	}
	l.census(e)
}

// TestR8_R9_DeathAtEachStep: the daemon dies at each step of create, delete, pause, resume,
// of filling a pool and of taking from it, and of taking over, with calls in flight. After a
// restart nothing is left that nobody knows, everything that is listed works, and every call
// was told its outcome.
func TestR8_R9_DeathAtEachStep(t *testing.T) {
	d := faulttest.NewDaemon(t, faulttest.Build(t, "failpoint"))
	d.Start()
	l := &life{t: t, d: d}
	l.engs = func() (ids []string) {
		entries, err := os.ReadDir(d.StateDir + "/process")
		check(l.t, err)
		for _, entry := range entries {
			ids = append(ids, entry.Name())
		}
		return ids
	}
	l.run(100)
}

// run goes through all steps once, in the long form until there were so many rounds.
func (l *life) run(rounds int) {
	t := l.t
	template := proto.CloneOf(l.d.Template)
	_, err := l.templates().CreateTemplate(t.Context(), &agentixv1.CreateTemplateRequest{TemplateId: "warm", Template: &agentixv1.Template{Sandbox: template, Size: 1}})
	check(t, err)
	defer func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), faulttest.Patience, errors.New("no answer"))
		defer cancel()
		if !l.d.Running() {
			l.d.Env = nil
			l.d.Start()
		}
		_, err := l.templates().DeleteTemplate(ctx, &agentixv1.DeleteTemplateRequest{Name: "templates/warm"})
		check(t, err)
	}()
	n := 0
	for {
		for _, operation := range slices.Sorted(maps.Keys(steps)) {
			for _, point := range steps[operation] {
				n++
				if !t.Run(fmt.Sprintf("%s at %s", operation, point), func(t *testing.T) {
					l.t = t
					l.round(n, operation, point)
				}) && long() {
					t.Fatal("the state is kept")
				}
			}
		}
		l.t = t
		if !long() || n >= rounds {
			t.Logf("%d rounds", n)
			return
		}
	}
}
