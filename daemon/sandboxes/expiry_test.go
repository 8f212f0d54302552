package sandboxes_test

import (
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// served is the calls of a sandbox, as a test wants them.
type served struct {
	mu sync.Mutex
	a  sandboxes.Activity
}

func (s *served) set(a sandboxes.Activity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.a = a
}

// newTimeRig is a rig whose clock moves only when told.
func newTimeRig(t *testing.T) (*rig, *clock.Fake, *served) {
	t.Helper()
	c, s := clock.NewFake(noon), &served{}
	r := newRig(t, func(o *sandboxes.Options) {
		o.Clock = c
		o.Activity = func(string) sandboxes.Activity {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.a
		}
	})
	return r, c, s
}

func (r *rig) gone(id string) {
	r.t.Helper()
	await.True(r.t, func() bool { return r.state(id) == "" }, "the deletion of "+id)
}

func TestExpiry(t *testing.T) {
	r, c, _ := newTimeRig(t)
	made := r.create(sandboxes.CreateRequest{ID: "ttl", TTL: time.Hour})
	if want := noon.Add(time.Hour); !made.ExpireTime.Equal(want) {
		t.Errorf("expire_time = %s, want %s", made.ExpireTime, want)
	}
	r.create(sandboxes.CreateRequest{ID: "time", ExpireTime: noon.Add(2 * time.Hour)})
	r.create(sandboxes.CreateRequest{ID: "none"})
	c.Advance(time.Hour - time.Second)
	for _, id := range []string{"ttl", "time", "none"} {
		if got := r.state(id); got != sandboxes.Ready {
			t.Errorf("%s is %s", id, got)
		}
	}
	c.Advance(time.Second)
	r.gone("ttl")
	if got := r.lostReason("ttl"); got != "EXPIRED" {
		t.Errorf("its calls were told %q", got)
	}
	r.wantLifecycle("ttl", "CREATING", "READY", "STOPPING EXPIRED", "STOPPED EXPIRED")
	r.stop() // it is kept in the store
	r.boot()
	if got := r.state("time"); got != sandboxes.Ready {
		t.Errorf("time is %s after a restart", got)
	}
	c.Advance(time.Hour)
	r.gone("time")
	if got := r.state("none"); got != sandboxes.Ready {
		t.Errorf("none is %s", got)
	}
}

// TestExpiredWhileTheDaemonWasDown: what was due meanwhile is deleted at once.
func TestExpiredWhileTheDaemonWasDown(t *testing.T) {
	r, c, _ := newTimeRig(t)
	r.create(sandboxes.CreateRequest{ID: "due", TTL: time.Minute})
	r.stop()
	c.Advance(time.Hour)
	r.boot()
	r.gone("due")
	r.assertNothingLeft()
}

func TestFailedSandboxesExpireToo(t *testing.T) {
	r, c, _ := newTimeRig(t)
	r.create(sandboxes.CreateRequest{ID: "failed", TTL: time.Hour})
	r.kill("failed")
	await.True(t, func() bool { return r.state("failed") == sandboxes.Failed }, "the failure")
	c.Advance(time.Hour)
	r.gone("failed")
}

// TestRenewalNeverShortens: a ttl moves the end only away; an expire_time says what it means.
func TestRenewalNeverShortens(t *testing.T) {
	r, c, _ := newTimeRig(t)
	r.create(sandboxes.CreateRequest{ID: "box", TTL: time.Hour})
	update := func(u sandboxes.Update) time.Time {
		t.Helper()
		s, err := r.Update(t.Context(), "box", u)
		if err != nil {
			t.Fatal(err)
		}
		return s.ExpireTime
	}
	ttl := func(d time.Duration) sandboxes.Update { return sandboxes.Update{TTL: &d} }
	at := func(at time.Time) sandboxes.Update { return sandboxes.Update{ExpireTime: &at} }
	if got := update(ttl(time.Minute)); !got.Equal(noon.Add(time.Hour)) {
		t.Errorf("a shorter ttl: %s", got)
	}
	c.Advance(30 * time.Minute)
	if got := update(ttl(time.Hour)); !got.Equal(noon.Add(90 * time.Minute)) {
		t.Errorf("a renewal: %s", got)
	}
	if got := update(at(noon.Add(45 * time.Minute))); !got.Equal(noon.Add(45 * time.Minute)) {
		t.Errorf("an earlier time: %s", got)
	}
	if got := update(at(time.Time{})); !got.IsZero() {
		t.Errorf("no end: %s", got)
	}
	if got := update(ttl(time.Hour)); !got.Equal(noon.Add(90 * time.Minute)) {
		t.Errorf("a ttl where there was no end: %s", got)
	}
	r.stop()
	r.boot()
	if got, err := r.Get(t.Context(), "box"); err != nil || !got.ExpireTime.Equal(noon.Add(90*time.Minute)) {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	update(at(noon)) // over already
	r.gone("box")
}

// TestIdleTimeout: calls keep a sandbox, looking at it does not.
func TestIdleTimeout(t *testing.T) {
	r, c, calls := newTimeRig(t)
	r.create(sandboxes.CreateRequest{ID: "box", IdleTimeout: time.Hour})
	calls.set(sandboxes.Activity{Open: 1})
	c.Advance(5 * time.Hour)
	calls.set(sandboxes.Activity{Last: c.Now()})
	c.Advance(59 * time.Minute)
	if _, err := r.Link("box"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Update(t.Context(), "box", sandboxes.Update{Labels: &map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Minute)
	r.gone("box")
	r.wantLifecycle("box", "CREATING", "READY", "STOPPING IDLE", "STOPPED IDLE")
}

// TestIdleTimeoutOverRestarts: the time before a restart counts, but a daemon that comes back
// leaves everyone a minute.
func TestIdleTimeoutOverRestarts(t *testing.T) {
	r, c, _ := newTimeRig(t)
	r.create(sandboxes.CreateRequest{ID: "box", IdleTimeout: time.Hour})
	c.Advance(50 * time.Minute)
	r.stop()
	r.boot()
	c.Advance(9 * time.Minute)
	if got := r.state("box"); got != sandboxes.Ready {
		t.Fatalf("it is %s", got)
	}
	r.stop()
	c.Advance(time.Hour)
	r.boot()
	c.Advance(59 * time.Second)
	if got := r.state("box"); got != sandboxes.Ready {
		t.Fatalf("it is %s right after the start", got)
	}
	c.Advance(time.Second)
	r.gone("box")
}

func TestExpiryRefusals(t *testing.T) {
	r, _, _ := newTimeRig(t)
	second, long := time.Second/2, 11*365*24*time.Hour
	for field, req := range map[string]sandboxes.CreateRequest{
		"sandbox.ttl":          {TTL: second},
		"sandbox.expire_time":  {ExpireTime: noon},
		"sandbox.idle_timeout": {IdleTimeout: long, TTL: time.Hour},
	} {
		_, err := r.Create(t.Context(), req)
		if e := refusal(t, err, errs.InvalidArgument, errs.InvalidField); e.Violations[0].Field != field {
			t.Errorf("%s: %v", field, e.Violations)
		}
	}
	r.create(sandboxes.CreateRequest{ID: "box", Labels: map[string]string{"a": "b"}})
	later := noon.Add(long)
	bad := map[string]string{"A=B": ""}
	for field, u := range map[string]sandboxes.Update{
		"sandbox.ttl":          {TTL: &second},
		"sandbox.expire_time":  {ExpireTime: &later},
		"sandbox.idle_timeout": {IdleTimeout: &long},
		"sandbox.labels":       {Labels: &bad},
	} {
		_, err := r.Update(t.Context(), "box", u)
		if e := refusal(t, err, errs.InvalidArgument, errs.InvalidField); e.Violations[0].Field != field {
			t.Errorf("%s: %v", field, e.Violations)
		}
	}
	if s, err := r.Get(t.Context(), "box"); err != nil || len(s.Labels) != 1 || !s.ExpireTime.IsZero() {
		t.Errorf("refused updates left %+v, %v", s, err)
	}
	_, err := r.Update(t.Context(), "nobody", sandboxes.Update{})
	wantReason(t, err, errs.NotFound, errs.SandboxNotFound)
}
