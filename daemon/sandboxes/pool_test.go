package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// template makes one and waits until its pool is full.
func (r *rig) template(t sandboxes.Template) {
	r.t.Helper()
	if _, err := r.CreateTemplate(r.t.Context(), t); err != nil {
		r.t.Fatal(err)
	}
	r.full(t.ID, t.Size)
}

func (r *rig) pool(id string) sandboxes.Template {
	r.t.Helper()
	t, err := r.GetTemplate(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *rig) full(id string, n int) {
	r.t.Helper()
	await.True(r.t, func() bool { p := r.pool(id); return p.Ready == n && p.Starting == 0 }, fmt.Sprintf("%d sandboxes to wait in %s", n, id))
}

// waiting is what the provider has of sandboxes that no client knows.
func (r *rig) waiting() (ids []string) {
	r.t.Helper()
	list, err := r.provider.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, st := range list {
		if r.state(st.ID) == "" {
			ids = append(ids, st.ID)
		}
	}
	return ids
}

func TestPool(t *testing.T) {
	r := newRig(t)
	r.template(sandboxes.Template{ID: "warm", Size: 2, Sandbox: sandboxes.CreateRequest{
		Env: map[string]string{"X": "1"}, Labels: map[string]string{"from": "template", "both": "template"}, TTL: time.Hour,
	}})
	if page, _, err := r.List(t.Context(), nil, 0, ""); err != nil || len(page) != 0 {
		t.Errorf("listed %v, %v", page, err)
	}
	ids := r.waiting()
	if len(ids) != 2 || !r.frozen(ids[0]) || !r.frozen(ids[1]) {
		t.Fatalf("waiting: %v", ids)
	}
	for _, id := range ids { // nobody reaches them
		_, err := r.Link(id)
		wantReason(t, err, errs.NotFound, errs.SandboxNotFound)
		wantReason(t, r.Delete(t.Context(), id, false), errs.NotFound, errs.SandboxNotFound)
		_, err = r.Resume(t.Context(), id)
		wantReason(t, err, errs.NotFound, errs.SandboxNotFound)
	}
	before := time.Now()
	s := r.create(sandboxes.CreateRequest{Template: "warm", Labels: map[string]string{"both": "mine"}, RequestID: "once"})
	if s.State != sandboxes.Ready || !slices.Contains(ids, s.ID) || r.frozen(s.ID) || s.Env["X"] != "1" || s.Template != "warm" ||
		s.Labels["from"] != "template" || s.Labels["both"] != "mine" || s.ExpireTime.IsZero() || s.CreateTime.Before(before) || s.Runtime == nil {
		t.Errorf("taken: %+v", s)
	}
	if l, err := r.Link(s.ID); err != nil || !l.Connected() {
		t.Errorf("link %v, %v", l, err)
	}
	if again := r.create(sandboxes.CreateRequest{Template: "warm", Labels: map[string]string{"both": "mine"}, RequestID: "once"}); again.ID != s.ID {
		t.Errorf("the same request took another: %s", again.ID)
	}
	r.wantLifecycle(s.ID, "CREATING", "READY")
	r.full("warm", 2)
	named := r.create(sandboxes.CreateRequest{Template: "warm", ID: "my-own"})
	if p := r.pool("warm"); named.ID != "my-own" || named.Env["X"] != "1" || p.Hits != 1 || p.Misses != 1 {
		t.Errorf("%+v, %+v", named, p)
	}
	if _, err := r.ResizeTemplate(t.Context(), "warm", 1); err != nil {
		t.Fatal(err)
	}
	r.full("warm", 1)
	await.True(t, func() bool { return len(r.waiting()) == 1 }, "the deletion of what is too much")
	if err := r.DeleteTemplate(t.Context(), "warm", false); err != nil {
		t.Fatal(err)
	}
	if left := r.waiting(); len(left) != 0 || r.state(s.ID) != sandboxes.Ready {
		t.Errorf("left: %v; %s", left, r.state(s.ID))
	}
	_, err := r.Create(t.Context(), sandboxes.CreateRequest{Template: "warm"})
	wantReason(t, err, errs.NotFound, errs.TemplateNotFound)
	wantReason(t, r.DeleteTemplate(t.Context(), "warm", false), errs.NotFound, errs.TemplateNotFound)
	if err := r.DeleteTemplate(t.Context(), "warm", true); err != nil {
		t.Error(err)
	}
}

// TestPoolIsTakenAtomically: many that come at once get one each; who finds none waits for a start.
func TestPoolIsTakenAtomically(t *testing.T) {
	r := newRig(t)
	r.template(sandboxes.Template{ID: "warm", Size: 3})
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := r.Create(t.Context(), sandboxes.CreateRequest{Template: "warm"})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[s.ID]++
		})
	}
	wg.Wait()
	if p := r.pool("warm"); len(got) != 6 || p.Hits < 3 || p.Hits+p.Misses != 6 {
		t.Errorf("got %v; %d hits, %d misses", got, p.Hits, p.Misses)
	}
	r.full("warm", 3)
}

