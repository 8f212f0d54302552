package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// State is where a call is in its life.
type State int64

// The states.
const (
	Running   = State(store.CallRunning)
	Succeeded = State(store.CallSucceeded)
	Failed    = State(store.CallFailed)
	Cancelled = State(store.CallCancelled)
)

// Info is one call as the daemon knows it.
type Info struct {
	ID        string
	Sandbox   string
	Callable  string
	State     State
	Accepted  time.Time
	Finished  time.Time // zero while it is running
	ErrorType string    // for Failed and Cancelled
	Outcome   *Outcome  // nil while it is running, in lists, and if Expired
	// Expired tells that the call has an outcome which is no longer kept.
	Expired bool
	// StillRunning tells that its function goes on although the call has its outcome.
	StillRunning bool
}

// ended is a finished call in the table.
type ended struct {
	outcome  Outcome
	callable string
	accepted time.Time
	finished time.Time
}

func (p *pending) ended(o Outcome, at time.Time) ended {
	return ended{outcome: o, callable: p.callable, accepted: p.acceptedAt, finished: at}
}

// state is what an outcome makes of its call, and the type of its error.
func (o Outcome) state() (State, string) {
	switch e := o.Error; {
	case e == nil:
		return Succeeded, ""
	case e.Cancelled:
		return Cancelled, clip(e.Type, maxErrorType)
	default:
		return Failed, clip(e.Type, maxErrorType)
	}
}

func (e ended) info(sandbox string) Info {
	state, errorType := e.outcome.state()
	return Info{
		ID: e.outcome.CallID, Sandbox: sandbox, Callable: e.callable, State: state,
		Accepted: e.accepted, Finished: e.finished, ErrorType: errorType, Outcome: &e.outcome,
	}
}

func callNotFound(sandbox, id string) *errs.Error {
	return errs.New(errs.NotFound, errs.CallNotFound, "call %s does not exist in sandbox %s", id, sandbox)
}

// Submit starts a call that goes on when the caller leaves, and returns once it is accepted.
// A call that is there already, by the same id and request, is submitted from now on. An
// error means that the call was not accepted.
func (d *Dispatcher) Submit(ctx context.Context, r Request) (Info, error) {
	c, err := r.check()
	if err != nil {
		return Info{}, err
	}
	if d.stopping.Load() {
		return Info{}, errStopping()
	}
	c.submit()
	p, _, err := d.submit(ctx, c)
	if err != nil {
		return Info{}, err
	}
	if p != nil {
		if err := d.noteSubmitted(ctx, p); err != nil {
			return Info{}, err
		}
	}
	return d.Get(ctx, c.request.Sandbox, c.request.ID)
}

// noteSubmitted makes sure that a call is known as submitted after a restart, too.
func (d *Dispatcher) noteSubmitted(ctx context.Context, p *pending) error {
	select {
	case <-p.accepted:
	case <-ctx.Done():
		return d.gone(ctx, p)
	case <-d.ctx.Done():
		return errStopping()
	}
	if p.err != nil {
		return p.err
	}
	d.mu.Lock()
	noted := p.submitted
	d.mu.Unlock()
	if noted {
		return nil
	}
	err := d.opts.Store.SubmitCall(context.WithoutCancel(ctx), p.request.ID)
	if err != nil && !errs.Is(err, errs.NotFound) { // not there: over, and known from an earlier daemon only
		return err
	}
	d.mu.Lock()
	p.submitted = true
	d.mu.Unlock()
	return nil
}

// open returns an accepted call of a sandbox whose outcome is not told yet; nil if there is none.
func (d *Dispatcher) openCall(sandbox, id string) *pending {
	p := d.pending[id]
	if p == nil || p.request.Sandbox != sandbox || p.acceptedAt.IsZero() {
		return nil
	}
	return p
}

// Get returns a call; NotFound if it is not, or no longer, known.
func (d *Dispatcher) Get(ctx context.Context, sandbox, id string) (Info, error) {
	info, known := d.inMemory(sandbox, id)
	if !known {
		row, err := d.opts.Store.Call(ctx, id)
		switch {
		case errs.Is(err, errs.NotFound):
			return Info{}, callNotFound(sandbox, id)
		case err != nil:
			return Info{}, err
		case row.Sandbox != sandbox || row.Finished.IsZero(): // an open one that is not in memory was not accepted
			return Info{}, callNotFound(sandbox, id)
		}
		info = d.fromRow(row)
		info.Outcome, err = d.storedOutcome(ctx, row)
		if err != nil {
			return Info{}, err
		}
		info.Expired = info.Outcome == nil
	}
	return info, nil
}

