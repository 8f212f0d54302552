package sandboxes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// ChangeType is what happened to a sandbox: a name of the API's SandboxChangeType without prefix.
type ChangeType string

// The changes.
const (
	Added   ChangeType = "ADDED"
	Changed ChangeType = "CHANGED"
	Removed ChangeType = "REMOVED"
)

// Change is one change of one sandbox.
type Change struct {
	Type    ChangeType
	Sandbox Sandbox // as it is now, or was last
}

const (
	changesAtOnce   = 256 // sandboxes that one answer tells of
	observeInterval = 15 * time.Second
)

// observer is one that watches. It is told which sandboxes to look at, not what they were,
// so that a slow one costs an entry per sandbox and no more. Guarded by Manager.mu.
type observer struct {
	filter *Filter
	dirty  map[string]uint64 // ids by when they changed first
	notes  uint64
	final  map[string]Sandbox // what was removed, as it was last; for those in told
	told   map[string]told
	wake   chan struct{}
}

type told struct {
	seq  uint64
	last Sandbox
}

// Observe calls fn with all sandboxes that the filter selects, then with each change, until
// ctx ends, whose cause it returns, or fn fails. current tells once that what was there has
// been told. Without changes fn is called now and then, to find out whether the reader is there.
func (m *Manager) Observe(ctx context.Context, filter *Filter, fn func(changes []Change, current bool) error) error {
	if _, err := m.waitReady(ctx); err != nil {
		return err
	}
	o := &observer{filter: filter, dirty: map[string]uint64{}, final: map[string]Sandbox{}, told: map[string]told{}, wake: make(chan struct{}, 1)}
	m.mu.Lock()
	for _, e := range m.selectLocked(nil) {
		o.note(e.rec.Sandbox.ID)
	}
	m.observers[o] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.observers, o)
	}()
	for first := true; ; {
		changes, more := m.changes(o)
		for len(changes) > 0 || first || more {
			current := first && !more
			if current || len(changes) > 0 {
				if err := fn(changes, current); err != nil {
					return err
				}
			}
			first = first && more
			if !more {
				break
			}
			changes, more = m.changes(o)
		}
		beat := make(chan struct{})
		stop := m.opts.Clock.AfterFunc(observeInterval, func() { close(beat) })
		select {
		case <-ctx.Done():
			stop()
			return fmt.Errorf("watch sandboxes: %w", context.Cause(ctx))
		case <-o.wake:
			stop()
		case <-beat:
			if err := fn(nil, false); err != nil {
				return err
			}
		}
	}
}

// note adds a sandbox to those to look at; m.mu is held.
func (o *observer) note(id string) {
	if _, noted := o.dirty[id]; noted {
		return
	}
	o.notes++
	o.dirty[id] = o.notes
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// changedLocked tells the observers of a sandbox that is another than before, or gone.
func (m *Manager) changedLocked(e *entry) {
	if len(m.observers) == 0 || e.hidden {
		return
	}
	id := e.rec.Sandbox.ID
	gone := m.entries[id] != e
	for o := range m.observers {
		t, was := o.told[id]
		if gone && was && t.seq == e.rec.Seq {
			o.final[id] = m.shown(e)
		}
		if gone && !was { // came and went without a word
			delete(o.dirty, id)
			continue
		}
		o.note(id)
	}
}

// changes takes what an observer has to be told next; more tells that there is more.
func (m *Manager) changes(o *observer) (all []Change, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(o.dirty), func(a, b string) int { return cmp.Compare(o.dirty[a], o.dirty[b]) })
	for _, id := range ids[:min(len(ids), changesAtOnce)] {
		delete(o.dirty, id)
		all = append(all, m.changesOf(o, id)...)
	}
	return all, len(o.dirty) > 0
}

func (m *Manager) changesOf(o *observer, id string) (all []Change) {
	e := m.entries[id]
	if e != nil && e.hidden {
		e = nil
	}
	t, was := o.told[id]
	if was && (e == nil || e.rec.Seq != t.seq) {
		last := t.last
		if final, known := o.final[id]; known {
			last = final
		}
		delete(o.told, id)
		delete(o.final, id)
		all, was = append(all, Change{Removed, last}), false
	}
	if e == nil {
		return all
	}
	s := m.shown(e)
	switch selected := o.filter.Match(&s); {
	case selected && !was:
		o.told[id] = told{e.rec.Seq, s}
		all = append(all, Change{Added, s})
	case selected && !reflect.DeepEqual(t.last, s):
		o.told[id] = told{e.rec.Seq, s}
		all = append(all, Change{Changed, s})
	case !selected && was:
		delete(o.told, id)
		all = append(all, Change{Removed, s})
	}
	return all
}
