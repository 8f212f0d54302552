package dispatch

import "time"

// activity is what calls a sandbox has and had. Guarded by Dispatcher.mu.
type activity struct {
	open int
	last time.Time // when a call that was accepted ended last
	gone bool      // the sandbox is lost; forgotten with its last call
}

// Activity tells how many calls of a sandbox are open, those not accepted yet included, and
// when the last one ended; zero = none did since the daemon started.
func (d *Dispatcher) Activity(sandbox string) (open int, last time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.activity[sandbox]; a != nil {
		return a.open, a.last
	}
	return 0, time.Time{}
}

// Open is how many calls are open in all sandboxes.
func (d *Dispatcher) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending)
}

// opened counts a call; d.mu is held.
func (d *Dispatcher) opened(sandbox string) {
	a := d.activity[sandbox]
	if a == nil {
		a = &activity{}
		d.activity[sandbox] = a
	}
	a.open++
}

// closedOne takes it back. One that was never accepted was no activity. d.mu is held.
func (d *Dispatcher) closedOne(sandbox string, served bool) {
	a := d.activity[sandbox]
	if a == nil {
		return
	}
	a.open--
	if served {
		a.last = d.opts.Clock.Now()
	}
	if a.open == 0 && (a.gone || a.last.IsZero()) {
		delete(d.activity, sandbox)
	}
}

// left forgets a sandbox that is lost; d.mu is held.
func (d *Dispatcher) left(sandbox string) {
	a := d.activity[sandbox]
	switch {
	case a == nil:
	case a.open == 0:
		delete(d.activity, sandbox)
	default:
		a.gone = true
	}
}
