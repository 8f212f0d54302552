package events

import (
	"slices"
	"sync"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/internal/mutant"
)

const (
	batchBytes  = 256 << 10 // a batch on disk, unless one event is larger
	batchEvents = 1024
	turnBytes   = 1 << 20 // what one sandbox gets into one commit while others wait
	commitRetry = 200 * time.Millisecond
)

// allTail serves the readers of all sandboxes: batches of every journal in the order of
// their commits.
type allTail struct {
	mu        sync.Mutex
	owner     owner
	next      uint64 // number of the next batch
	trimmed   uint64 // retention removed some batch up to this one
	followers int
	tail      tail
	wake      chan struct{}
}

func (a *allTail) waiter() <-chan struct{} {
	if a.wake == nil {
		a.wake = make(chan struct{})
	}
	return a.wake
}

// turn is what one commit holds.
type turn struct {
	write store.JournalWrite
	parts []part
}

// part is what one sandbox has in a turn.
type part struct {
	stream *stream
	items  []*item
	rows   []store.BatchRow // its batches
	evs    [][]Event        // the events of each
	more   bool             // something was left for the next turn
}

// commitLoop is the only goroutine that numbers events. While a commit runs, the next turn
// gathers in the queues.
func (j *Journal) commitLoop() {
	defer close(j.stopped)
	next := j.all.next
	for {
		t := j.gather(&next)
		if t == nil {
			select {
			case <-j.work:
				continue
			case <-j.stop:
			}
			if t = j.gather(&next); t == nil {
				return
			}
		}
		if !j.commit(t) {
			return
		}
		j.publish(t, next)
	}
}

// gather numbers what waits; nil if nothing does.
func (j *Journal) gather(next *uint64) *turn {
	j.mu.Lock()
	ready := j.ready
	j.ready = nil
	j.mu.Unlock()
	if len(ready) == 0 {
		return nil
	}
	t := &turn{}
	now := j.opts.Clock.Now().UnixNano()
	for _, s := range ready {
		p := s.take()
		if !s.stored {
			t.write.New = append(t.write.New, store.JournalRow{Num: s.num, Sandbox: s.sandbox, ID: s.owner[:]})
		}
		p.number(now, next)
		t.write.Batches = append(t.write.Batches, p.rows...)
		for _, at := range p.moves() {
			t.write.Cursors = append(t.write.Cursors, store.StreamCursor{Journal: s.num, Stream: at.stream, Sid: at.sid, Seq: at.seq})
		}
		for _, it := range p.items {
			if it.end != nil {
				t.write.Ends = append(t.write.Ends, it.end)
			}
		}
		t.parts = append(t.parts, p)
	}
	return t
}

// take removes a turn's worth from the queue.
func (s *stream) take() part {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(s.queue) && (n == 0 || bytes+s.queue[n].size() <= turnBytes) {
		bytes += s.queue[n].size()
		n++
	}
	p := part{stream: s, items: s.queue[:n:n], more: n < len(s.queue)}
	s.queue = s.queue[n:]
	if !p.more {
		s.queue, s.queued = nil, false
	}
	return p
}

// moves is how far the streams of the runtime were taken, each at most once.
func (p *part) moves() []position {
	var moves []position
	for i := len(p.items) - 1; i >= 0; i-- {
		at := p.items[i].moved
		if at != nil && !slices.ContainsFunc(moves, func(m position) bool { return m.stream == at.stream }) {
			moves = append(moves, *at)
		}
	}
	return moves
}

// number gives the events of the part their seq and packs them into batches. Only the
// committer changes stream.last, so it may read it without the lock.
func (p *part) number(now int64, next *uint64) {
	seq := p.stream.last
	var row *store.BatchRow
	for _, it := range p.items {
		start := 0
		for i := range it.evs {
			ev, end := &it.evs[i], it.ends[i]
			if row == nil || len(row.Data)+end-start > batchBytes || row.LastSeq-row.FirstSeq+1 >= batchEvents {
				p.rows = append(p.rows, store.BatchRow{
					Num: *next, Journal: p.stream.num, FirstSeq: seq + 1, Created: now, Data: []byte{batchVersion},
				})
				p.evs = append(p.evs, nil)
				row = &p.rows[len(p.rows)-1]
				*next++
			}
			seq++
			ev.Seq = seq
			row.Add(ev.Seq, nanoseconds(ev.Time), ev.Body.Kind().bit())
			row.Data = append(row.Data, it.data[start:end]...)
			p.evs[len(p.evs)-1] = append(p.evs[len(p.evs)-1], *ev)
			start = end
		}
	}
}

