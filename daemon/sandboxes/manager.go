// Package sandboxes is the life of sandboxes: their states, their records and their links.
// It is the only user of providers. What a sandbox says of itself is bounded and never
// trusted; that it runs or has ended is believed from the provider's list alone.
package sandboxes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

const (
	defaultStartTimeout  = 60 * time.Second // from Create until the worker answers
	joinTimeout          = 10 * time.Second // for a connection to a runtime that someone else runs
	defaultCheckInterval = 30 * time.Second // between looks at the provider's list
	defaultUnreachable   = 60 * time.Second // longer than a runtime that is stopped for a while
	removeTimeout        = 30 * time.Second // for the provider to remove one sandbox
	drainTimeout         = 500 * time.Millisecond
	defaultPageSize      = 100
	maxPageSize          = 1000
)

// Store keeps sandbox records; *store.Store.
type Store interface {
	PutSandbox(ctx context.Context, id string, record []byte) error
	PutTemplate(ctx context.Context, id string, record []byte) error
	DeleteTemplate(ctx context.Context, id string) error
	Templates(ctx context.Context) (map[string][]byte, error)
	LastCalls(ctx context.Context) (map[string]time.Time, error)
	DeleteSandbox(ctx context.Context, id string) error
	Sandboxes(ctx context.Context) ([]store.SandboxRow, error)
	RuntimeToken(id string) string
	Epoch() int64
}

// Journal takes lifecycle events; *events.Journal.
type Journal interface {
	Append(sandbox string, evs ...events.Event)
	Flush(ctx context.Context, sandbox string) error
	DeleteSandbox(ctx context.Context, sandbox string) error
}

// Options are what a Manager works with. Store, Provider, Journal and Handler are required.
type Options struct {
	Store    Store
	Provider providers.Provider // of sandboxes that ask for none
	// Others are the providers that a request can ask for besides.
	Others  []providers.Provider
	Journal Journal
	Bundles Bundles // nil = there are none
	// Handler makes the receiver of what a sandbox's runtime sends.
	Handler func(id string) link.Handler
	// OnLost is told of a sandbox that is gone, so that its calls end. It may be told twice.
	OnLost func(id, reason, message string)
	// Activity tells of the calls of a sandbox. It is called with the Manager locked and must
	// not call it back. Default: there are none.
	Activity func(id string) Activity
	// ParallelStarts is how many sandboxes start at once, the others wait in order; default:
	// twice the processors.
	ParallelStarts int
	// Limits are the defaults for providers that enforce limits.
	Limits        providers.Limits
	AllowHostPath []string
	StartTimeout  time.Duration // default 60 s
	CheckInterval time.Duration // default 30 s
	// UnreachableAfter is how long the runtime of a READY sandbox may be out of reach before
	// the sandbox is given up; default 60 s. Runtimes that someone else started are not.
	UnreachableAfter time.Duration
	// PressureInterval is between looks at how sandboxes fare with their limits; default 2 s.
	PressureInterval time.Duration
	Clock            clock.Clock  // default: the system's
	Logger           *slog.Logger // default: discard
}

// Manager owns all sandboxes of a daemon.
type Manager struct {
	opts  Options
	log   *slog.Logger
	ready chan struct{} // closed once Run has taken over what was there

	starts *turnstile
	sooner chan struct{} // holds one token: something may be due sooner

	mu        sync.Mutex
	base      context.Context //nolint:containedctx // the life of the running Manager; nil before Run
	entries   map[string]*entry
	byRequest map[string]*entry
	observers map[*observer]bool
	pools     map[string]*pool
	seq       uint64
	stopped   bool
	wg        sync.WaitGroup // operations under way
}

// entry is one sandbox. Its fields are guarded by Manager.mu, apart from op.
type entry struct {
	// op is held by the one operation that works on the sandbox: create, update, fail or delete.
	op oneAtATime

	rec    record
	handle providers.Handle

	link     *link.Link
	unlink   context.CancelCauseFunc
	linkOver chan struct{}
	apart    time.Time // since when check has found the link without a connection; zero = it had one

	hidden   bool      // no client knows of it
	written  time.Time // the last activity that is in the store
	graceEnd time.Time // until when it does not idle out

	unexpose func() // closes the port of an exposed runtime; nil = there is none

	runtimeURL   string        // what to join, with its secrets; only while it is created
	created      chan struct{} // closed once its create is over, well or not
	createErr    error
	cancelCreate context.CancelCauseFunc
	waiters      int // callers that wait for the create

	ended  chan struct{}   // closed when the provider told of its end
	exit   *providers.Exit // set before
	delete *deletion       // set while it is being deleted
}

