package sandboxes_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// pausing is a provider whose pauses can be made to fail. done = it fails after it was done.
type pausing struct {
	*faulty
	pause, resume func() (done bool, err error)
}

type pausingHandle struct {
	providers.Handle
	p *pausing
}

func (p *pausing) Create(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
	h, err := p.faulty.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return pausingHandle{h, p}, nil
}

func (h pausingHandle) Status(ctx context.Context) (providers.Status, error) {
	return h.Handle.(providers.Statuser).Status(ctx)
}

func (h pausingHandle) Pause(ctx context.Context) error {
	return h.do(h.p.pause, func() error { return h.Handle.(providers.Pauser).Pause(ctx) })
}

func (h pausingHandle) Resume(ctx context.Context) error {
	return h.do(h.p.resume, func() error { return h.Handle.(providers.Pauser).Resume(ctx) })
}

func (pausingHandle) do(fault func() (bool, error), act func() error) error {
	if fault == nil {
		return act()
	}
	done, err := fault()
	if done || err == nil {
		err = errors.Join(err, act())
	}
	return err
}

func (r *rig) pause(id string) {
	r.t.Helper()
	s, err := r.Pause(r.t.Context(), id)
	if err != nil || s.State != sandboxes.Paused {
		r.t.Fatalf("pause: %+v, %v", s, err)
	}
}

func (r *rig) resume(id string) {
	r.t.Helper()
	s, err := r.Resume(r.t.Context(), id)
	if err != nil || s.State != sandboxes.Ready {
		r.t.Fatalf("resume: %+v, %v", s, err)
	}
}

// frozen is what the provider says.
func (r *rig) frozen(id string) bool {
	r.t.Helper()
	list, err := r.provider.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(st providers.Status) bool { return st.ID == id })
	return i >= 0 && list[i].Running && list[i].Paused
}

func TestPauseAndResume(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "box"})
	l, err := r.Link("box")
	if err != nil {
		t.Fatal(err)
	}
	session := l.Session()
	for range 2 {
		r.pause("box")
		r.pause("box")
		if !r.frozen("box") {
			t.Error("the provider says that it runs")
		}
		_, err = r.Link("box")
		if e := refusal(t, err, errs.FailedPrecondition, errs.SandboxNotReady); e.Metadata["state"] != "PAUSED" {
			t.Errorf("metadata %v", e.Metadata)
		}
		r.resume("box")
		r.resume("box")
		if r.frozen("box") {
			t.Error("the provider says that it is paused")
		}
		if l, err = r.Link("box"); err != nil || l.Session() != session {
			t.Errorf("the link did not outlive the pause: %v, %v", l, err)
		}
	}
	r.wantLifecycle("box", "CREATING", "READY", "PAUSED", "READY", "PAUSED", "READY")
	r.pause("box")
	if err := r.Delete(t.Context(), "box", false); err != nil {
		t.Fatal(err)
	}
	r.assertNothingLeft()
	_, err = r.Pause(t.Context(), "box")
	wantReason(t, err, errs.NotFound, errs.SandboxNotFound)
}

// TestPauseOverRestart: the next daemon finds it PAUSED, and connects once it is resumed.
func TestPauseOverRestart(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "box"})
	r.pause("box")
	r.stop()
	r.boot()
	if got := r.state("box"); got != sandboxes.Paused || !r.frozen("box") {
		t.Fatalf("it is %s", got)
	}
	r.resume("box")
	if l, err := r.Link("box"); err != nil || !l.Connected() {
		t.Errorf("link %v, %v", l, err)
	}
}

func TestPausedSandboxThatDies(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "box"})
	r.pause("box")
	r.kill("box")
	await.True(t, func() bool { return r.state("box") == sandboxes.Failed }, "the failure")
	_, err := r.Resume(t.Context(), "box")
	if e := refusal(t, err, errs.FailedPrecondition, errs.SandboxNotReady); e.Metadata["state"] != "FAILED" {
		t.Errorf("metadata %v", e.Metadata)
	}
}