// commit writes a turn, again and again while the disk refuses. It returns false if the
// journal was closed over that.
func (j *Journal) commit(t *turn) bool {
	if mutant.Is(mutant.DroppedTail) {
		t.write, j.held = j.held, t.write
	}
	for {
		err := failpoint.Inject("events/beforeAppend")
		if err == nil {
			result := make(chan error, 1)
			j.store.WriteJournal(t.write, func(err error) { result <- err })
			err = <-result
		}
		if err == nil {
			err = failpoint.Inject("events/afterAppend") // done, and yet an error: written again
		}
		j.noteFailure(err, t)
		if err == nil {
			return true
		}
		if errs.Is(err, errs.Unavailable) { // the store is closed
			return false
		}
		pause := time.NewTimer(commitRetry)
		select {
		case <-pause.C:
		case <-j.stop:
			pause.Stop()
			return false
		}
	}
}

// noteFailure logs the beginning and the end of a time in which commits fail, and lets
// those who wait in Flush look.
func (j *Journal) noteFailure(err error, t *turn) {
	j.mu.Lock()
	before := j.failing
	j.failing = err
	waiting := append([]*stream(nil), j.ready...)
	j.mu.Unlock()
	switch {
	case err != nil && before == nil:
		j.opts.Logger.Error("journal cannot be written; events wait in memory", "err", err)
	case err == nil && before != nil:
		j.opts.Logger.Info("journal is written again")
	}
	if err == nil {
		return
	}
	for i := range t.parts {
		waiting = append(waiting, t.parts[i].stream)
	}
	for _, s := range waiting {
		s.mu.Lock()
		s.wakeAll()
		s.mu.Unlock()
	}
}

// publish shows a committed turn to readers and tells whose records they were.
func (j *Journal) publish(t *turn, next uint64) {
	freed := 0
	j.publishAll(t, next) // first: a flush, which the parts let go, promises it to both kinds of readers
	for i := range t.parts {
		freed += j.publishPart(&t.parts[i])
	}
	for i := range t.parts {
		j.trimIfFull(t.parts[i].stream)
	}
	j.mu.Lock()
	j.bytes -= freed
	for i := range t.parts {
		if t.parts[i].more {
			j.ready = append(j.ready, t.parts[i].stream)
		}
	}
	j.room.Broadcast()
	j.mu.Unlock()
	for i := range t.parts {
		for _, it := range t.parts[i].items {
			if it.done != nil {
				it.done()
			}
		}
	}
}

func (j *Journal) publishPart(p *part) (freed int) {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = true
	s.committed += uint64(len(p.items))
	for _, it := range p.items {
		freed += it.size()
		if it.moved != nil {
			s.safe[it.moved.stream] = *it.moved
		}
	}
	s.queueBytes.Add(-int64(freed))
	for i := range p.rows {
		s.last, s.lastBatch = p.rows[i].LastSeq, p.rows[i].Num
		s.bytes += int64(len(p.rows[i].Data)) + store.BatchOverhead
		s.newest = time.Unix(0, p.rows[i].Created)
		if s.followers > 0 {
			s.tail.add(chunk{num: p.rows[i].Num, journal: s.num, bytes: len(p.rows[i].Data), evs: p.evs[i]})
		}
	}
	s.wakeAll()
	return freed
}

// trimIfFull calls retention; if that is busy, the sweep will see to it.
func (j *Journal) trimIfFull(s *stream) {
	s.mu.Lock()
	full := s.bytes > j.opts.MaxBytes
	s.mu.Unlock()
	if full {
		select {
		case j.full <- s:
		default:
		}
	}
}

func (j *Journal) publishAll(t *turn, next uint64) {
	a := &j.all
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = next
	if a.followers > 0 {
		for i := range t.parts {
			p := &t.parts[i]
			for k := range p.rows {
				a.tail.add(chunk{num: p.rows[k].Num, journal: p.stream.num, bytes: len(p.rows[k].Data), evs: p.evs[k]})
			}
		}
	}
	if a.wake != nil {
		close(a.wake)
		a.wake = nil
	}
}
