package sandboxes

import (
	"context"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
)

// Bounds of expiry.
const (
	minLifetime   = time.Second
	maxLifetime   = 10 * 365 * 24 * time.Hour
	idleGrace     = time.Minute      // after a start, in which nothing idles out
	maxExpiryWait = 30 * time.Second // so that a jump of the wall clock is seen
	keepActive    = 30 * time.Minute // at least so often the last activity is written, since calls are kept for an hour
)

// Activity is what calls a sandbox had: how many are open, and when the last one ended.
type Activity struct {
	Open int
	Last time.Time // zero = there was none since the daemon started
}

func validateLifetime(field string, d time.Duration) error {
	if d < minLifetime || d > maxLifetime {
		return errs.Invalid(field, "must be from %s to 10 years (315360000s)", minLifetime)
	}
	return nil
}

// validateExpiry checks what a create asks for.
func (r CreateRequest) validateExpiry(now time.Time) error {
	if r.IdleTimeout != 0 {
		if err := validateLifetime("sandbox.idle_timeout", r.IdleTimeout); err != nil {
			return err
		}
	}
	switch {
	case r.TTL != 0:
		return validateLifetime("sandbox.ttl", r.TTL)
	case !r.ExpireTime.IsZero() && !r.ExpireTime.After(now):
		return errs.Invalid("sandbox.expire_time", "must be in the future; the daemon's clock says %s", now.UTC().Format(time.RFC3339))
	case !r.ExpireTime.IsZero() && r.ExpireTime.Sub(now) > maxLifetime:
		return errs.Invalid("sandbox.expire_time", "must be within 10 years; leave it unset for no end")
	}
	return nil
}

// expiry is when a sandbox created now is to be deleted; zero = never.
func (r CreateRequest) expiry(now time.Time) time.Time {
	if r.TTL != 0 {
		return now.Add(r.TTL).UTC().Round(0) // without the monotonic clock, as it is after a restart
	}
	return r.ExpireTime
}

// expire deletes what is due, until ctx ends.
func (m *Manager) expire(ctx context.Context) {
	for {
		due := make(chan struct{})
		stop := m.opts.Clock.AfterFunc(m.expireDue(), func() { close(due) })
		select {
		case <-due:
		case <-m.sooner:
			stop()
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// look makes expire look at once: something may be due sooner.
func (m *Manager) look() {
	select {
	case m.sooner <- struct{}{}:
	default:
	}
}

// expireDue begins to delete what is due, and returns how long nothing else is.
func (m *Manager) expireDue() time.Duration {
	wait := maxExpiryWait
	var active []*entry
	m.mu.Lock()
	now := m.opts.Clock.Now()
	for _, e := range m.entries {
		at, reason, moved := m.dueLocked(e)
		if moved {
			active = append(active, e)
		}
		switch {
		case at.IsZero():
		case !at.After(now):
			m.log.Info("sandbox is over", "sandbox", e.rec.Sandbox.ID, "reason", string(reason))
			m.startDeleteLocked(e, reason)
		default:
			wait = min(wait, at.Sub(now))
		}
	}
	m.mu.Unlock()
	for _, e := range active {
		m.keepActivity(e)
	}
	return wait
}

// dueLocked is when a sandbox is to be deleted, and why; zero = not as things stand. moved
// tells that its last activity is worth writing. m.mu is held, so that a call that is
// accepted later finds the sandbox being deleted.
func (m *Manager) dueLocked(e *entry) (at time.Time, reason Reason, moved bool) {
	s := &e.rec.Sandbox
	if e.delete != nil || e.hidden || s.State != Ready && s.State != Paused && s.State != Failed {
		return time.Time{}, NoReason, false
	}
	at, reason = s.ExpireTime, Expired
	if s.IdleTimeout <= 0 || s.State == Paused {
		return at, reason, false
	}
	now := m.opts.Clock.Now()
	a := m.opts.Activity(s.ID)
	if a.Open > 0 {
		a.Last = now
	}
	if a.Last.After(e.rec.Active) {
		moved = a.Last.Sub(e.written) >= min(keepActive, s.IdleTimeout/2)
		e.rec.Active = a.Last
	}
	idle := e.rec.Active.Add(s.IdleTimeout)
	if idle.Before(e.graceEnd) {
		idle = e.graceEnd
	}
	if a.Open > 0 { // it cannot idle out sooner than that from now on
		idle = now.Add(s.IdleTimeout)
	}
	if at.IsZero() || idle.Before(at) {
		at, reason = idle, Idle
	}
	return at, reason, moved
}

// keepActivity writes a sandbox's last activity; one that is busy is written the next time.
func (m *Manager) keepActivity(e *entry) {
	if !e.op.TryLock() {
		return
	}
	defer e.op.Unlock()
	m.mu.Lock()
	here := m.entries[e.rec.Sandbox.ID] == e && e.delete == nil
	e.written = e.rec.Active
	m.mu.Unlock()
	if !here {
		return
	}
	ctx, cancel := m.detached()
	defer cancel()
	if err := m.put(ctx, e); err != nil {
		m.log.Error("last activity of sandbox not written", "sandbox", e.rec.Sandbox.ID, "err", err)
	}
}

// adoptActivity goes on with the idle clock of a sandbox of the daemon before.
func (m *Manager) adoptActivity(e *entry, served time.Time) {
	if served.After(e.rec.Active) {
		e.rec.Active = served
	}
	e.written = e.rec.Active
	now := m.opts.Clock.Now()
	e.graceEnd = now.Add(min(idleGrace, e.rec.Sandbox.IdleTimeout))
}