type deletion struct {
	reason Reason
	done   chan struct{}
	err    error
}

// New returns a Manager that works once Run is called.
func New(opts Options) *Manager {
	if opts.StartTimeout <= 0 {
		opts.StartTimeout = defaultStartTimeout
	}
	if opts.CheckInterval <= 0 {
		opts.CheckInterval = defaultCheckInterval
	}
	if opts.UnreachableAfter <= 0 {
		opts.UnreachableAfter = defaultUnreachable
	}
	if opts.PressureInterval <= 0 {
		opts.PressureInterval = defaultPressureInterval
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Activity == nil {
		opts.Activity = func(string) Activity { return Activity{} }
	}
	if opts.ParallelStarts <= 0 {
		opts.ParallelStarts = 2 * runtime.NumCPU()
	}
	if opts.OnLost == nil {
		opts.OnLost = func(string, string, string) {}
	}
	return &Manager{
		opts:      opts,
		log:       opts.Logger,
		ready:     make(chan struct{}),
		starts:    newTurnstile(opts.ParallelStarts),
		sooner:    make(chan struct{}, 1),
		entries:   map[string]*entry{},
		byRequest: map[string]*entry{},
		observers: map[*observer]bool{},
		pools:     map[string]*pool{},
	}
}

var errStopping = errors.New("the daemon is stopping")

// Run takes over the sandboxes of the daemon before, then watches all until ctx ends. It
// returns once every operation has ended; the sandboxes themselves go on.
func (m *Manager) Run(ctx context.Context) error {
	base, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	m.base = base
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.stopped = true // nothing is added to wg by others from here on
		cancel(errStopping)
		m.mu.Unlock()
		m.wg.Wait()
	}()
	exits, err := m.watchEngines(base)
	if err != nil {
		return fmt.Errorf("watch sandboxes: %w", err)
	}
	if err := m.adopt(base); err != nil {
		return fmt.Errorf("take over sandboxes: %w", err)
	}
	m.adoptPools()
	began := m.opts.Clock.Now() // nothing new is made before m.ready is closed
	close(m.ready)
	m.wg.Go(func() { m.expire(base) })               // ends with base
	m.wg.Go(func() { m.watchPressure(base, began) }) // ends with base
	return m.watch(base, exits)
}

// Ready is closed once Run has taken over what was there; calls before wait for it.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// waitReady waits until Run has taken over; it returns the context of operations.
func (m *Manager) waitReady(ctx context.Context) (context.Context, error) {
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil, errs.New(errs.Unavailable, errs.ProviderUnavailable, "the daemon is still starting").
			WithCause(context.Cause(ctx)).WithRetry(time.Second)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, stopping()
	}
	return m.base, nil
}

func stopping() error {
	return errs.New(errs.Unavailable, errs.Stopping, "the daemon is stopping")
}

