package events

import (
	"context"
	"maps"
	"math"
	"sort"

	"github.com/agentixd/agentixd/daemon/store"
)

// allSource reads all journals, in the order of their commits: so each in its own order,
// and with a position of two numbers however many there are.
type allSource struct {
	j      *Journal
	follow bool
	batch  uint64 // the batch to look at next
	skip   int    // how many of its events were looked at
	until  uint64 // the last batch to look at

	seen    map[int64]uint64 // by journal: seq of the last event looked at
	told    map[int64]uint64 // by journal: up to which seq a gap was told
	bare    bool             // without cursors in the events
	checked uint64           // up to which trimmed batch gaps were looked for
}

func newAllSource(j *Journal, q *Query) *allSource {
	a := &allSource{j: j, follow: q.Follow, batch: 1, until: math.MaxInt64, seen: map[int64]uint64{}, told: map[int64]uint64{}}
	if a.follow {
		j.all.mu.Lock()
		j.all.followers++
		j.all.mu.Unlock()
	}
	return a
}

func (a *allSource) close() {
	if !a.follow {
		return
	}
	a.j.all.mu.Lock()
	defer a.j.all.mu.Unlock()
	if a.j.all.followers--; a.j.all.followers == 0 {
		a.j.all.tail.reset()
	}
}

func (a *allSource) cursor() string { return a.cursorAt(a.batch, a.skip) }

func (a *allSource) cursorAt(batch uint64, seen int) string {
	return cursor{form: formAll, owner: a.j.all.owner, a: batch, b: uint64(seen)}.String()
}

func allOwner(instance string) (o owner) {
	copy(o[:], instance)
	return o
}

func (a *allSource) start(ctx context.Context, q *Query, f *filter) error {
	a.j.all.mu.Lock()
	next := a.j.all.next
	a.j.all.mu.Unlock()
	if !a.follow {
		a.until = next - 1
	}
	if q.After != "" {
		c, err := parseCursor(q.After)
		if err != nil {
			return err
		}
		if c.form != formAll || c.owner != a.j.all.owner {
			return errCursor("is not of this server's journals")
		}
		if c.a > next || c.a == next && c.b > 0 || c.b > batchEvents {
			return errCursor("is ahead of the journals")
		}
		a.batch, a.skip = c.a, int(c.b)
		return nil
	}
	for _, s := range a.j.streams() { // what is gone before the beginning is no gap
		s.mu.Lock()
		a.told[s.num] = s.trimmed
		s.mu.Unlock()
	}
	switch {
	case q.Tail != nil:
		return a.startAtTail(ctx, int(*q.Tail), f, next)
	case !q.Since.IsZero():
		return a.startAtTime(ctx, nanoseconds(q.Since), next)
	}
	return nil
}

// startAtTail goes back over n events that match.
func (a *allSource) startAtTail(ctx context.Context, n int, f *filter, next uint64) error {
	a.batch = next
	if n == 0 || next == 1 {
		return nil
	}
	q := store.BatchQuery{UpTo: next - 1, Kinds: f.kinds, Newest: true}
	return a.j.store.Batches(ctx, q, func(b store.BatchRow) (bool, error) {
		evs, err := decode("", b.Data, b.FirstSeq, b.LastSeq)
		if err != nil {
			return false, errDamaged(err)
		}
		for i := len(evs) - 1; i >= 0; i-- {
			if !f.match(&evs[i]) {
				continue
			}
			a.batch, a.skip = b.Num, i
			if n--; n == 0 {
				return false, nil
			}
		}
		return true, nil
	})
}

func (a *allSource) startAtTime(ctx context.Context, at int64, next uint64) error {
	a.batch = next
	return a.j.store.Batches(ctx, store.BatchQuery{SinceTime: at, Limit: 1}, func(b store.BatchRow) (bool, error) {
		evs, err := decode("", b.Data, b.FirstSeq, b.LastSeq)
		if err != nil {
			return false, errDamaged(err)
		}
		for i := range evs {
			if nanoseconds(evs[i].Time) >= at {
				a.batch, a.skip = b.Num, i
				break
			}
		}
		return false, nil
	})
}

func (a *allSource) page(ctx context.Context, f *filter) (page, error) {
	if p := a.gaps(); len(p.evs) > 0 {
		return p, nil
	}
	t := &a.j.all
	t.mu.Lock()
	next, chunks := t.next, a.inTail()
	if a.batch >= min(next, a.until+1) {
		p := page{end: true}
		if a.follow {
			p.wake = t.waiter()
		}
		t.mu.Unlock()
		return p, nil
	}
	t.mu.Unlock()
	if chunks == nil {
		return a.fromDisk(ctx, f, next)
	}
	var p page
	for i := range chunks {
		if chunks[i].num > a.until || len(p.evs) >= pageEvents {
			break
		}
		a.take(&p, f, chunks[i].num, chunks[i].journal, chunks[i].evs)
	}
	return p, nil
}

