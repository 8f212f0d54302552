package dispatch

import (
	"slices"
	"time"

	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/runtime/wire"
)

// still is the calls that may go on in their sandboxes although they have their outcome: they
// were cancelled, or their time ran out. It is guarded by Dispatcher.mu.
type still map[string]*stopped

type stopped struct {
	sandbox string
	since   time.Time
	runs    bool // the runtime tells when it has stopped, and has not yet
	owed    bool // its outcome is the daemon's own: the runtime may not have got the cancel
}

func (s still) of(sandbox, id string) *stopped {
	if c := s[id]; c != nil && c.sandbox == sandbox {
		return c
	}
	return nil
}

// has reports whether a call of a sandbox is still running.
func (s still) has(sandbox, id string) bool {
	c := s.of(sandbox, id)
	return c != nil && c.runs
}

// stopped forgets one call of a sandbox, lost all of them.
func (s still) stopped(sandbox, id string) {
	if s.of(sandbox, id) != nil {
		delete(s, id)
	}
}

func (s still) lost(sandbox string) {
	for id := range s {
		s.stopped(sandbox, id)
	}
}

// answered takes an outcome that came too late. Unless it says that the call was stopped, its
// function has returned.
func (s still) answered(sandbox, id string, o *wire.Error) {
	c := s.of(sandbox, id)
	switch {
	case c == nil:
	case wasStopped(o) && c.runs:
		c.owed = false
	default:
		delete(s, id)
	}
}

// connected takes what the runtime of a sandbox tells when it connects: of the calls that it
// has stopped these run, no others. It returns the calls that are to be cancelled once more.
func (s still) connected(now time.Time, sandbox string, ids []string) (cancel []string) {
	for id, c := range s {
		switch {
		case c.sandbox != sandbox:
		case c.owed:
			cancel = append(cancel, id)
		default:
			delete(s, id)
		}
	}
	for _, id := range ids {
		if s[id] == nil {
			s[id] = &stopped{sandbox: sandbox, since: now, runs: true}
		}
	}
	return cancel
}

// prune forgets what is older than the records of calls.
func (s still) prune(before time.Time) {
	for id, c := range s {
		if c.since.Before(before) {
			delete(s, id)
		}
	}
}

// retires reports whether a runtime tells when calls have stopped.
func retires(p link.Peer) bool { return slices.Contains(p.Health.Capabilities, wire.CapRetire) }

// wasStopped reports whether a call ended from outside, so that its code may go on.
func wasStopped(e *wire.Error) bool {
	return e != nil && (e.Cancelled || e.Type == wire.ErrDeadlineExceeded)
}

// noteStill notes a call that has just got an outcome, if its code may go on; ours tells that
// the outcome is the daemon's own. d.mu is held.
func (d *Dispatcher) noteStill(p *pending, o Outcome, now time.Time, ours bool) {
	r := d.receivers[p.request.Sandbox]
	if p.atRuntime && wasStopped(o.Error) && r != nil && (r.retires || ours) {
		d.still[p.request.ID] = &stopped{sandbox: p.request.Sandbox, since: now, runs: r.retires, owed: ours}
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
