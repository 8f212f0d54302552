package dispatch

import (
	"slices"
	"time"

	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/runtime/wire"
)

// still is which calls go on in their sandboxes although they have their outcome: they were
// cancelled or their time ran out, and the runtime did not tell yet that they stopped. It is
// guarded by Dispatcher.mu.
type still map[string]stillRunning

type stillRunning struct {
	sandbox string
	since   time.Time
}

func (s still) has(sandbox, id string) bool { return s[id].sandbox == sandbox && sandbox != "" }

// stopped forgets one call of a sandbox, lost all of them.
func (s still) stopped(sandbox, id string) {
	if s[id].sandbox == sandbox {
		delete(s, id)
	}
}

func (s still) lost(sandbox string) {
	for id, r := range s {
		if r.sandbox == sandbox {
			delete(s, id)
		}
	}
}

// connected takes what the runtime of a sandbox tells when it connects: these run, no others.
func (s still) connected(now time.Time, sandbox string, ids []string) {
	s.lost(sandbox)
	for _, id := range ids {
		if _, foreign := s[id]; !foreign {
			s[id] = stillRunning{sandbox, now}
		}
	}
}

// prune forgets what is older than the records of calls.
func (s still) prune(before time.Time) {
	for id, r := range s {
		if r.since.Before(before) {
			delete(s, id)
		}
	}
}

// retires reports whether a runtime tells when calls have stopped.
func retires(p link.Peer) bool { return slices.Contains(p.Health.Capabilities, wire.CapRetire) }

// noteStill notes a call that was stopped from outside: its code may go on. d.mu is held.
func (d *Dispatcher) noteStill(p *pending, o Outcome, now time.Time) {
	if !p.atRuntime || o.Error == nil || !o.Error.Cancelled && o.Error.Type != wire.ErrDeadlineExceeded {
		return
	}
	if r := d.receivers[p.request.Sandbox]; r != nil && r.retires {
		d.still[p.request.ID] = stillRunning{p.request.Sandbox, now}
	}
}

// Stopped is told by a runtime when a call that was stopped has no code running any more.
func (r *receiver) Stopped(id string) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.d.receivers[r.sandbox] == r {
		r.d.still.stopped(r.sandbox, id)
	}
}
