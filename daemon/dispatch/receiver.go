package dispatch

import (
	"context"
	"fmt"
	"time"

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

	// Guarded by d.mu.
	link      Link
	neighbour bool        // of the newest connection
	retires   bool        // the runtime tells when stopped calls have ended
	unwatch   func() bool // stops watch
}

// Handler returns the receiver for a new link to a sandbox.
func (d *Dispatcher) Handler(sandbox string) link.Handler {
	r := &receiver{d: d, sandbox: sandbox}
	d.mu.Lock()
	defer d.mu.Unlock()
	if before := d.receivers[sandbox]; before != nil {
		before.stopWatching()
	}
	d.receivers[sandbox] = r
	if a := d.activity[sandbox]; a != nil {
		a.gone = false
	}
	d.still.lost(sandbox)
	r.watch()
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
func (r *receiver) Connected(p link.Peer) link.Resume {
	d := r.d
	if !r.current() {
		return link.Resume{}
	}
	out := link.Resume{Streams: map[string]link.Position{}}
	streams := []string{""}
	if p.Neighbour {
		streams = []string{wire.NamespaceLog, wire.NamespaceTrace}
	}
	for _, stream := range streams {
		sid, seq, err := d.opts.Journal.StreamCursor(d.ctx, r.sandbox, stream)
		if err != nil && d.ctx.Err() == nil {
			d.opts.Logger.Error("record stream begins anew", "sandbox", r.sandbox, "err", err)
		}
		out.Streams[stream] = link.Position{Sid: sid, Seq: seq}
	}
	d.inject("call/onResume", "")
	d.mu.Lock()
	r.neighbour, r.retires = p.Neighbour, retires(p)
	out.Cancel = d.still.connected(d.opts.Clock.Now(), r.sandbox, p.StillRunning)
	r.stopWatching()
	ids, cancel, wake := d.table.Resume(d.opts.Clock.Now(), r.sandbox)
	var waking []*pending
	for _, id := range cancel {
		if c := d.pending[id]; c != nil {
			waking = append(waking, c)
		}
	}
	for _, id := range ids {
		c := d.pending[id]
		if c != nil && c.call != nil && p.Life != "" && c.life == p.Life {
			c.again = true
			out.Again = append(out.Again, id)
		} else {
			out.CallIDs = append(out.CallIDs, id)
		}
	}
	d.mu.Unlock()
	for _, c := range waking {
		d.wakeAt(c, wake)
	}
	out.Cancel = append(out.Cancel, cancel...)
	return out
}

// Disconnected stops waiting for what only the runtime can say. Calls that did not leave
// are sent on the next connection.
func (r *receiver) Disconnected(unsent []string, _ error) {
	d := r.d
	if !r.current() {
		return
	}
	d.mu.Lock()
	d.table.Disconnected(r.sandbox)
	r.watch()
	d.mu.Unlock()
	for _, id := range unsent {
		d.sendAnew(r, id, d.table.Unsend)
	}
}

// sendAnew sends a call once more of which the table says, by way of unsend, that it surely
// did not run.
func (d *Dispatcher) sendAnew(r *receiver, id string, unsend func(now time.Time, id string) (calls.Effect, bool)) {
	d.mu.Lock()
	p := d.pending[id]
	if d.receivers[r.sandbox] != r || p == nil || p.request.Sandbox != r.sandbox || p.call == nil {
		d.mu.Unlock()
		return
	}
	p.again = false
	effect, again := unsend(d.opts.Clock.Now(), id)
	p.atRuntime = p.atRuntime && !again
	d.mu.Unlock()
	d.apply(p, effect)
	if again && effect.End == calls.NoCause {
		d.mu.Lock()
		d.goes(func() { d.sendLater(p, 0) })
		d.mu.Unlock()
	}
}

// watch ends the calls of a sandbox whose runtime cannot be reached for too long; d.mu is held.
func (r *receiver) watch() {
	r.stopWatching()
	if r.d.closed {
		return
	}
	r.unwatch = r.d.opts.Clock.AfterFunc(unreachable, func() {
		if l := r.bound(); r.current() && (l == nil || l.Session() == 0) {
			r.d.giveUp(r.sandbox)
		}
	})
}

// stopWatching is called with d.mu held.
func (r *receiver) stopWatching() {
	if r.unwatch != nil {
		r.unwatch()
		r.unwatch = nil
	}
}

// giveUp ends each call in flight of a sandbox: nobody can know what became of it.
func (d *Dispatcher) giveUp(sandbox string) {
	for _, p := range d.inFlight(sandbox) {
		d.end(p, failed(p.request.ID, wire.ErrResultUnavailable, "the runtime could not be reached for %s", unreachable))
	}
}

// Records hands a batch to the journal, and acks it once it is committed.
func (r *receiver) Records(b wire.Batch) {
	if !r.current() {
		return
	}
	stream, sid, last := b.Stream, b.Sid, b.Seq+uint64(len(b.Records))-1
	r.d.opts.Journal.AppendBatch(r.sandbox, b, func() {
		if l := r.bound(); l != nil {
			l.AckRecords(stream, sid, last)
		}
	})
}

// Result is the outcome of a call that returned.
func (r *receiver) Result(res wire.Result) {
	read := fromResult
	if r.isNeighbour() {
		read = fromNeighbour
	}
	r.d.answer(r, res.CallID, nil, func(want string) Outcome { return read(res, want) })
}

// CallError is the outcome of a call that did not return.
func (r *receiver) CallError(e wire.CallError) {
	if e.Error != nil && e.Error.Type == wire.ErrNotReceived && r.d.wantsAgain(e.CallID) {
		r.d.sendAnew(r, e.CallID, r.d.table.Missed)
		return
	}
	r.d.answer(r, e.CallID, e.Error, func(string) Outcome { return fromError(e) })
}

func (r *receiver) isNeighbour() bool {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return r.neighbour
}

// wantsAgain reports whether the last resume asked for a call in order to send it again.
func (d *Dispatcher) wantsAgain(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pending[id]
	return p != nil && p.again
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
	request := calls.Request{ID: row.ID, Sandbox: row.Sandbox, Hash: string(row.RequestHash), Named: true, Submitted: row.Submitted}
	p := &pending{
		request: request, callable: row.Callable, want: row.Encoding, quiet: told, atRuntime: true,
		acceptedAt: row.Accepted, submitted: row.Submitted, accepted: make(chan struct{}), done: make(chan struct{}), written: make(chan struct{}),
	}
	close(p.accepted)
	p.ctx, p.cancel = context.WithCancelCause(d.ctx)
	now := d.opts.Clock.Now()
	d.mu.Lock()
	effect := d.table.Restore(now, request, timeLeft(row, now))
	d.pending[row.ID] = p
	d.opened(row.Sandbox)
	d.mu.Unlock()
	d.apply(p, effect)
	d.mu.Lock()
	d.goes(func() { d.expectSandbox(p) })
	d.mu.Unlock()
}

// timeLeft is how long a call of an earlier daemon may go on; 0 = no limit. A runtime that
// keeps deadlines itself may have the result of a call whose time is over, so it gets time to
// connect. The clock may have jumped: no call gets more than it was given.
func timeLeft(row store.CallRow, now time.Time) time.Duration {
	if row.Deadline.IsZero() {
		return 0
	}
	left := min(row.Deadline.Sub(now), row.Deadline.Sub(row.Accepted))
	return max(left+timeoutSlack, reconcileTime)
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