// TestPoolOverRestart: what waits goes on waiting; what a daemon left half-taken does, too.
func TestPoolOverRestart(t *testing.T) {
	r := newRig(t)
	r.template(sandboxes.Template{ID: "warm", Size: 2})
	ids := r.waiting()
	r.stop()
	r.open()
	h, err := r.provider.Get(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := h.(providers.Pauser).Resume(t.Context()); err != nil { // as if it had died while it took this one
		t.Fatal(err)
	}
	r.run()
	if p := r.pool("warm"); p.Ready != 2 || p.Starting != 0 || !r.frozen(ids[0]) || !slices.Equal(r.waiting(), ids) {
		t.Errorf("after a restart: %+v, %v of %v", p, r.waiting(), ids)
	}
	if s := r.create(sandboxes.CreateRequest{Template: "warm"}); !slices.Contains(ids, s.ID) {
		t.Errorf("taken: %+v", s)
	}
	r.full("warm", 2)
	r.stop()
	r.open()
	if err := r.store.DeleteTemplate(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	r.run()
	await.True(t, func() bool { return len(r.waiting()) == 0 }, "the deletion of what no template wants")
}

// TestPoolFailures: they are told, with growing pauses, and pass; what dies while it waits is
// replaced, and never handed out.
func TestPoolFailures(t *testing.T) {
	r, c, _ := newTimeRig(t)
	var mu sync.Mutex
	starts, broken := 0, true
	r.provider.create = func(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
		mu.Lock()
		starts++
		fail := broken
		mu.Unlock()
		if fail {
			return nil, errs.New(errs.NotFound, errs.ImageNotFound, "no image x")
		}
		return r.provider.Provider.Create(ctx, spec)
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return starts }
	if _, err := r.CreateTemplate(t.Context(), sandboxes.Template{ID: "warm", Size: 1}); err != nil {
		t.Fatal(err)
	}
	for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		await.True(t, func() bool {
			p := r.pool("warm")
			return count() == i+1 && p.Starting == 0 && p.RetryTime.Equal(c.Now().Add(pause))
		}, "failure")
		if p := r.pool("warm"); p.Message != "no image x" {
			t.Errorf("told %q", p.Message)
		}
		if i == 2 {
			mu.Lock()
			broken = false
			mu.Unlock()
		}
		c.Advance(pause)
	}
	r.full("warm", 1)
	if p := r.pool("warm"); p.Message != "" || !p.RetryTime.IsZero() {
		t.Errorf("after it passed: %+v", p)
	}
	dead := r.waiting()[0]
	r.kill(dead)
	await.True(t, func() bool { return r.pool("warm").Ready == 0 }, "the loss")
	await.True(t, func() bool { return len(r.waiting()) == 0 }, "its removal")
	if p := r.pool("warm"); !strings.Contains(p.Message, "signal 9") {
		t.Errorf("told %q", p.Message)
	}
	c.Advance(time.Second)
	r.full("warm", 1)
}

// TestBrokenMemberIsNotHandedOut: the next one is, or one is started.
func TestBrokenMemberIsNotHandedOut(t *testing.T) {
	var p *pausing
	r := newRig(t, func(o *sandboxes.Options) {
		p = &pausing{faulty: o.Provider.(*faulty)}
		o.Provider = p
	})
	r.template(sandboxes.Template{ID: "warm", Size: 2})
	ids := r.waiting()
	failures := 2
	p.resume = func() (bool, error) {
		if failures--; failures >= 0 {
			return failures == 0, errors.New("innards")
		}
		return false, nil
	}
	s := r.create(sandboxes.CreateRequest{Template: "warm"})
	if s.State != sandboxes.Ready || slices.Contains(ids, s.ID) {
		t.Errorf("taken: %+v of %v", s, ids)
	}
	await.True(t, func() bool { w := r.waiting(); return !slices.Contains(w, ids[0]) && !slices.Contains(w, ids[1]) }, "the removal of the broken ones")
}

func TestPreload(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "early.py"), []byte("import os\nopen(os.environ['MARK'], 'w').close()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *sandboxes.Options) { o.AllowHostPath = []string{dir} })
	mark := filepath.Join(t.TempDir(), "mark")
	uid := uint32(unix.Geteuid())
	req := sandboxes.CreateRequest{Project: dir, Peer: &sandboxes.Peer{UID: uid}, Env: map[string]string{"MARK": mark}}
	r.template(sandboxes.Template{ID: "warm", Size: 1, Sandbox: req, Preload: []string{"early"}})
	if _, err := os.Stat(mark); err != nil {
		t.Error("the module was not imported ahead")
	}
	s := r.create(sandboxes.CreateRequest{Template: "warm"}) // by anybody: the template's owner named the directory
	if s.Project != dir || len(s.Env) != 1 {
		t.Errorf("taken: %+v", s)
	}
	if _, err := r.CreateTemplate(t.Context(), sandboxes.Template{ID: "bad", Size: 1, Sandbox: req, Preload: []string{"no_such_module"}}); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return strings.Contains(r.pool("bad").Message, "no_such_module") }, "the reason why it cannot be filled")
}

