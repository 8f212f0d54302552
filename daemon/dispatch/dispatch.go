// Package dispatch takes calls from clients to sandboxes and their outcomes back. It joins
// the call table, the store and the links: a call is accepted once it is written down, is
// sent at most once, and ends in one outcome, whichever process dies meanwhile. It also
// hands the records of each runtime to the journal, in their order before the outcomes.
//
// Clients are authenticated before they come here; what a runtime says is hostile, and
// counts only for calls of its own sandbox that were sent and have no outcome yet.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentixd/agentixd/daemon/calls"
	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Link is what a Dispatcher needs of a link.Link.
type Link interface {
	Session() uint64
	PeerIn(session uint64) (link.Peer, bool)
	WaitSession(ctx context.Context, ended uint64) (uint64, error)
	TryCallIn(session uint64, c *wire.Call) (bool, error)
	CallIn(ctx context.Context, session uint64, c *wire.Call) error
	Cancel(callID string)
	AckResult(callID string)
	AckRecords(stream, sid string, seq uint64)
}

// Links finds the link of a READY sandbox; its errors are those of the API for a sandbox
// that does not exist or is not READY.
type Links interface {
	Link(sandbox string) (Link, error)
}

// LinksFunc is a function as Links.
type LinksFunc func(sandbox string) (Link, error)

// Link calls f.
func (f LinksFunc) Link(sandbox string) (Link, error) { return f(sandbox) }

type callStore interface {
	AcceptCall(ctx context.Context, row store.CallRow) error
	SubmitCall(ctx context.Context, id string) error
	FinishCall(ctx context.Context, id string, end store.CallEnd) error
	NewEnding(id string, end store.CallEnd) (*store.Ending, error)
	Ended(e *store.Ending)
	Call(ctx context.Context, id string) (store.CallRow, error)
	Calls(ctx context.Context, q store.CallQuery) ([]store.CallRow, error)
	Outcome(ctx context.Context, id string) (head, value []byte, err error)
	OpenCalls(ctx context.Context) ([]store.CallRow, error)
	PruneCalls(ctx context.Context, before time.Time) (int64, error)
}

type journal interface {
	Append(sandbox string, evs ...events.Event)
	AppendEnd(sandbox string, ev events.Event, end *store.Ending, done func()) error
	AppendBatch(sandbox string, b wire.Batch, done func())
	StreamCursor(ctx context.Context, sandbox, stream string) (sid string, seq uint64, err error)
	Flush(ctx context.Context, sandbox string) error
	Read(ctx context.Context, q events.Query, fn func(evs []events.Event, cursor string) error) error
}

// Options are what a Dispatcher works with; Store, Journal and Links are required.
type Options struct {
	Store   callStore
	Journal journal
	Links   Links
	Clock   clock.Clock
	Logger  *slog.Logger
	Limits  calls.Limits // default: calls.DefaultLimits
}

const (
	timeoutSlack  = 40 * time.Millisecond // so that a connected runtime's own DeadlineExceeded comes first
	keepFinished  = time.Hour             // finished calls in the store, and those outcomes that fit its limits
	pruneEvery    = 5 * time.Minute
	reconcileTime = 5 * time.Second // after which a sandbox of an earlier daemon is known again
	saveAgain     = time.Second     // pause before an outcome that could not be stored is tried again
	inlineBytes   = 65536           // 64 KiB: arguments that the caller's own goroutine sends
	unreachable   = 2 * time.Minute // without a connection, until calls in flight end as ResultUnavailable
)

// Dispatcher carries calls. Its methods may be called from any goroutine.
type Dispatcher struct {
	opts     Options
	ctx      context.Context // of its own goroutines; ends with Close
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup
	stopping atomic.Bool

	mu        sync.Mutex
	closed    bool
	table     *calls.Table[ended]
	pending   map[string]*pending
	receivers map[string]*receiver // the newest of each sandbox
	activity  map[string]*activity // of each sandbox that had a call
	still     still
	inflight  int64 // bytes of arguments of open calls
	prunedAt  time.Time
}

// pending is a call without a delivered outcome.
type pending struct {
	request    calls.Request
	callable   string
	call       *wire.Call // nil for a call of an earlier daemon
	deadline   time.Time  // zero = none
	want       string     // encoding of the result; empty = any
	bytes      int64
	quiet      bool      // its FINISHED event is in the journal already
	life       string    // of the runtime that it was sent to
	again      bool      // it is sent again if that runtime tells that it never came
	atRuntime  bool      // it was sent, as far as is known
	acceptedAt time.Time // zero = not yet
	submitted  bool      // the store knows that it goes on without a waiter

	ctx    context.Context // ends with the outcome
	cancel context.CancelCauseFunc
	wake   time.Time   // when the timer looks at the call again; zero = never
	stop   func() bool // of the timer

	accepted chan struct{} // closed once it is accepted or, with err, not
	done     chan struct{} // closed once the outcome may be told
	outcome  Outcome
	written  chan struct{} // closed once the outcome is committed
	ending   *store.Ending // what is written
	err      error         // why the call was not accepted
}

// New returns a Dispatcher that knows the calls which an earlier daemon left open; so it has
// to be made before any link. Close ends it.
func New(ctx context.Context, opts Options) (*Dispatcher, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Limits == (calls.Limits{}) {
		opts.Limits = calls.DefaultLimits
	}
	d := &Dispatcher{
		opts: opts, table: calls.NewTable[ended](opts.Limits),
		pending: map[string]*pending{}, receivers: map[string]*receiver{}, activity: map[string]*activity{}, still: still{},
	}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	if err := d.restore(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("restore open calls: %w", err), d.Close())
	}
	return d, nil
}

// Stop refuses new calls. From now on callers that leave do not cancel theirs: the next
// daemon goes on with them.
func (d *Dispatcher) Stop() { d.stopping.Store(true) }

// Close ends the goroutines of the Dispatcher; open calls stay open in the store. The links
// must have ended, or end soon.
func (d *Dispatcher) Close() error {
	d.Stop()
	d.mu.Lock()
	d.closed = true
	for _, p := range d.pending {
		p.stopTimer()
	}
	for _, r := range d.receivers {
		r.stopWatching()
	}
	d.mu.Unlock()
	d.cancel(errStopping())
	d.wg.Wait()
	return nil
}

func errStopping() error {
	return errs.New(errs.Unavailable, errs.Stopping, "the daemon is stopping").WithRetry(time.Second)
}

// goes starts a goroutine that Close waits for; after Close it does nothing. d.mu is held.
func (d *Dispatcher) goes(f func()) {
	if !d.closed {
		d.wg.Go(f)
	}
}

// Remote calls a function and waits for its outcome. An error means that the call was not
// accepted, that its arguments do not fit the function, or that ctx ended first.
func (d *Dispatcher) Remote(ctx context.Context, r Request) (Outcome, error) {
	c, err := r.check()
	if err != nil {
		return Outcome{}, err
	}
	if d.stopping.Load() {
		return Outcome{}, errStopping()
	}
	p, outcome, err := d.submit(ctx, c)
	if err != nil {
		return Outcome{}, err
	}
	if p == nil {
		return outcome.in(c.call.ResultEncoding).result()
	}
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return Outcome{}, d.leave(ctx, p)
		case <-d.ctx.Done():
			return Outcome{}, errStopping()
		}
	}
	if p.err != nil {
		return Outcome{}, p.err
	}
	return p.outcome.in(c.call.ResultEncoding).result()
}
