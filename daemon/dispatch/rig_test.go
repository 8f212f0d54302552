package dispatch

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// fakeLink is a link whose other end is the test.
type fakeLink struct {
	mu       sync.Mutex
	session  uint64
	changed  chan struct{}
	full     func() // if set, TryCallIn finds no room
	waiting  int    // callers in WaitSession
	refuse   error
	peer     link.Peer
	calls    []wire.Call
	cancels  []string
	acks     []string
	recorded map[string]uint64
}

func newFakeLink() *fakeLink {
	return &fakeLink{session: 1, changed: make(chan struct{}), recorded: map[string]uint64{}}
}

func (l *fakeLink) set(session uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = session
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *fakeLink) Session() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

func (l *fakeLink) PeerIn(session uint64) (link.Peer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer, session == l.session && session != 0
}

func (l *fakeLink) WaitSession(ctx context.Context, ended uint64) (uint64, error) {
	l.mu.Lock()
	l.waiting++
	l.mu.Unlock()
	for {
		l.mu.Lock()
		session, changed := l.session, l.changed
		l.mu.Unlock()
		if session != 0 && session != ended {
			return session, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (l *fakeLink) TryCallIn(session uint64, c *wire.Call) (bool, error) {
	l.mu.Lock()
	full := l.full
	l.mu.Unlock()
	if full != nil {
		full()
		return false, nil
	}
	return true, l.CallIn(context.Background(), session, c)
}

func (l *fakeLink) CallIn(_ context.Context, session uint64, c *wire.Call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return l.refuse
	}
	if session != l.session || session == 0 {
		return errs.New(errs.Unavailable, errs.RuntimeUnavailable, "no connection")
	}
	l.calls = append(l.calls, *c)
	return nil
}

func (l *fakeLink) Cancel(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancels = append(l.cancels, id)
}

func (l *fakeLink) AckResult(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, id)
}

func (l *fakeLink) AckRecords(stream, sid string, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recorded[stream+sid] = max(l.recorded[stream+sid], seq)
}

// awaited reports whether a call waits for another session.
func (l *fakeLink) awaited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > 0
}

func (l *fakeLink) seen() (ids, cancels, acks []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		ids = append(ids, c.CallID)
	}
	return ids, slices.Clone(l.cancels), slices.Clone(l.acks)
}

// faultyStore is the real store with errors that a test chooses.
type faultyStore struct {
	*store.Store
	mu           sync.Mutex
	beforeAccept error // AcceptCall does nothing
	afterAccept  error // AcceptCall is done, and yet an error
	beforeFinish error // NewEnding does nothing
}

func (s *faultyStore) set(f func(*faultyStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *faultyStore) get(f func(*faultyStore) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f(s)
}

func (s *faultyStore) AcceptCall(ctx context.Context, row store.CallRow) error {
	if err := s.get(func(s *faultyStore) error { return s.beforeAccept }); err != nil {
		return err
	}
	if err := s.Store.AcceptCall(ctx, row); err != nil {
		return err
	}
	return s.get(func(s *faultyStore) error { return s.afterAccept })
}

func (s *faultyStore) NewEnding(id string, end store.CallEnd) (*store.Ending, error) {
	if err := s.get(func(s *faultyStore) error { return s.beforeFinish }); err != nil {
		return nil, err
	}
	return s.Store.NewEnding(id, end)
}

// rig is a Dispatcher on a real store and journal, with fake links.
type rig struct {
	t       *testing.T
	dir     string
	store   *store.Store
	faults  *faultyStore
	journal *events.Journal
	d       *Dispatcher
	clock   *clock.Fake
	mu      sync.Mutex
	links   map[string]*fakeLink
	missing error
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), clock: clock.NewFake(start), faults: &faultyStore{}, links: map[string]*fakeLink{}}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(context.Background(), filepath.Join(r.dir, "state")); err != nil {
		r.t.Fatal(err)
	}
	r.faults.Store = r.store
	r.journal = events.New(r.store, events.Options{LogDir: filepath.Join(r.dir, "logs")})
	r.d, err = New(context.Background(), Options{Store: r.faults, Journal: r.journal, Links: LinksFunc(r.link), Clock: r.clock})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) close() {
	if err := errors.Join(r.d.Close(), r.journal.Close(), r.store.Close()); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) link(sandbox string) (Link, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.links[sandbox]; l != nil && r.missing == nil {
		return l, nil
	}
	if r.missing != nil {
		return nil, r.missing
	}
	return nil, errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", sandbox)
}

func (r *rig) lose(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = err
}

// sandbox makes a sandbox that is connected.
func (r *rig) sandbox(id string) (*fakeLink, link.Handler) {
	r.t.Helper()
	l := newFakeLink()
	r.mu.Lock()
	r.links[id] = l
	r.mu.Unlock()
	h := r.d.Handler(id)
	h.(*receiver).bind(l)
	h.Connected(l.peer)
	return l, h
}

// answer is what Remote returned.
type answer struct {
	outcome Outcome
	err     error
}

// filled is a request with what it left out.
func filled(req Request) Request {
	if req.Sandbox == "" {
		req.Sandbox = "box"
	}
	if req.Callable == "" {
		req.Callable = "app::run"
	}
	if req.Encoding == "" {
		req.Encoding = wire.EncodingJSON
	}
	return req
}

// remote calls in the background.
func (r *rig) remote(ctx context.Context, req Request) <-chan answer {
	req = filled(req)
	done := make(chan answer, 1)
	go func() { // ends with the call, which each test ends
		o, err := r.d.Remote(ctx, req)
		done <- answer{o, err}
	}()
	return done
}

func (r *rig) callEvents(sandbox string) []string {
	r.t.Helper()
	var out []string
	err := r.journal.Read(context.Background(), events.Query{Sandbox: sandbox}, func(evs []events.Event, _ string) error {
		for _, e := range evs {
			switch body := e.Body.(type) {
			case *events.Call:
				out = append(out, e.CallID+" "+body.Phase+" "+body.ErrorType)
			case *events.Output:
				out = append(out, string(body.Data))
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) openCalls() []string {
	r.t.Helper()
	rows, err := r.store.OpenCalls(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, row := range rows {
		ids[row.ID] = true
	}
	return slices.Sorted(maps.Keys(ids))
}