// Get returns one sandbox; NotFound (SANDBOX_NOT_FOUND).
func (m *Manager) Get(ctx context.Context, id string) (Sandbox, error) {
	if _, err := m.waitReady(ctx); err != nil {
		return Sandbox{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[id]
	if !ok || e.hidden {
		return Sandbox{}, notFound(id)
	}
	return m.shown(e), nil
}

func notFound(id string) error {
	return errs.New(errs.NotFound, errs.SandboxNotFound, "sandbox %.80q does not exist", id).WithMeta("sandbox", clip(id, 80))
}

// List returns a page of the sandboxes that filter selects, nil = all, in order of
// creation, and the next page's token.
func (m *Manager) List(ctx context.Context, filter *Filter, pageSize int, pageToken string) ([]Sandbox, string, error) {
	switch {
	case pageSize < 0:
		return nil, "", errs.Invalid("page_size", "must not be negative")
	case pageSize == 0:
		pageSize = defaultPageSize
	case pageSize > maxPageSize:
		pageSize = maxPageSize
	}
	after, err := parsePageToken(pageToken, filter)
	if err != nil {
		return nil, "", err
	}
	if _, err := m.waitReady(ctx); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	rest := slices.DeleteFunc(m.selectLocked(filter), func(e *entry) bool { return e.rec.Seq <= after })
	next := ""
	if len(rest) > pageSize {
		rest = rest[:pageSize]
		next = newPageToken(rest[pageSize-1].rec.Seq, filter)
	}
	page := make([]Sandbox, len(rest))
	for i, e := range rest {
		page[i] = m.shown(e)
	}
	return page, next, nil
}

// newPageToken tells after which sandbox to go on, and in which list.
func newPageToken(after uint64, filter *Filter) string {
	text := fmt.Sprintf("%d %08x", after, crc32.ChecksumIEEE([]byte(filter.String())))
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parsePageToken(token string, filter *Filter) (uint64, error) {
	if token == "" {
		return 0, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		number, _, _ := strings.Cut(string(data), " ")
		if after, err := strconv.ParseUint(number, 10, 64); err == nil && newPageToken(after, filter) == token {
			return after, nil
		}
	}
	return 0, errs.Invalid("page_token", "must be the next_page_token of an earlier answer to a request with the same filter")
}

// Link returns the connection to a sandbox's runtime. NotFound (SANDBOX_NOT_FOUND);
// FailedPrecondition (SANDBOX_NOT_READY, with the state) unless it is READY.
func (m *Manager) Link(id string) (*link.Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[id]
	if !ok || e.hidden {
		return nil, notFound(id)
	}
	s := e.rec.Sandbox
	switch {
	case e.delete != nil && s.State == Ready:
		return nil, notReady(id, Stopping, e.delete.reason)
	case s.State != Ready || e.link == nil:
		return nil, notReady(id, s.State, s.Reason)
	}
	return e.link, nil
}

func notReady(id string, state State, reason Reason) error {
	text := fmt.Sprintf("sandbox %s is %s", id, state)
	if reason != NoReason {
		text += fmt.Sprintf(" (%s)", reason)
	}
	return errs.New(errs.FailedPrecondition, errs.SandboxNotReady, "%s", text).
		WithMeta("sandbox", id).WithMeta("state", string(state)).WithMeta("reason", string(reason))
}

// Images returns the provider's images; FailedPrecondition (UNSUPPORTED) if it has none.
func (m *Manager) Images() (providers.Imager, error) {
	imager, ok := m.opts.Provider.(providers.Imager)
	if !ok {
		return nil, errs.New(errs.FailedPrecondition, errs.Unsupported, "the %s provider has no images", m.opts.Provider.Name())
	}
	return imager, nil
}

// put writes the entry's record; it survives a SIGKILL from then on.
func (m *Manager) put(ctx context.Context, e *entry) error {
	m.mu.Lock()
	id := e.rec.Sandbox.ID
	data, err := json.Marshal(e.rec)
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encode record of sandbox %s: %w", id, err)
	}
	return m.opts.Store.PutSandbox(ctx, id, data)
}

// set changes the state and journals it. The caller holds e.op.
func (m *Manager) set(e *entry, state State, reason Reason, message string) {
	m.mu.Lock()
	s := &e.rec.Sandbox
	s.State, s.Reason, s.Message = state, reason, message
	id := s.ID
	m.changedLocked(e)
	m.mu.Unlock()
	m.look()
	m.journal(id, state, reason, message)
	m.log.Info("sandbox changed state", "sandbox", id, "provider", s.Provider, "state", string(state), "reason", string(reason))
}

func (m *Manager) journal(id string, state State, reason Reason, message string) {
	m.opts.Journal.Append(id, events.Event{
		Time:    m.opts.Clock.Now(),
		Sandbox: id,
		Body:    &events.Lifecycle{State: string(state), Reason: string(reason), Message: message},
	})
}

// drop forgets an entry.
func (m *Manager) drop(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[e.rec.Sandbox.ID] == e {
		delete(m.entries, e.rec.Sandbox.ID)
	}
	if r := e.rec.RequestID; r != "" && m.byRequest[r] == e {
		delete(m.byRequest, r)
	}
	m.changedLocked(e)
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
