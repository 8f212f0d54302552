// Package calltable is what a runtime knows about its calls: which run, which outcomes are
// kept until they are acked, and which ids were ever used, so that no call runs twice. It is
// plain data: it does no I/O, starts no goroutine and does not lock.
package calltable

import (
	"container/list"
	"hash/maphash"
	"time"
)

// Owner says who a call belongs to: a number given to one daemon session, or Neighbour for
// all hosts that do not own their results, or Nobody for a caller that left.
type Owner int64

// Owners that are no daemon session.
const (
	Nobody    Owner = 0
	Neighbour Owner = -1
)

// Outcome is a terminal event with its encoded payload.
type Outcome struct {
	Event   string
	Payload []byte
}

// Verdict is what became of a request to start a call.
type Verdict int

// The verdicts. Only New means that the call is to be run.
const (
	New      Verdict = iota
	Running          // the id runs
	Retained         // its outcome is kept; Lookup returns it
	Finished         // its outcome was acked and forgotten
	Fenced           // a resume asked for it before it came
)

// State is where an id stands, for Lookup.
type State int

// The states of Lookup.
const (
	StateUnknown State = iota
	StateRunning
	StateRetained
	StateFinished
)

// Limits bounds the outcomes kept.
type Limits struct {
	Entries int
	Bytes   int
	Age     time.Duration    // of an outcome that nobody acks; 0 = no bound
	Now     func() time.Time // needed with Age
}

// Table holds the calls of one runtime.
type Table struct {
	limits   Limits
	running  map[string]Owner
	claims   map[string]Owner         // of running and retained calls of neighbours
	retained map[string]*list.Element // of *kept
	order    list.List                // oldest first
	bytes    int
	evicted  uint64
	seed     maphash.Seed
	used     map[uint64]bool // ids that finished (true) or are fenced (false), for the runtime's life
}

type kept struct {
	id      string
	owner   Owner
	outcome Outcome
	at      time.Time
	doomed  bool
}

// NewTable returns an empty table.
func NewTable(limits Limits) *Table {
	return &Table{
		limits: limits, running: map[string]Owner{}, claims: map[string]Owner{}, retained: map[string]*list.Element{},
		seed: maphash.MakeSeed(), used: map[uint64]bool{},
	}
}

// hash stands for an id in the set of used ones: 8 bytes each, with a secret seed, so that
// a runtime may live for millions of calls.
func (t *Table) hash(id string) uint64 { return maphash.String(t.seed, id) }

// Start asks to run id for owner.
func (t *Table) Start(id string, owner Owner) Verdict {
	if _, ok := t.running[id]; ok {
		return Running
	}
	if _, ok := t.retained[id]; ok {
		return Retained
	}
	if finished, ok := t.used[t.hash(id)]; ok {
		if finished {
			return Finished
		}
		return Fenced
	}
	t.running[id] = owner
	return New
}

// Finish ends a running call: its outcome is kept until it is acked. ok is false, and
// nothing happens, if the call does not run (any more): the first outcome wins.
func (t *Table) Finish(id string, o Outcome) (owner Owner, ok bool) {
	owner, ok = t.running[id]
	if !ok {
		return Nobody, false
	}
	delete(t.running, id)
	t.used[t.hash(id)] = true
	k := &kept{id: id, owner: owner, outcome: o}
	if t.limits.Age > 0 {
		k.at = t.limits.Now()
	}
	t.retained[id] = t.order.PushBack(k)
	t.bytes += size(id, o)
	for t.order.Len() > 1 && (t.order.Len() > t.limits.Entries || t.bytes > t.limits.Bytes) {
		t.drop(t.order.Front())
		t.evicted++
	}
	return owner, true
}

func size(id string, o Outcome) int { return 128 + len(id) + len(o.Payload) }

func (t *Table) drop(e *list.Element) {
	k := t.order.Remove(e).(*kept)
	delete(t.retained, k.id)
	delete(t.claims, k.id)
	t.bytes -= size(k.id, k.outcome)
}

