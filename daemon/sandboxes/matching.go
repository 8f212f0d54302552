package sandboxes

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/agentixd/agentixd/internal/errs"
)

// parallelDeletes is how many sandboxes one DeleteMatching deletes at once.
const parallelDeletes = 16

// Matched is what DeleteMatching selected.
type Matched struct {
	IDs      []string          // in order of creation
	Failures map[string]string // by id, one sentence each
}

// DeleteMatching deletes every sandbox that the filter selects, nil = all; a dry run tells
// which that would be. It goes on when the caller leaves.
func (m *Manager) DeleteMatching(ctx context.Context, filter *Filter, dryRun bool) (Matched, error) {
	if _, err := m.waitReady(ctx); err != nil {
		return Matched{}, err
	}
	m.mu.Lock()
	selected := m.selectLocked(filter)
	matched := Matched{Failures: map[string]string{}}
	for _, e := range selected {
		matched.IDs = append(matched.IDs, e.rec.Sandbox.ID)
	}
	stopped := m.stopped
	done := make(chan struct{})
	if !dryRun && !stopped {
		m.wg.Go(func() { // ends with the last deletion
			defer close(done)
			m.deleteAll(selected, filter, &matched)
		})
	}
	m.mu.Unlock()
	switch {
	case dryRun:
		return matched, nil
	case stopped:
		return Matched{}, stopping()
	}
	select {
	case <-done:
		return matched, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return Matched{}, errs.New(errs.DeadlineExceeded, errs.Deadline, "the caller's deadline passed; %d sandboxes are still being deleted", len(selected))
		}
		return Matched{}, errs.New(errs.Cancelled, errs.CallerLeft, "the caller left; %d sandboxes are still being deleted", len(selected))
	}
}

func (m *Manager) selectLocked(filter *Filter) []*entry {
	var selected []*entry
	for _, e := range m.entries {
		if s := m.shown(e); !e.hidden && filter.Match(&s) {
			selected = append(selected, e)
		}
	}
	slices.SortFunc(selected, byCreation)
	return selected
}

// deleteAll deletes entries; one that the filter does not select any more stays.
func (m *Manager) deleteAll(selected []*entry, filter *Filter, matched *Matched) {
	var group errgroup.Group
	group.SetLimit(parallelDeletes)
	for _, e := range selected {
		group.Go(func() error {
			m.mu.Lock()
			s := e.rec.Sandbox.clone()
			still := m.entries[s.ID] == e && filter.Match(&s) || e.delete != nil
			if !still {
				m.mu.Unlock()
				return nil
			}
			d := m.startDeleteLocked(e, Deleted)
			m.mu.Unlock()
			<-d.done
			if d.err != nil {
				m.log.Error("sandbox not deleted", "sandbox", s.ID, "err", d.err)
				m.mu.Lock()
				matched.Failures[s.ID] = messageOf(d.err)
				m.mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // they return none
}