// inMemory is what can be said about a call without the store.
func (d *Dispatcher) inMemory(sandbox, id string) (Info, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.openCall(sandbox, id); p != nil && !isClosed(p.done) {
		return Info{ID: id, Sandbox: sandbox, Callable: p.callable, State: Running, Accepted: p.acceptedAt}, true
	}
	e, ok := d.table.Outcome(sandbox, id)
	if !ok {
		return Info{}, false
	}
	info := e.info(sandbox)
	info.StillRunning = d.still.has(sandbox, id)
	return info, true
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// fromRow is a finished call of the store, without its outcome.
func (d *Dispatcher) fromRow(row store.CallRow) Info {
	d.mu.Lock()
	still := d.still.has(row.Sandbox, row.ID)
	d.mu.Unlock()
	return Info{
		ID: row.ID, Sandbox: row.Sandbox, Callable: row.Callable, State: State(row.State), Accepted: row.Accepted,
		Finished: row.Finished, ErrorType: row.ErrorType, Expired: !row.Kept, StillRunning: still && !row.Finished.IsZero(),
	}
}

// storedOutcome reads the outcome of a finished call; nil if it is no longer kept. One that
// is damaged is not kept either: the log says which file it is.
func (d *Dispatcher) storedOutcome(ctx context.Context, row store.CallRow) (*Outcome, error) {
	if !row.Kept {
		return nil, nil
	}
	head, value, err := d.opts.Store.Outcome(ctx, row.ID)
	switch {
	case errs.Is(err, errs.NotFound):
		return nil, nil
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err == nil:
		var o Outcome
		if o, err = decodeOutcome(row.ID, head, value); err == nil {
			o = o.in(row.Encoding)
			return &o, nil
		}
	}
	d.opts.Logger.Error("outcome cannot be read", "sandbox", row.Sandbox, "call", row.ID, "err", err)
	return nil, nil
}

// Wait returns a call once it has its outcome, or as it is when timeout has passed; a negative
// timeout is none. Until then the caller is a waiter of the call. Errors: those of Get, and
// the end of ctx.
func (d *Dispatcher) Wait(ctx context.Context, sandbox, id string, timeout time.Duration) (Info, error) {
	d.mu.Lock()
	p := d.openCall(sandbox, id)
	if p == nil || timeout == 0 {
		d.mu.Unlock()
		return d.Get(ctx, sandbox, id)
	}
	waits := d.table.Wait(sandbox, id)
	d.mu.Unlock()
	var due chan struct{}
	if timeout > 0 {
		due = make(chan struct{})
		stop := d.opts.Clock.AfterFunc(timeout, func() { close(due) })
		defer stop()
	}
	select {
	case <-p.done:
	case <-due:
		if waits {
			d.leaves(p)
		}
	case <-ctx.Done():
		if waits {
			return Info{}, d.leave(ctx, p)
		}
		return Info{}, d.gone(ctx, p)
	case <-d.ctx.Done():
		return Info{}, errStopping()
	}
	return d.Get(ctx, sandbox, id)
}

// Cancel asks for the end of a call and returns the call with its outcome. Errors: those of
// Get, and the end of ctx.
func (d *Dispatcher) Cancel(ctx context.Context, sandbox, id string) (Info, error) {
	d.mu.Lock()
	p := d.openCall(sandbox, id)
	if p == nil {
		d.mu.Unlock()
		return d.Get(ctx, sandbox, id)
	}
	effect := d.table.Cancel(d.opts.Clock.Now(), id)
	d.mu.Unlock()
	d.apply(p, effect)
	select {
	case <-p.done:
		return d.Get(ctx, sandbox, id)
	case <-ctx.Done():
		return Info{}, d.gone(ctx, p)
	case <-d.ctx.Done():
		return Info{}, errStopping()
	}
}

// ListQuery selects calls.
type ListQuery struct {
	Sandbox string  // empty = of all sandboxes
	Before  int64   // the number that the page before ended with; 0 = first page
	States  []State // empty = all
	Limit   int
}

// List returns calls without their outcomes, the newest first, and the number that the page
// ends with; 0 = it is the last one.
func (d *Dispatcher) List(ctx context.Context, q ListQuery) (_ []Info, next int64, _ error) {
	query := store.CallQuery{Sandbox: q.Sandbox, Before: q.Before, Limit: q.Limit + 1}
	for _, s := range q.States {
		query.States = append(query.States, int64(s))
	}
	rows, err := d.opts.Store.Calls(ctx, query)
	if err != nil {
		return nil, 0, err
	}
	if len(rows) > q.Limit {
		rows = rows[:q.Limit]
		next = rows[q.Limit-1].Num
	}
	page := make([]Info, 0, len(rows))
	for _, row := range rows {
		info := d.fromRow(row)
		if info.State == Running {
			memory, known := d.inMemory(row.Sandbox, row.ID)
			if !known && !d.finishedMeanwhile(ctx, row.ID) {
				continue // written, but not accepted
			}
			if known {
				memory.Outcome = nil
				info = memory
			}
		} else {
			info.Expired = false // an outcome may be in memory only
			if !row.Kept {
				_, kept := d.inMemory(row.Sandbox, row.ID)
				info.Expired = !kept
			}
		}
		page = append(page, info)
	}
	return page, next, nil
}

// finishedMeanwhile reports whether a call that was open in the store a moment ago has ended.
func (d *Dispatcher) finishedMeanwhile(ctx context.Context, id string) bool {
	row, err := d.opts.Store.Call(ctx, id)
	return err == nil && !row.Finished.IsZero()
}

// notKept is the outcome of a call whose own is no longer kept, as far as it is known.
func notKept(row store.CallRow) Outcome {
	if row.ErrorType == "" {
		return failed(row.ID, wire.ErrResultUnavailable, "the call returned, but its value is no longer kept")
	}
	o := failed(row.ID, row.ErrorType, "the call ended with this error, but its text is no longer kept")
	o.Error.Cancelled = State(row.State) == Cancelled
	return o
}

// gone says why a caller left who was no waiter of the call.
func (d *Dispatcher) gone(ctx context.Context, p *pending) error {
	if d.stopping.Load() {
		return errStopping()
	}
	id := p.request.ID
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errs.New(errs.DeadlineExceeded, errs.Deadline, "the caller's deadline ran out before call %s ended", id).WithMeta("call_id", id)
	}
	return errs.New(errs.Cancelled, errs.CallerLeft, "the caller left before call %s ended", id).WithMeta("call_id", id)
}
