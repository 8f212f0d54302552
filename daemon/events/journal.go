package events

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Options of a Journal; the zero value has the defaults.
type Options struct {
	KeepAfterDelete time.Duration // how long the events of a deleted sandbox stay; default 1 h
	MaxBytes        int64         // kept for one sandbox; default 256 MiB
	MaxAge          time.Duration // how long an event stays; default 24 h
	Heartbeat       time.Duration // how often a follower hears of nothing new; default 15 s
	LogDir          string        // where the text logs are written; empty = nowhere
	LogMaxBytes     int64         // at which a text log becomes a backup; default 64 MiB
	LogBackups      int           // backups of one text log; default 1
	LogKeep         time.Duration // how long a text log stays after its last line, once the journal is gone; default 7 days
	Clock           clock.Clock
	Logger          *slog.Logger
}

func (o *Options) complete() {
	setDefault(&o.KeepAfterDelete, time.Hour)
	setDefault(&o.MaxBytes, 256<<20)
	setDefault(&o.MaxAge, 24*time.Hour)
	setDefault(&o.Heartbeat, 15*time.Second)
	setDefault(&o.LogMaxBytes, wire.MaxTextLogBytes)
	setDefault(&o.LogBackups, 1)
	setDefault(&o.LogKeep, 7*24*time.Hour)
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](value *T, preset T) {
	var zero T
	if *value == zero {
		*value = preset
	}
}

// Journal keeps the events of all sandboxes. Its methods are safe for concurrent use.
//
// Of the two locks, that of a stream is taken before that of the Journal.
type Journal struct {
	store  *store.Store
	opts   Options
	loaded error // why the journals could not be read; every method answers it

	mu      sync.Mutex
	byName  map[string][]*stream // the newest last
	byOwner map[owner]*stream
	byNum   map[int64]*stream
	nextNum int64
	closed  bool
	ready   []*stream          // have a queue
	bytes   int                // in all queues
	failing error              // why the last commit failed
	held    store.JournalWrite // only by the mutant DroppedTail

	full chan *stream  // over their bytes; Run trims them
	work chan struct{} // holds a token while ready is not empty
	room *sync.Cond    // on mu: bytes shrank, or closed

	all  allTail
	text *textLog

	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed once the committer has ended
	closing sync.Once
}

// New opens the journals of st. It reads them at once; if that fails, Run and every method
// that can answer an error answer it.
func New(st *store.Store, opts Options) *Journal {
	opts.complete()
	j := &Journal{
		store: st, opts: opts,
		byName: map[string][]*stream{}, byOwner: map[owner]*stream{}, byNum: map[int64]*stream{},
		full: make(chan *stream, 64), work: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	j.room = sync.NewCond(&j.mu)
	j.loaded = j.load(context.Background())
	j.all.owner = allOwner(st.Lineage())
	go j.commitLoop() // ends after Close, once the queues are empty
	j.text = j.startTextLog()
	if st.Lost() {
		j.tellLoss()
	}
	return j
}

// tellLoss puts a gap into each journal: its end may be lost, nobody knows how much.
func (j *Journal) tellLoss() {
	j.opts.Logger.Error("the state directory was damaged; the ends of journals may be lost, and cursors of before are void")
	for _, s := range j.streams() {
		if s.dropped.IsZero() {
			j.Append(s.sandbox, Event{Body: &Gap{Source: SourceJournal}})
		}
	}
}

func (j *Journal) load(ctx context.Context) error {
	rows, err := j.store.Journals(ctx)
	if err != nil {
		return fmt.Errorf("open journals: %w", err)
	}
	for _, row := range rows {
		j.addStream(newStream(row))
		j.all.trimmed = max(j.all.trimmed, row.TrimmedBatch)
	}
	cursors, err := j.store.StreamCursors(ctx)
	if err != nil {
		return fmt.Errorf("open journals: %w", err)
	}
	for _, c := range cursors {
		if s := j.byNum[c.Journal]; s != nil {
			s.restore(position{stream: c.Stream, sid: c.Sid, seq: c.Seq})
		}
	}
	if j.all.next, err = j.store.NextBatch(ctx); err != nil {
		return fmt.Errorf("open journals: %w", err)
	}
	return nil
}

// Close commits what was appended, ends all readers and waits for its goroutines.
func (j *Journal) Close() error {
	j.closing.Do(func() {
		j.mu.Lock()
		j.closed = true
		j.room.Broadcast()
		j.mu.Unlock()
		close(j.stop)
	})
	<-j.stopped
	j.text.wait()
	return nil
}

// Run removes what retention no longer keeps, until ctx ends.
func (j *Journal) Run(ctx context.Context) error {
	if j.loaded != nil {
		return j.loaded
	}
	return j.retain(ctx)
}

// addStream needs mu, or a Journal that nobody else has yet.
func (j *Journal) addStream(s *stream) {
	j.byName[s.sandbox] = append(j.byName[s.sandbox], s)
	j.byOwner[s.owner] = s
	j.byNum[s.num] = s
	j.nextNum = max(j.nextNum, s.num+1)
}

// lookup returns the newest journal of a sandbox, or nil.
func (j *Journal) lookup(sandbox string) *stream {
	j.mu.Lock()
	defer j.mu.Unlock()
	if all := j.byName[sandbox]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// streamFor returns the journal to append evs to. A sandbox that comes to life under the
// name of a deleted one begins a new journal; what still comes from the old one goes to
// the old journal.
func (j *Journal) streamFor(sandbox string, evs []Event) *stream {
	for {
		newest := j.lookup(sandbox)
		if newest != nil && !newest.endedBefore(evs) {
			return newest
		}
		if s := j.replace(sandbox, newest); s != nil {
			return s
		}
	}
}

// replace begins a new journal for a sandbox, unless another one was begun after newest.
func (j *Journal) replace(sandbox string, newest *stream) *stream {
	j.mu.Lock()
	defer j.mu.Unlock()
	if all := j.byName[sandbox]; len(all) > 0 && all[len(all)-1] != newest {
		return nil
	}
	s := &stream{num: max(j.nextNum, 1), sandbox: sandbox, taken: map[string]position{}, safe: map[string]position{}}
	if _, err := rand.Read(s.owner[:]); err != nil {
		panic(err) // crypto/rand does not fail
	}
	j.addStream(s)
	return s
}

// endedBefore reports whether evs belong to a later sandbox of the same name.
func (s *stream) endedBefore(evs []Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dropped.IsZero() || !s.deleted.IsZero() && beginsLife(evs)
}

func beginsLife(evs []Event) bool {
	for i := range evs {
		if b, ok := evs[i].Body.(*Lifecycle); ok {
			return b.State == stateCreating || b.State == stateReady
		}
	}
	return false
}

// Append adds events of the daemon's own to a sandbox's journal. It does not wait: they are
// committed in order, and lost only if the process dies first.
func (j *Journal) Append(sandbox string, evs ...Event) {
	if j.loaded == nil && len(evs) > 0 {
		_ = j.append(sandbox, evs, nil, nil) // it is logged
	}
}

// AppendEnd adds the terminal event of a call and writes its outcome in the same transaction:
// one is never there without the other. done is called once both are committed, and must not
// block. An error means that neither will be.
func (j *Journal) AppendEnd(sandbox string, ev Event, end *store.Ending, done func()) error {
	if j.loaded != nil {
		return j.loaded
	}
	return j.append(sandbox, []Event{ev}, end, done)
}

func (j *Journal) append(sandbox string, evs []Event, end *store.Ending, done func()) error {
	now := j.opts.Clock.Now()
	evs = append([]Event(nil), evs...)
	for i := range evs {
		evs[i].Sandbox = sandbox
		if evs[i].Time.IsZero() {
			evs[i].Time = now
		}
		evs[i].Time = clampTime(evs[i].Time.UTC().Round(0)) // as it will be read back
	}
	s := j.streamFor(sandbox, evs)
	it, err := newItem(evs)
	if err != nil {
		j.opts.Logger.Error("event could not be encoded", "sandbox", sandbox, "err", err)
		return err
	}
	it.end, it.done = end, done
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.enqueue(s, it) {
		return errStopping
	}
	return nil
}

func newItem(evs []Event) (*item, error) {
	if len(evs) == 0 {
		return &item{}, nil
	}
	data, ends, err := encode(evs)
	return &item{evs: evs, data: data, ends: ends}, err
}

// enqueue hands an item to the committer; false = the journal is closed. The caller holds s.mu.
func (j *Journal) enqueue(s *stream, it *item) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return false
	}
	s.queue = append(s.queue, it)
	s.queueBytes.Add(int64(it.size()))
	s.appended++
	j.bytes += it.size()
	if !s.queued {
		s.queued = true
		j.ready = append(j.ready, s)
	}
	select {
	case j.work <- struct{}{}:
	default:
	}
	return true
}

