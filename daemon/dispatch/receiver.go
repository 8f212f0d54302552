package dispatch

import (
	"context"
	"fmt"

	"github.com/agentixd/agentixd/daemon/calls"
	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// receiver takes what the runtime of one sandbox sends. A sandbox that is made anew gets a
// new one, and the old one counts no more.
type receiver struct {
	d       *Dispatcher
	sandbox string
	link    Link // guarded by d.mu
}

// Handler returns the receiver for a new link to a sandbox.
func (d *Dispatcher) Handler(sandbox string) link.Handler {
	r := &receiver{d: d, sandbox: sandbox}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receivers[sandbox] = r
	return r
}

// Bind implements link.Binder.
func (r *receiver) Bind(l *link.Link) { r.bind(l) }

func (r *receiver) bind(l Link) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.link = l
}

func (r *receiver) bound() Link {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return r.link
}

// linkOf is the link of a sandbox whatever its state; nil if it has none.
func (d *Dispatcher) linkOf(sandbox string) Link {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.receivers[sandbox]; r != nil {
		return r.link
	}
	return nil
}

// current reports whether r is the newest receiver of its sandbox.
func (r *receiver) current() bool {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return r.d.receivers[r.sandbox] == r
}

// Connected says what to ask the runtime for after a connect.
func (r *receiver) Connected(wire.Health) link.Resume {
	d := r.d
	if !r.current() {
		return link.Resume{}
	}
	var out link.Resume
	var err error
	out.Sid, out.SinceSeq, err = d.opts.Journal.StreamCursor(d.ctx, r.sandbox, "")
	if err != nil && d.ctx.Err() == nil {
		d.opts.Logger.Error("record stream begins anew", "sandbox", r.sandbox, "err", err)
	}
	d.inject("call/onResume", "")
	d.mu.Lock()
	ids, cancel, wake := d.table.Resume(d.opts.Clock.Now(), r.sandbox)
	var waking []*pending
	for _, id := range cancel {
		if p := d.pending[id]; p != nil {
			waking = append(waking, p)
		}
	}
	d.mu.Unlock()
	for _, p := range waking {
		d.wakeAt(p, wake)
	}
	out.CallIDs, out.Cancel = ids, cancel
	return out
}

// Disconnected stops waiting for what only the runtime can say.
func (r *receiver) Disconnected(error) {
	if r.current() {
		r.d.mu.Lock()
		defer r.d.mu.Unlock()
		r.d.table.Disconnected(r.sandbox)
	}
}

// Records hands a batch to the journal, and acks it once it is committed.
func (r *receiver) Records(b wire.Batch) {
	if !r.current() {
		return
	}
	last := b.Seq + uint64(len(b.Records)) - 1
	r.d.opts.Journal.AppendBatch(r.sandbox, b, func() {
		if l := r.bound(); l != nil {
			l.AckRecords(b.Sid, last)
		}
	})
}

// Result is the outcome of a call that returned.
func (r *receiver) Result(res wire.Result) {
	r.d.answer(r, res.CallID, func(want string) Outcome { return fromResult(res, want) })
}

// CallError is the outcome of a call that did not return.
func (r *receiver) CallError(e wire.CallError) {
	r.d.answer(r, e.CallID, func(string) Outcome { return fromError(e) })
}

// restore takes on the calls that an earlier daemon accepted and did not finish. A call whose
// FINISHED event is in the journal already gets no second one.
func (d *Dispatcher) restore(ctx context.Context) error {
	rows, err := d.opts.Store.OpenCalls(ctx)
	if err != nil {
		return err
	}
	told := map[string]bool{}
	looked := map[string]bool{}
	for _, row := range rows {
		if looked[row.Sandbox] {
			continue
		}
		looked[row.Sandbox] = true
		if err := d.findFinished(ctx, row.Sandbox, told); err != nil {
			return err
		}
	}
	for _, row := range rows {
		d.restoreCall(row, told[row.ID])
	}
	return nil
}

func (d *Dispatcher) findFinished(ctx context.Context, sandbox string, told map[string]bool) error {
	query := events.Query{Sandbox: sandbox, Kinds: []events.Kind{events.KindCall}}
	err := d.opts.Journal.Read(ctx, query, func(evs []events.Event, _ string) error {
		for _, e := range evs {
			if body, ok := e.Body.(*events.Call); ok && body.Phase == events.CallFinished {
				told[e.CallID] = true
			}
		}
		return nil
	})
	if err != nil && !errs.Is(err, errs.NotFound) {
		return fmt.Errorf("read call events of sandbox %s: %w", sandbox, err)
	}
	return nil
}

func (d *Dispatcher) restoreCall(row store.CallRow, told bool) {
	request := calls.Request{ID: row.ID, Sandbox: row.Sandbox, Hash: string(row.RequestHash), Named: true}
	p := &pending{request: request, callable: row.Callable, quiet: told, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(d.ctx)
	d.mu.Lock()
	effect := d.table.Restore(d.opts.Clock.Now(), request)
	d.pending[row.ID] = p
	d.mu.Unlock()
	d.apply(p, effect)
	d.mu.Lock()
	d.goes(func() { d.expectSandbox(p) })
	d.mu.Unlock()
}

// expectSandbox ends a call of an earlier daemon if its sandbox no longer exists once the
// sandboxes had time to be found again.
func (d *Dispatcher) expectSandbox(p *pending) {
	due := make(chan struct{})
	stop := d.opts.Clock.AfterFunc(reconcileTime, func() { close(due) })
	defer stop()
	select {
	case <-due:
	case <-p.ctx.Done():
		return
	}
	if _, err := d.opts.Links.Link(p.request.Sandbox); errs.Is(err, errs.NotFound) {
		d.end(p, lost(p, err))
	}
}
