package events

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
)

// item is what one append brought: events without numbers, their encoding, and where they
// leave the runtime's stream.
type item struct {
	evs   []Event
	data  []byte
	ends  []int         // where the encoding of each event ends
	moved *position     // how far a stream of the runtime was taken with it; nil = not at all
	end   *store.Ending // the outcome that its terminal event tells of, if any
	done  func()
}

// position is how far a stream of a runtime was taken.
type position struct {
	stream string // its name
	sid    string
	seq    uint64
}

func (it *item) size() int {
	size := len(it.data) + 64
	if it.end != nil {
		size += it.end.Size()
	}
	return size
}

// stream is the journal of one sandbox.
type stream struct {
	num     int64
	sandbox string
	owner   owner

	queueBytes atomic.Int64

	taking sync.Mutex          // held while records are taken; before mu
	taken  map[string]position // how far each stream of the runtime was taken, by name

	mu sync.Mutex
	// Appended and not committed yet.
	queue    []*item
	queued   bool   // the committer knows of the queue
	appended uint64 // items ever appended
	// Committed.
	stored       bool // the row of the journal is in the store
	committed    uint64
	safe         map[string]position // as taken, but committed
	last         uint64              // seq of the newest event
	lastBatch    uint64              // number of the newest batch
	trimmed      uint64              // retention removed everything up to this seq
	trimmedBatch uint64              // and up to this batch
	bytes        int64               // of what is kept; without what is unmeasured
	unmeasured   uint64              // up to which seq what is kept was not added up yet
	newest       time.Time           // when it was committed last
	deleted      time.Time
	dropped      time.Time
	followers    int
	tail         tail
	wake         chan struct{} // closed at the next commit; nil while nobody waits
}

func newStream(row store.JournalRow) *stream {
	s := &stream{
		num: row.Num, sandbox: row.Sandbox, stored: true, taken: map[string]position{}, safe: map[string]position{},
		last: max(row.LastSeq, row.TrimmedSeq), lastBatch: row.LastBatch, trimmed: row.TrimmedSeq, trimmedBatch: row.TrimmedBatch,
		unmeasured: row.LastSeq, newest: row.LastCreated, deleted: row.Deleted, dropped: row.Dropped,
	}
	copy(s.owner[:], row.ID)
	s.restore(position{sid: row.Sid, seq: row.Cursor})
	return s
}

// restore sets how far a stream was taken; nobody else has s yet.
func (s *stream) restore(p position) { s.taken[p.stream], s.safe[p.stream] = p, p }

// waiter returns a channel that is closed at the next commit. The caller holds mu.
func (s *stream) waiter() <-chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// wakeAll wakes who waits. The caller holds mu.
func (s *stream) wakeAll() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// chunk is a committed batch in memory. Its events are shared and never change.
type chunk struct {
	num     uint64 // of the batch
	journal int64
	bytes   int
	evs     []Event
}

// tailBytes bounds the recent batches kept for the followers of one journal, or of all.
const tailBytes = 1 << 20

// tail is the newest batches, without holes, so that a follower need not ask the disk.
type tail struct {
	chunks []chunk
	bytes  int
}

func (t *tail) add(c chunk) {
	t.chunks = append(t.chunks, c)
	t.bytes += c.bytes
	drop := 0
	for t.bytes > tailBytes && drop < len(t.chunks)-1 {
		t.bytes -= t.chunks[drop].bytes
		drop++
	}
	if drop > 0 {
		clear(t.chunks[:drop]) // the array may live on
		t.chunks = t.chunks[drop:]
	}
}

func (t *tail) reset() { *t = tail{} }

// from returns the chunks from index i on that make up one page.
func (t *tail) from(i int) []chunk {
	bytes, n := 0, i
	for n < len(t.chunks) && n-i < pageChunks && (n == i || bytes+t.chunks[n].bytes <= pageBytes) {
		bytes += t.chunks[n].bytes
		n++
	}
	return append([]chunk(nil), t.chunks[i:n]...)
}
