package events

import (
	"context"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
)

const pageEvents = 1024 // events after which a page is full

// oneSource reads one journal.
type oneSource struct {
	j      *Journal
	s      *stream
	follow bool
	pos    uint64 // seq of the last event looked at
	until  uint64 // seq of the last event to look at
	ended  bool   // the last event of the sandbox was looked at
}

func newOneSource(j *Journal, s *stream, follow bool) *oneSource {
	if follow {
		s.mu.Lock()
		s.followers++
		s.mu.Unlock()
	}
	return &oneSource{j: j, s: s, follow: follow, until: math.MaxUint64}
}

func (o *oneSource) close() {
	if !o.follow {
		return
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.s.followers--; o.s.followers == 0 {
		o.s.tail.reset()
	}
}

func (o *oneSource) cursor() string { return o.cursorAt(o.pos) }

func (o *oneSource) cursorAt(seq uint64) string {
	return cursor{form: formOne, owner: o.s.owner, a: seq}.String()
}

func (o *oneSource) start(ctx context.Context, q *Query, f *filter) error {
	o.s.mu.Lock()
	last, trimmed := o.s.last, o.s.trimmed
	o.s.mu.Unlock()
	if !o.follow {
		o.until = last
	}
	o.pos = trimmed
	switch {
	case q.After != "":
		c, err := parseCursor(q.After)
		if err != nil {
			return err
		}
		if c.a > last || c.b != 0 {
			return errCursor("is ahead of the journal")
		}
		o.pos = c.a
	case q.Tail != nil:
		if f.everything() {
			o.pos = max(trimmed, last-min(last, uint64(*q.Tail)))
			return nil
		}
		return o.startAtTail(ctx, int(*q.Tail), f, last)
	case !q.Since.IsZero():
		return o.startAtTime(ctx, q.Since, last)
	}
	return nil
}

// startAtTail goes back over n events that match.
func (o *oneSource) startAtTail(ctx context.Context, n int, f *filter, last uint64) error {
	o.pos = last
	if n == 0 {
		return nil
	}
	return o.j.store.Batches(ctx, store.BatchQuery{Journal: o.s.num, Kinds: f.kinds, Newest: true}, func(b store.BatchRow) (bool, error) {
		evs, err := decode(o.s.sandbox, b.Data, b.FirstSeq, b.LastSeq)
		if err != nil {
			return false, errDamaged(err)
		}
		for i := len(evs) - 1; i >= 0; i-- {
			if evs[i].Seq > last || !f.match(&evs[i]) {
				continue
			}
			o.pos = evs[i].Seq - 1
			if n--; n == 0 {
				return false, nil
			}
		}
		return true, nil
	})
}

func (o *oneSource) startAtTime(ctx context.Context, since time.Time, last uint64) error {
	o.pos = last
	at := nanoseconds(since)
	return o.j.store.Batches(ctx, store.BatchQuery{Journal: o.s.num, SinceTime: at, Limit: 1}, func(b store.BatchRow) (bool, error) {
		evs, err := decode(o.s.sandbox, b.Data, b.FirstSeq, b.LastSeq)
		if err != nil {
			return false, errDamaged(err)
		}
		for i := range evs {
			if nanoseconds(evs[i].Time) >= at {
				o.pos = min(last, evs[i].Seq-1)
				break
			}
		}
		return false, nil
	})
}

func (o *oneSource) page(ctx context.Context, f *filter) (page, error) {
	o.s.mu.Lock()
	last, chunks := min(o.s.last, o.until), o.inTail()
	switch {
	case chunks == nil && o.pos < o.s.trimmed:
		trimmed := o.s.trimmed
		o.s.mu.Unlock()
		return o.gap(trimmed), nil
	case o.pos >= last:
		p := page{end: true}
		if o.follow {
			p.wake = o.s.waiter()
			p.over = (o.ended || !o.s.deleted.IsZero()) && o.s.appended == o.s.committed
		}
		o.s.mu.Unlock()
		return p, nil
	}
	o.s.mu.Unlock()
	if chunks != nil {
		var p page
		for i := range chunks {
			if len(p.evs) >= pageEvents {
				break
			}
			o.take(&p, f, chunks[i].evs)
		}
		return p, nil
	}
	return o.fromDisk(ctx, f, last)
}

// inTail returns what memory has from the position on. The caller holds s.mu.
func (o *oneSource) inTail() []chunk {
	chunks := o.s.tail.chunks
	if len(chunks) == 0 || o.pos+1 < chunks[0].evs[0].Seq || o.pos >= o.s.last {
		return nil
	}
	i := sort.Search(len(chunks), func(i int) bool { return chunks[i].evs[0].Seq > o.pos+1 }) - 1
	return o.s.tail.from(i)
}

// gap tells that retention removed everything up to seq trimmed.
func (o *oneSource) gap(trimmed uint64) page {
	ev := Event{Seq: trimmed, Time: o.j.opts.Clock.Now(), Sandbox: o.s.sandbox, Cursor: o.cursorAt(trimmed),
		Body: &Gap{FromSeq: o.pos + 1, ToSeq: trimmed, Dropped: trimmed - o.pos, Source: SourceJournal}}
	o.pos = trimmed
	return page{evs: []Event{ev}}
}

// take moves over events and keeps those that match.
func (o *oneSource) take(p *page, f *filter, evs []Event) {
	for i := range evs {
		ev := evs[i]
		if ev.Seq <= o.pos {
			continue
		}
		if ev.Seq > o.until {
			return
		}
		o.pos = ev.Seq
		o.ended = o.ended || endsLife(&ev)
		if f.match(&ev) {
			ev.Cursor = o.cursorAt(ev.Seq)
			p.evs = append(p.evs, ev)
		}
	}
}

func (o *oneSource) fromDisk(ctx context.Context, f *filter, last uint64) (page, error) {
	var p page
	before, rows, bytes, full, beyond := o.pos, 0, 0, false, false
	q := store.BatchQuery{Journal: o.s.num, AfterSeq: o.pos, Kinds: f.kinds, Limit: diskRows}
	err := o.j.store.Batches(ctx, q, func(b store.BatchRow) (bool, error) {
		if beyond = b.FirstSeq > o.until; beyond {
			return false, nil
		}
		rows++
		bytes += len(b.Data)
		if f.kinds == 0 && b.FirstSeq > o.pos+1 && b.FirstSeq > o.trimmedTo()+1 {
			return false, errDamaged(fmt.Errorf("after event %d of sandbox %s comes %d", o.pos, o.s.sandbox, b.FirstSeq))
		}
		evs, err := decode(o.s.sandbox, b.Data, b.FirstSeq, b.LastSeq)
		if err != nil {
			return false, errDamaged(err)
		}
		o.take(&p, f, evs)
		full = bytes >= pageBytes || len(p.evs) >= pageEvents || o.pos >= o.until
		return !full, nil
	})
	if err != nil {
		return page{}, readFailure(ctx, err)
	}
	if trimmed := o.trimmedTo(); trimmed > before { // retention may have taken rows from under the look
		o.pos = before
		return o.gap(trimmed), nil
	}
	if beyond || !full && rows < diskRows { // no further row up to last matches
		o.pos = max(o.pos, last)
	}
	return p, nil
}

func (o *oneSource) trimmedTo() uint64 {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return o.s.trimmed
}

func (o *oneSource) finished(ctx context.Context, callID string) (bool, error) {
	row, err := o.j.store.Call(ctx, callID)
	switch {
	case err == nil && row.Finished.IsZero():
		return false, nil
	case err != nil && !errs.Is(err, errs.NotFound):
		return false, readFailure(ctx, err)
	}
	trimmed := o.trimmedTo()
	if o.pos <= trimmed && trimmed == 0 {
		return false, nil // nothing lies before
	}
	before, after := false, false
	q := store.BatchQuery{Journal: o.s.num, Kinds: KindCall.bit(), Newest: true}
	err = o.j.store.Batches(ctx, q, func(b store.BatchRow) (bool, error) {
		evs, err := decode(o.s.sandbox, b.Data, b.FirstSeq, b.LastSeq)
		if err != nil {
			return false, errDamaged(err)
		}
		for i := range evs {
			if finishes(&evs[i], callID) {
				before, after = evs[i].Seq <= o.pos, evs[i].Seq > o.pos
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return false, readFailure(ctx, err)
	}
	// The event of a call that finished long ago may be gone; then nothing is left to wait for.
	long := !row.Finished.IsZero() && o.j.opts.Clock.Now().Sub(row.Finished) > time.Minute
	return before || !after && trimmed > 0 && long, nil
}

func errDamaged(cause error) error {
	return errs.New(errs.Internal, errs.InternalFault, "the journal is damaged").WithCause(cause)
}

// readFailure prefers the reason why ctx ended.
func readFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