// StreamCursor returns how far a stream of a runtime is safe: its id, and the last number
// that was committed. Both are zero for a sandbox without records. Our own runtimes have one
// stream, without a name.
func (j *Journal) StreamCursor(ctx context.Context, sandbox, name string) (sid string, seq uint64, err error) {
	if j.loaded != nil {
		return "", 0, j.loaded
	}
	if err := ctx.Err(); err != nil {
		return "", 0, context.Cause(ctx)
	}
	s := j.lookup(sandbox)
	if s == nil {
		return "", 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.safe[name]
	return at.sid, at.seq, nil
}

// Flush waits until all that was appended to a sandbox so far is committed and readers see
// it. It does not wait for a disk that refuses: it returns why, and the events stay queued.
func (j *Journal) Flush(ctx context.Context, sandbox string) error {
	if j.loaded != nil {
		return j.loaded
	}
	s := j.lookup(sandbox)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	target := s.appended
	for s.committed < target {
		wake := s.waiter()
		s.mu.Unlock()
		if err := j.failure(); err != nil {
			return fmt.Errorf("flush journal of sandbox %s: %w", sandbox, err)
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.stopped:
			s.mu.Lock()
			done := s.committed >= target
			s.mu.Unlock()
			if done {
				return nil
			}
			return errStopping
		}
		s.mu.Lock()
	}
	s.mu.Unlock()
	return nil
}

func (j *Journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failing
}

// DeleteSandbox notes that a sandbox was deleted. Its events stay for KeepAfterDelete;
// followers end once they have read them all.
func (j *Journal) DeleteSandbox(ctx context.Context, sandbox string) error {
	s := j.lookup(sandbox)
	if s == nil {
		return nil
	}
	now := j.opts.Clock.Now()
	s.mu.Lock()
	if s.deleted.IsZero() {
		s.deleted = now
	}
	s.wakeAll()
	s.mu.Unlock()
	if err := j.Flush(ctx, sandbox); err != nil { // its row must be there to be marked
		return err
	}
	if err := j.store.MarkJournalDeleted(ctx, s.num, now); err != nil {
		return fmt.Errorf("delete journal of sandbox %s: %w", sandbox, err)
	}
	return nil
}

var errStopping = errs.New(errs.Unavailable, errs.Stopping, "the daemon is stopping")