// Ack forgets the outcome of id if owner owns it, and reports whether it did.
func (t *Table) Ack(id string, owner Owner) bool {
	e, ok := t.retained[id]
	if !ok || e.Value.(*kept).owner != owner {
		return false
	}
	t.drop(e)
	return true
}

// Claim notes the session of a neighbour's host that asked for id, by a call or a resume, or
// Nobody if it was one of several. Hosts ack every outcome they see, also those of others.
func (t *Table) Claim(id string, session Owner) {
	if owner, ok := t.running[id]; ok && owner == Neighbour {
		t.claims[id] = session
	} else if e, ok := t.retained[id]; ok && e.Value.(*kept).owner == Neighbour {
		t.claims[id] = session
	}
}

// Claimed reports whether id was last asked for by this session, or nobody claimed it.
func (t *Table) Claimed(id string, session Owner) bool {
	claim, ok := t.claims[id]
	return !ok || claim == session
}

// Doom marks an outcome of neighbours that will be dropped after a while, since some host
// acked it. It is false if there is no such outcome, or it was marked before.
func (t *Table) Doom(id string) bool {
	e, ok := t.retained[id]
	if !ok || e.Value.(*kept).owner != Neighbour || e.Value.(*kept).doomed {
		return false
	}
	e.Value.(*kept).doomed = true
	return true
}

// Drop forgets an outcome, whoever owns it.
func (t *Table) Drop(id string) {
	if e, ok := t.retained[id]; ok {
		t.drop(e)
	}
}

// Expire forgets the outcomes that are older than the limit.
func (t *Table) Expire() {
	for t.limits.Age > 0 && t.order.Len() > 0 && t.limits.Now().Sub(t.order.Front().Value.(*kept).at) > t.limits.Age {
		t.drop(t.order.Front())
		t.evicted++
	}
}

// Own makes owner the owner of id, which runs or is retained. An id of a neighbour stays so
// for other neighbours.
func (t *Table) Own(id string, owner Owner) {
	if _, ok := t.running[id]; ok {
		t.running[id] = owner
	} else if e, ok := t.retained[id]; ok {
		e.Value.(*kept).owner = owner
	}
}

// Lookup tells where id stands, with the outcome if it is retained.
func (t *Table) Lookup(id string) (State, Owner, Outcome) {
	if owner, ok := t.running[id]; ok {
		return StateRunning, owner, Outcome{}
	}
	if e, ok := t.retained[id]; ok {
		k := e.Value.(*kept)
		return StateRetained, k.owner, k.outcome
	}
	if t.used[t.hash(id)] {
		return StateFinished, Nobody, Outcome{}
	}
	return StateUnknown, Nobody, Outcome{}
}

// Fence forbids that id, which is unknown, ever runs.
func (t *Table) Fence(id string) {
	if state, _, _ := t.Lookup(id); state == StateUnknown {
		t.used[t.hash(id)] = false
	}
}

// Release takes the calls of an owner that left away from it: they go on, and their
// outcomes wait for a resume.
func (t *Table) Release(owner Owner) {
	for id, o := range t.running {
		if o == owner {
			t.running[id] = Nobody
		}
	}
	for _, e := range t.retained {
		if k := e.Value.(*kept); k.owner == owner {
			k.owner = Nobody
		}
	}
}

// RunningIDs lists the calls that run.
func (t *Table) RunningIDs() []string {
	ids := make([]string, 0, len(t.running))
	for id := range t.running {
		ids = append(ids, id)
	}
	return ids
}

// Evicted counts outcomes that were dropped, unacked, to stay within the limits.
func (t *Table) Evicted() uint64 { return t.evicted }

// Len is the number of running calls and of retained outcomes.
func (t *Table) Len() (running, retained int) { return len(t.running), len(t.retained) }
