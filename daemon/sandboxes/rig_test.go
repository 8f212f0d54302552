package sandboxes_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/daemontest"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/process"
	"github.com/agentixd/agentixd/providers/providertest"
	"github.com/agentixd/agentixd/runtime/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Manager on a real store, journal and process provider.
type rig struct {
	*sandboxes.Manager
	t        *testing.T
	dir      string
	runtime  string
	change   []func(*sandboxes.Options)
	store    *store.Store
	journal  *events.Journal
	provider *faulty
	stop     func()

	mu   sync.Mutex
	lost map[string]string // by sandbox: reason
}

// faulty is a provider whose methods can be made to fail.
type faulty struct {
	providers.Provider
	create func(context.Context, providers.Spec) (providers.Handle, error)
	delete func(context.Context, string) error
}

func (f *faulty) Create(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
	if f.create != nil {
		return f.create(ctx, spec)
	}
	return f.Provider.Create(ctx, spec)
}

func (f *faulty) Delete(ctx context.Context, id string) error {
	if f.delete != nil {
		return f.delete(ctx, id)
	}
	return f.Provider.Delete(ctx, id)
}

// limiting is a provider that claims to enforce limits.
type limiting struct{ *faulty }

func (limiting) EnforcesLimits() {}

type receiver struct{}

func (receiver) Connected(link.Peer) link.Resume { return link.Resume{} }
func (receiver) Records(wire.Batch)              {}
func (receiver) Result(wire.Result)              {}
func (receiver) CallError(wire.CallError)        {}
func (receiver) Stopped(string)                  {}
func (receiver) Disconnected([]string, error)    {}

// newRig starts a Manager with the real runtime.
func newRig(t *testing.T, change ...func(*sandboxes.Options)) *rig {
	t.Helper()
	return startRig(t, daemontest.Runtime(t), change...)
}

// newStubRig starts one whose runtimes never become ready: they speak no Socket.IO.
func newStubRig(t *testing.T, change ...func(*sandboxes.Options)) *rig {
	t.Helper()
	return startRig(t, providertest.Stub(t), change...)
}

func startRig(t *testing.T, runtime string, change ...func(*sandboxes.Options)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "agm")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, runtime: runtime, change: change, lost: map[string]string{}}
	t.Cleanup(func() {
		r.deleteAll()
		r.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	r.boot()
	return r
}

// open opens everything but does not run the Manager yet.
func (r *rig) open() {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	var err error
	if r.store, err = store.Open(ctx, filepath.Join(r.dir, "state")); err != nil {
		r.t.Fatal(err)
	}
	p, err := process.New(providers.Config{
		StateDir: filepath.Join(r.dir, "p"), RuntimePath: r.runtime, InsecureProcessAsRoot: true,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.provider = &faulty{Provider: p}
	r.journal = events.New(r.store, events.Options{})
	opts := sandboxes.Options{
		Store: r.store, Provider: r.provider, Journal: r.journal,
		Handler: func(string) link.Handler { return receiver{} },
		OnLost: func(id, reason, _ string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lost[id] = reason
		},
		Limits: providers.Limits{MemoryBytes: 1 << 30, PIDs: 1024},
	}
	for _, c := range r.change {
		c(&opts)
	}
	r.Manager = sandboxes.New(opts)
}

// boot is a start of the daemon, and also the next one.
func (r *rig) boot() {
	r.t.Helper()
	r.open()
	r.run()
}

func (r *rig) run() {
	r.t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	manager, provider, journal, st := r.Manager, r.provider, r.journal, r.store
	r.stop = sync.OnceFunc(func() {
		cancel(errors.New("the rig stops"))
		for name, err := range map[string]error{
			"run": <-done, "provider": provider.Close(), "journal": journal.Close(), "store": st.Close(),
		} {
			if err != nil {
				r.t.Errorf("%s: %v", name, err)
			}
		}
	})
	select {
	case <-manager.Ready():
	case <-time.After(30 * time.Second):
		r.t.Fatal("the manager did not start")
	}
}

func (r *rig) deleteAll() {
	ctx := context.WithoutCancel(r.t.Context())
	templates, err := r.Templates(ctx)
	if err != nil {
		r.t.Errorf("templates: %v", err)
	}
	for _, t := range templates {
		if err := r.DeleteTemplate(ctx, t.ID, false); err != nil {
			r.t.Errorf("delete template %s: %v", t.ID, err)
		}
	}
	page, _, err := r.List(ctx, nil, 1000, "")
	if err != nil {
		r.t.Errorf("list: %v", err)
	}
	for _, s := range page {
		if err := r.Delete(ctx, s.ID, true); err != nil {
			r.t.Errorf("delete %s: %v", s.ID, err)
		}
	}
	r.assertNothingLeft()
}

// assertNothingLeft is R9 as far as the Manager goes.
func (r *rig) assertNothingLeft() {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	if rows, err := r.store.Sandboxes(ctx); err != nil || len(rows) != 0 {
		r.t.Errorf("records left: %d, %v", len(rows), err)
	}
	if list, err := r.provider.List(ctx); err != nil || len(list) != 0 {
		r.t.Errorf("provider's sandboxes left: %v, %v", list, err)
	}
	if page, _, err := r.List(ctx, nil, 0, ""); err != nil || len(page) != 0 {
		r.t.Errorf("sandboxes left: %v, %v", page, err)
	}
}

func (r *rig) create(req sandboxes.CreateRequest) sandboxes.Sandbox {
	r.t.Helper()
	s, err := r.Create(r.t.Context(), req)
	if err != nil {
		r.t.Fatalf("create: %v", err)
	}
	return s
}

func (r *rig) state(id string) sandboxes.State {
	r.t.Helper()
	s, err := r.Get(r.t.Context(), id)
	if errs.Is(err, errs.NotFound) {
		return ""
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return s.State
}

func (r *rig) lostReason(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[id]
}

// lifecycle reads a sandbox's lifecycle events: "STATE" or "STATE REASON".
func (r *rig) lifecycle(id string) []string {
	r.t.Helper()
	if err := r.journal.Flush(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
	var all []string
	err := r.journal.Read(r.t.Context(), events.Query{Sandbox: id}, func(evs []events.Event, _ string) error {
		for _, e := range evs {
			if l, ok := e.Body.(*events.Lifecycle); ok {
				text := l.State
				if l.Reason != "" {
					text += " " + l.Reason
				}
				all = append(all, text)
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *rig) wantLifecycle(id string, want ...string) {
	r.t.Helper()
	if got := r.lifecycle(id); !slices.Equal(got, want) {
		r.t.Errorf("lifecycle of %s = %q, want %q", id, got, want)
	}
}

// pid is the process id of a sandbox's runtime.
func (r *rig) pid(id string) int {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "p", id, "record.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	var rec struct{ PID int }
	if err := json.Unmarshal(data, &rec); err != nil || rec.PID == 0 {
		r.t.Fatalf("record %s: %v", data, err)
	}
	return rec.PID
}

func (r *rig) kill(id string) {
	r.t.Helper()
	if err := unix.Kill(r.pid(id), unix.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

func wantReason(t *testing.T, err error, kind errs.Kind, reason errs.Reason) {
	t.Helper()
	_ = refusal(t, err, kind, reason)
}

// refusal asserts the same and returns the error for a closer look.
func refusal(t *testing.T, err error, kind errs.Kind, reason errs.Reason) *errs.Error {
	t.Helper()
	var e *errs.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Reason != reason {
		t.Fatalf("error = %v, want kind %d reason %s", err, kind, reason)
	}
	return e
}
