package events

import (
	"context"

	"github.com/agentixd/agentixd/internal/errs"
)

// Bounds of one page that a reader holds, unless one batch is larger.
const (
	pageBytes  = 256 << 10
	pageChunks = 64
	diskRows   = 512 // batches that one look at the disk takes; small ones are many
)

// source is where a reader stands: in one journal, or in all.
type source interface {
	// start sets the position where the query begins.
	start(ctx context.Context, q *Query, f *filter) error
	// page returns the next events that pass f, and moves the position behind all it looked
	// at. An empty page with end set means that there is nothing more now; wake is closed
	// when there is.
	page(ctx context.Context, f *filter) (p page, err error)
	// cursor is the position.
	cursor() string
	// finished reports whether the terminal event of a call lies before the position.
	finished(ctx context.Context, callID string) (bool, error)
	close()
}

type page struct {
	evs  []Event
	end  bool            // nothing more now
	wake <-chan struct{} // with end: closed once there may be more
	over bool            // with end: there will never be more
}

// Read calls fn with the events that q asks for, in order: each once, or a gap that tells
// what retention has removed. cursor is the position after the last event looked at.
//
// Without Follow, Read ends at what was the newest event when it began. With it, Read goes
// on, and calls fn without events every Heartbeat, until fn fails, ctx ends (Read returns
// its cause), the call of CallID has finished, or the sandbox was deleted.
//
// A slow fn delays nobody: Read then reads from disk, at its pace. Errors: NotFound
// (SandboxNotFound) for a sandbox without a journal, OutOfRange (CursorExpired) for a
// cursor that is not of this journal.
func (j *Journal) Read(ctx context.Context, q Query, fn func(evs []Event, cursor string) error) error {
	if j.loaded != nil {
		return j.loaded
	}
	src, err := j.source(&q)
	if err != nil {
		return err
	}
	defer src.close()
	r := &reader{journal: j, src: src, query: &q, filter: newFilter(&q), fn: fn}
	if err := src.start(ctx, &q, &r.filter); err != nil {
		return err
	}
	return r.run(ctx)
}

func (j *Journal) source(q *Query) (source, error) {
	if q.Sandbox == "" {
		return newAllSource(j, q), nil
	}
	s, err := j.streamOf(q)
	if err != nil {
		return nil, err
	}
	return newOneSource(j, s, q.Follow), nil
}

// streamOf is the journal that the cursor names or, without one, the newest of the sandbox.
func (j *Journal) streamOf(q *Query) (*stream, error) {
	newest := j.lookup(q.Sandbox)
	if newest == nil {
		return nil, errs.New(errs.NotFound, errs.SandboxNotFound, "sandbox %q does not exist", q.Sandbox)
	}
	if q.After == "" {
		return newest, nil
	}
	c, err := parseCursor(q.After)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	s := j.byOwner[c.owner]
	j.mu.Unlock()
	if c.form != formOne || s == nil || s.sandbox != q.Sandbox {
		return nil, errCursor("is not of this sandbox's journal")
	}
	return s, nil
}

type reader struct {
	journal *Journal
	src     source
	query   *Query
	filter  filter
	fn      func([]Event, string) error
}

func (r *reader) run(ctx context.Context) error {
	follow := r.query.Follow
	if follow && r.query.CallID != "" {
		done, err := r.src.finished(ctx, r.query.CallID)
		if err != nil {
			return err
		}
		follow = !done
	}
	beat := r.journal.newBeat(follow, r.query.Greet)
	defer beat.stop()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, err := r.src.page(ctx, &r.filter)
		if err != nil {
			return err
		}
		if len(p.evs) > 0 {
			at, last := r.src.cursor(), r.cut(&p)
			if last {
				at = p.evs[len(p.evs)-1].Cursor
			}
			if err := r.fn(p.evs, at); err != nil || last {
				return err
			}
			beat.reset()
		}
		if p.end && (!follow || p.over) {
			return nil
		}
		wake := p.wake
		if !p.end { // what the filter passes over goes on, but heartbeats must not stop for it
			wake = noWait
		}
		select {
		case <-wake:
		case <-beat.due:
			if err := r.fn(nil, r.src.cursor()); err != nil {
				return err
			}
			beat.reset()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.journal.stop:
			return errStopping
		}
	}
}

// noWait is closed.
var noWait = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// cut ends the page after the event that ends a follower's reading, and reports whether
// there is one.
func (r *reader) cut(p *page) bool {
	if !r.query.Follow || r.query.CallID == "" {
		return false
	}
	for i := range p.evs {
		if finishes(&p.evs[i], r.query.CallID) {
			p.evs = p.evs[:i+1]
			return true
		}
	}
	return false
}

// beat tells a follower when to send a heartbeat.
type beat struct {
	journal *Journal
	due     chan struct{}
	cancel  func() bool
}

func (j *Journal) newBeat(follow, greet bool) *beat {
	b := &beat{journal: j, due: make(chan struct{}, 1)}
	switch {
	case follow && greet:
		b.due <- struct{}{}
	case follow:
		b.reset()
	}
	return b
}

func (b *beat) reset() {
	b.stop()
	select {
	case <-b.due:
	default:
	}
	b.cancel = b.journal.opts.Clock.AfterFunc(b.journal.opts.Heartbeat, func() {
		select {
		case b.due <- struct{}{}:
		default:
		}
	})
}

func (b *beat) stop() {
	if b.cancel != nil {
		b.cancel()
	}
}