// TestPauseFails: what could not be paused goes on, what could not be resumed stays, also if
// the provider did it and yet told an error.
func TestPauseFails(t *testing.T) {
	var p *pausing
	r := newRig(t, func(o *sandboxes.Options) {
		p = &pausing{faulty: o.Provider.(*faulty)}
		o.Provider = p
	})
	r.create(sandboxes.CreateRequest{ID: "box"})
	for _, done := range []bool{false, true} {
		p.pause = func() (bool, error) { return done, errors.New("innards") }
		_, err := r.Pause(t.Context(), "box")
		wantReason(t, err, errs.Unavailable, errs.ProviderUnavailable)
		if _, err := r.Link("box"); err != nil || r.frozen("box") {
			t.Errorf("done %v: %v, frozen %v", done, err, r.frozen("box"))
		}
		p.pause = nil
		r.pause("box")
		p.resume = func() (bool, error) { return done, errors.New("innards") }
		_, err = r.Resume(t.Context(), "box")
		wantReason(t, err, errs.Unavailable, errs.ProviderUnavailable)
		if got := r.state("box"); got != sandboxes.Paused || !r.frozen("box") {
			t.Errorf("done %v: %s, frozen %v", done, got, r.frozen("box"))
		}
		p.resume = nil
		r.resume("box")
	}
}

// TestPausesAreSettled: a daemon that died between record and freezer, and a hand from
// outside: the record is what counts.
func TestPausesAreSettled(t *testing.T) {
	r := newRig(t, func(o *sandboxes.Options) { o.CheckInterval = 20 * time.Millisecond })
	r.create(sandboxes.CreateRequest{ID: "box"})
	outside := func() providers.Pauser {
		h, err := r.provider.Get(t.Context(), "box")
		if err != nil {
			t.Fatal(err)
		}
		return h.(providers.Pauser)
	}
	if err := outside().Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return !r.frozen("box") }, "a READY sandbox to go on")
	r.pause("box")
	if err := outside().Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return r.frozen("box") }, "a PAUSED sandbox to stand still")
	r.stop()
	r.open()
	if err := outside().Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.run()
	if got := r.state("box"); got != sandboxes.Paused || !r.frozen("box") {
		t.Errorf("after a restart it is %s, frozen %v", got, r.frozen("box"))
	}
	r.resume("box")
}

// TestOperationsAreSerialised: whatever comes together is done one after the other.
func TestOperationsAreSerialised(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "box"})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var err error
			switch i % 4 {
			case 0:
				_, err = r.Pause(t.Context(), "box")
			case 1:
				_, err = r.Resume(t.Context(), "box")
			default:
				team := "x"
				_, err = r.Update(t.Context(), "box", sandboxes.Update{SetLabels: map[string]*string{"team": &team}})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := r.state("box"); (got == sandboxes.Paused) != r.frozen("box") {
		t.Errorf("it is %s, frozen %v", got, r.frozen("box"))
	}
	r.resume("box")
	if l, err := r.Link("box"); err != nil || !l.Connected() {
		t.Errorf("link %v, %v", l, err)
	}
}

// TestIdleClockStandsStillWhilePaused: a pause is neither activity nor idleness; an expiry goes on.
func TestIdleClockStandsStillWhilePaused(t *testing.T) {
	r, c, _ := newTimeRig(t)
	r.create(sandboxes.CreateRequest{ID: "box", IdleTimeout: time.Hour})
	r.create(sandboxes.CreateRequest{ID: "due", TTL: 2 * time.Hour})
	c.Advance(30 * time.Minute)
	r.pause("box")
	r.pause("due")
	c.Advance(5 * time.Hour)
	r.gone("due")
	r.stop()
	r.boot()
	if got := r.state("box"); got != sandboxes.Paused {
		t.Fatalf("it is %s", got)
	}
	r.resume("box")
	c.Advance(29 * time.Minute)
	if got := r.state("box"); got != sandboxes.Ready {
		t.Fatalf("it is %s", got)
	}
	c.Advance(time.Minute)
	r.gone("box")
}
