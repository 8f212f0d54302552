package events

import (
	"context"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/failpoint"
)

const (
	sweepInterval = time.Minute
	trimTo        = 0.9 // part of MaxBytes that a trim leaves, so that trims are few
)

// retain trims journals that grew over their bytes as they do, and once a minute removes
// what is too old and the journals of deleted sandboxes.
func (j *Journal) retain(ctx context.Context) error {
	sweep := make(chan struct{}, 1)
	sweep <- struct{}{} // the first one at once
	var cancel func() bool
	defer func() {
		if cancel != nil {
			cancel()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-j.stop:
			return nil
		case s := <-j.full:
			j.trimBytes(ctx, s)
		case <-sweep:
			j.sweep(ctx)
			cancel = j.opts.Clock.AfterFunc(sweepInterval, func() {
				select {
				case sweep <- struct{}{}:
				default:
				}
			})
		}
	}
}

func (j *Journal) sweep(ctx context.Context) {
	now := j.opts.Clock.Now()
	known, err := j.knownSandboxes(ctx)
	if err != nil {
		j.warn("retention cannot list sandboxes", "", err)
	}
	for _, s := range j.streams() {
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		deleted, dropped, newest := s.deleted, s.dropped, s.newest
		orphan := known != nil && !known[s.sandbox] && deleted.IsZero() && s.stored && now.Sub(newest) > j.opts.KeepAfterDelete
		s.mu.Unlock()
		switch {
		case !dropped.IsZero():
			if now.Sub(dropped) > j.opts.MaxAge {
				j.forget(ctx, s)
			}
		case !deleted.IsZero() && now.Sub(deleted) > j.opts.KeepAfterDelete:
			j.drop(ctx, s, now)
		case orphan: // its sandbox went away while no journal was told
			s.mu.Lock()
			s.deleted = now
			s.mu.Unlock()
			if err := j.store.MarkJournalDeleted(ctx, s.num, now); err != nil {
				j.warn("journal of a lost sandbox could not be marked", s.sandbox, err)
			}
		default:
			j.measure(ctx, s)
			j.trimAge(ctx, s, now.Add(-j.opts.MaxAge))
			j.trimBytes(ctx, s)
		}
	}
	if known != nil {
		j.text.removeOld(now, func(sandbox string) bool { return known[sandbox] || j.lookup(sandbox) != nil })
	}
	if err := j.store.ReleaseSpace(ctx); err != nil && ctx.Err() == nil {
		j.warn("space could not be given back", "", err)
	}
}

func (j *Journal) warn(message, sandbox string, err error) {
	j.opts.Logger.Warn(message, "sandbox", sandbox, "err", err)
}

func (j *Journal) knownSandboxes(ctx context.Context) (map[string]bool, error) {
	rows, err := j.store.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(rows))
	for _, r := range rows {
		known[r.ID] = true
	}
	return known, nil
}

// measure adds up what an earlier process left, once.
func (j *Journal) measure(ctx context.Context, s *stream) {
	s.mu.Lock()
	seq := s.unmeasured
	s.mu.Unlock()
	if seq == 0 {
		return
	}
	bytes, err := j.store.JournalBytes(ctx, s.num, seq)
	if err != nil {
		if ctx.Err() == nil {
			j.warn("journal could not be measured", s.sandbox, err)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes, s.unmeasured = s.bytes+bytes, 0
}

// trimBytes removes the oldest batches until the journal is small enough; the newest stays.
func (j *Journal) trimBytes(ctx context.Context, s *stream) {
	j.measure(ctx, s)
	s.mu.Lock()
	excess, last := s.bytes-int64(float64(j.opts.MaxBytes)*trimTo), s.last
	over := s.bytes > j.opts.MaxBytes
	s.mu.Unlock()
	if over {
		j.trim(ctx, s, func(b store.BatchRow, freed int64) bool { return freed < excess && b.LastSeq < last })
	}
}

func (j *Journal) trimAge(ctx context.Context, s *stream, before time.Time) {
	j.trim(ctx, s, func(b store.BatchRow, _ int64) bool { return b.Created < before.UnixNano() })
}

// trim removes batches from the oldest on for as long as goes says so. Readers are told
// before the batches go: one that misses some must find why.
func (j *Journal) trim(ctx context.Context, s *stream, goes func(b store.BatchRow, freed int64) bool) {
	var seq, batch uint64
	var freed int64
	s.mu.Lock()
	from := s.trimmed
	s.mu.Unlock()
	err := j.store.Batches(ctx, store.BatchQuery{Journal: s.num, AfterSeq: from, HeadOnly: true}, func(b store.BatchRow) (bool, error) {
		if !goes(b, freed) {
			return false, nil
		}
		seq, batch, freed = b.LastSeq, b.Num, freed+b.Size+store.BatchOverhead
		return true, nil
	})
	if err == nil && seq > 0 {
		j.noteTrimmed(s, seq, batch)
		if err = failpoint.Inject("events/onRetention"); err == nil {
			err = j.store.TrimJournal(ctx, s.num, batch, seq)
		}
		if err == nil {
			s.mu.Lock()
			s.bytes -= freed
			s.mu.Unlock()
		}
	}
	if err != nil && ctx.Err() == nil {
		j.warn("journal could not be trimmed", s.sandbox, err)
	}
}

func (j *Journal) noteTrimmed(s *stream, seq, batch uint64) {
	s.mu.Lock()
	s.trimmed, s.trimmedBatch = max(s.trimmed, seq), max(s.trimmedBatch, batch)
	s.mu.Unlock()
	j.all.mu.Lock()
	j.all.trimmed = max(j.all.trimmed, batch)
	j.all.mu.Unlock()
}

// drop removes all events of a journal whose sandbox is gone for long.
func (j *Journal) drop(ctx context.Context, s *stream, now time.Time) {
	s.mu.Lock()
	s.dropped = now
	last, batch := s.last, s.lastBatch
	s.mu.Unlock()
	j.noteTrimmed(s, last, batch)
	if err := j.store.DropJournal(ctx, s.num, now); err != nil && ctx.Err() == nil {
		j.warn("journal could not be dropped", s.sandbox, err)
	}
}

// forget removes the last trace of a journal.
func (j *Journal) forget(ctx context.Context, s *stream) {
	if err := j.store.ForgetJournal(ctx, s.num); err != nil {
		j.warn("journal could not be forgotten", s.sandbox, err)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.byNum, s.num)
	delete(j.byOwner, s.owner)
	var rest []*stream
	for _, other := range j.byName[s.sandbox] {
		if other != s {
			rest = append(rest, other)
		}
	}
	if j.byName[s.sandbox] = rest; len(rest) == 0 {
		delete(j.byName, s.sandbox)
	}
}