// inTail returns what memory has from the position on. The caller holds the lock of the tail.
func (a *allSource) inTail() []chunk {
	chunks := a.j.all.tail.chunks
	if len(chunks) == 0 || a.batch < chunks[0].num || a.batch > chunks[len(chunks)-1].num {
		return nil
	}
	i := sort.Search(len(chunks), func(i int) bool { return chunks[i].num > a.batch }) - 1
	return a.j.all.tail.from(i)
}

// gaps tells of what retention removed in front of the position.
func (a *allSource) gaps() page {
	t := &a.j.all
	t.mu.Lock()
	trimmed := t.trimmed
	t.mu.Unlock()
	var p page
	if trimmed < a.batch || trimmed <= a.checked {
		return p
	}
	for _, s := range a.j.streams() {
		s.mu.Lock()
		seq, batch := s.trimmed, s.trimmedBatch
		s.mu.Unlock()
		known, told := a.seen[s.num], a.told[s.num]
		if batch < a.batch || seq <= known || seq <= told {
			continue
		}
		gap := &Gap{ToSeq: seq, Source: SourceJournal}
		if from := max(known, told); from > 0 {
			gap.FromSeq, gap.Dropped = from+1, seq-from
		}
		a.told[s.num] = seq
		p.evs = append(p.evs, Event{Seq: seq, Time: a.j.opts.Clock.Now(), Sandbox: s.sandbox, Cursor: a.cursor(), Body: gap})
	}
	a.checked = trimmed
	return p
}

// take moves over a batch and keeps the events that match.
func (a *allSource) take(p *page, f *filter, num uint64, journal int64, evs []Event) {
	skip := 0
	if num == a.batch {
		skip = min(a.skip, len(evs))
	}
	for i := skip; i < len(evs); i++ {
		ev := evs[i]
		if f.match(&ev) {
			if !a.bare {
				ev.Cursor = a.cursorAt(num, i+1)
			}
			p.evs = append(p.evs, ev)
		}
	}
	if len(evs) > 0 {
		a.seen[journal] = evs[len(evs)-1].Seq
	}
	a.batch, a.skip = num+1, 0
}

func (a *allSource) fromDisk(ctx context.Context, f *filter, next uint64) (page, error) {
	var p page
	batch, skip, undo := a.batch, a.skip, map[int64]uint64{}
	rows, bytes, full := 0, 0, false
	q := store.BatchQuery{AfterBatch: a.batch, UpTo: min(next-1, a.until), Kinds: f.kinds, Limit: diskRows}
	err := a.j.store.Batches(ctx, q, func(b store.BatchRow) (bool, error) {
		rows++
		bytes += len(b.Data)
		evs, err := decode(a.j.sandboxOf(b.Journal), b.Data, b.FirstSeq, b.LastSeq)
		if err != nil {
			return false, errDamaged(err)
		}
		if _, noted := undo[b.Journal]; !noted {
			undo[b.Journal] = a.seen[b.Journal]
		}
		a.take(&p, f, b.Num, b.Journal, evs)
		full = bytes >= pageBytes || len(p.evs) >= pageEvents
		return !full, nil
	})
	if err != nil {
		return page{}, readFailure(ctx, err)
	}
	a.j.all.mu.Lock()
	trimmed := a.j.all.trimmed
	a.j.all.mu.Unlock()
	if trimmed >= batch && trimmed > a.checked { // retention may have taken rows from under the look
		a.batch, a.skip = batch, skip
		maps.Copy(a.seen, undo)
		return a.gaps(), nil
	}
	if !full && rows < diskRows { // no further batch up to there matches
		a.batch, a.skip = max(a.batch, min(next, a.until+1)), 0
	}
	return p, nil
}

// finished is for one sandbox only; a follower of all waits for the event.
func (a *allSource) finished(context.Context, string) (bool, error) { return false, nil }

func (j *Journal) streams() []*stream {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]*stream, 0, len(j.byNum))
	for _, s := range j.byNum {
		all = append(all, s)
	}
	return all
}

func (j *Journal) sandboxOf(num int64) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.byNum[num]; s != nil {
		return s.sandbox
	}
	return ""
}