func TestTemplateRefusals(t *testing.T) {
	r := newStubRig(t)
	many := make([]string, 65)
	for i := range many {
		many[i] = "m"
	}
	for field, tmpl := range map[string]sandboxes.Template{
		"template_id":                     {ID: "A"},
		"template.size":                   {Size: 257},
		"template.preload":                {Preload: []string{"os; import sys"}},
		"sandbox.image":                   {Sandbox: sandboxes.CreateRequest{Image: "--x"}},
		"sandbox.idle_timeout":            {Sandbox: sandboxes.CreateRequest{IdleTimeout: 1}},
		"template.sandbox.provider":       {Sandbox: sandboxes.CreateRequest{Provider: "external"}},
		"template.sandbox.expire_time":    {Sandbox: sandboxes.CreateRequest{ExpireTime: noon}},
		"template.sandbox.template":       {Sandbox: sandboxes.CreateRequest{Template: "x"}},
		"template.sandbox.expose_runtime": {Sandbox: sandboxes.CreateRequest{Expose: true}},
	} {
		_, err := r.CreateTemplate(t.Context(), tmpl)
		if e := refusal(t, err, errs.InvalidArgument, errs.InvalidField); e.Violations[0].Field != field {
			t.Errorf("%s: %v", field, e.Violations)
		}
	}
	_, err := r.CreateTemplate(t.Context(), sandboxes.Template{Preload: many})
	wantReason(t, err, errs.InvalidArgument, errs.InvalidField)
	_, err = r.CreateTemplate(t.Context(), sandboxes.Template{Sandbox: sandboxes.CreateRequest{Project: "/root"}})
	wantReason(t, err, errs.PermissionDenied, errs.HostPathRefused)
	r.template(sandboxes.Template{ID: "warm"})
	_, err = r.CreateTemplate(t.Context(), sandboxes.Template{ID: "warm"})
	wantReason(t, err, errs.AlreadyExists, errs.TemplateExists)
	for field, req := range map[string]sandboxes.CreateRequest{
		"sandbox.image": {Image: "x"}, "sandbox.env": {Env: map[string]string{"A": ""}}, "sandbox.workers": {Workers: 2},
		"sandbox.resources": {Resources: providers.Limits{PIDs: 99}},
	} {
		req.Template = "warm"
		_, err := r.Create(t.Context(), req)
		if e := refusal(t, err, errs.InvalidArgument, errs.InvalidField); e.Violations[0].Field != field {
			t.Errorf("%s: %v", field, e.Violations)
		}
	}
	_, err = r.Create(t.Context(), sandboxes.CreateRequest{Template: "none"})
	wantReason(t, err, errs.NotFound, errs.TemplateNotFound)
}
