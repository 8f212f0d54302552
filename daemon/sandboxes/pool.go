package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
)

const (
	minRefillPause = time.Second // after a start that failed
	maxRefillPause = time.Minute
	// takenPause is how long a pool that is not empty waits with its refill: to start another
	// sandbox at once would slow the first call of the one that was taken.
	takenPause = 250 * time.Millisecond
)

// pool is the sandboxes of one template that wait for somebody to take them. They are in no
// list, and no call reaches them. Guarded by Manager.mu, apart from op.
type pool struct {
	op sync.Mutex // held by the one operation that changes the template
	Template
	kept     bool // it is in the store
	gone     bool // it was deleted
	members  map[*entry]bool
	ready    []*entry // of members, those that can be taken; the oldest first
	failures int      // in a row
	waiting  bool     // a refill is due after takenPause
}

func (p *pool) shown() Template {
	t := p.Template
	t.Ready, t.Starting = len(p.ready), len(p.members)-len(p.ready)
	return t
}

var errTaking = errors.New("the waiting sandbox could not be taken")

// fill starts what a pool lacks and deletes what it has too much; m.mu is held.
func (m *Manager) fill(p *pool) {
	if p.gone || !p.kept || m.stopped || m.base == nil {
		return
	}
	for len(p.ready) > 0 && len(p.members) > p.Size {
		e := p.ready[0]
		p.ready = p.ready[1:]
		delete(p.members, e)
		m.startDeleteLocked(e, Deleted)
	}
	if wait := p.RetryTime.Sub(m.opts.Clock.Now()); !p.RetryTime.IsZero() && wait > 0 {
		return // refillLater looks again
	}
	for len(p.members) < p.Size {
		m.startMember(p)
	}
}

// startMember begins one start in the background; m.mu is held.
func (m *Manager) startMember(p *pool) {
	req := p.Sandbox
	req.Template, req.preload = p.ID, p.Preload
	e := m.newCreate(req, newID(), "", true)
	p.members[e] = true
	m.launch(m.base, e, func(ctx context.Context, turn *turn) error {
		var dir *providers.Dir
		err := turn.wait(ctx)
		if err == nil {
			dir, err = m.openProject(req.Project, req.Peer)
		}
		if err == nil {
			err = m.create(ctx, e, dir, turn)
		} else {
			m.drop(e)
		}
		m.joinPool(p, e, err)
		return err
	})
}

// joinPool counts a start that has ended: well, or not.
func (m *Manager) joinPool(p *pool, e *entry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && !p.gone && e.delete == nil && e.exit == nil {
		p.ready = append(p.ready, e)
		p.failures, p.Message, p.RetryTime = 0, "", time.Time{}
		m.fill(p) // it may have become smaller
		return
	}
	delete(p.members, e)
	if err == nil {
		m.startDeleteLocked(e, Deleted)
		return
	}
	if p.gone || m.stopped || m.base.Err() != nil || e.delete != nil {
		return
	}
	p.failures++
	pause := min(maxRefillPause, minRefillPause<<min(p.failures-1, 10))
	p.Message, p.RetryTime = messageOf(err), m.opts.Clock.Now().Add(pause)
	m.log.Warn("pool not filled", "template", p.ID, "failures", p.failures, "err", err)
	m.refillLater(p, pause)
}

// refillLater looks at a pool again after its pause; m.mu is held.
func (m *Manager) refillLater(p *pool, pause time.Duration) {
	base, due := m.base, make(chan struct{})
	stop := m.opts.Clock.AfterFunc(pause, func() { close(due) }) // here: the pause begins now
	m.wg.Go(func() {                                             // ends with the pause, or with base
		defer stop()
		select {
		case <-due:
			m.mu.Lock()
			defer m.mu.Unlock()
			p.waiting = false
			m.fill(p)
		case <-base.Done():
		}
	})
}

// leavePool deletes a waiting sandbox that ended by itself, and starts another after a
// pause: that one may do the same.
func (m *Manager) leavePool(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startDeleteLocked(e, Deleted)
	p := m.pools[e.rec.Pool]
	if p == nil || !p.members[e] || m.stopped {
		return
	}
	delete(p.members, e)
	p.ready = slices.DeleteFunc(p.ready, func(r *entry) bool { return r == e })
	p.Message, p.RetryTime = "a waiting sandbox ended: "+exitMessage(*e.exit), m.opts.Clock.Now().Add(minRefillPause)
	m.refillLater(p, minRefillPause)
}

// take returns a waiting sandbox of a template that is being handed to the caller, and counts
// him in; nil if there is none or it has to have a certain id. m.mu is held.
func (m *Manager) takeLocked(req CreateRequest, hash string) *entry {
	p := m.pools[req.Template]
	if p == nil {
		return nil
	}
	for req.ID == "" && len(p.ready) > 0 {
		e := p.ready[0]
		p.ready = p.ready[1:]
		delete(p.members, e)
		if e.exit != nil || e.delete != nil {
			continue
		}
		p.Hits++
		m.hand(e, req, hash)
		switch {
		case len(p.ready) == 0:
			m.fill(p)
		case !p.waiting:
			p.waiting = true
			m.refillLater(p, takenPause)
		}
		return e
	}
	p.Misses++
	return nil
}

// hand begins to make a waiting sandbox that of a request; m.mu is held.
func (m *Manager) hand(e *entry, req CreateRequest, hash string) {
	ctx, cancel := context.WithCancelCause(m.base)
	e.cancelCreate, e.created, e.waiters = cancel, make(chan struct{}), 1
	e.rec.RequestID, e.rec.RequestHash = req.RequestID, hash
	if req.RequestID != "" {
		m.byRequest[req.RequestID] = e
	}
	m.wg.Go(func() {
		defer cancel(nil)
		e.op.Lock()
		err := m.handOver(ctx, e, req)
		e.op.Unlock()
		m.mu.Lock()
		if e.createErr = err; err != nil {
			if req.RequestID != "" && m.byRequest[req.RequestID] == e {
				delete(m.byRequest, req.RequestID)
			}
			m.startDeleteLocked(e, Deleted)
		}
		m.mu.Unlock()
		close(e.created)
	})
}

// handOver thaws a waiting sandbox and writes whose it is; the caller holds e.op. Until that is
// written it is the pool's: a daemon that finds it thawed freezes it again, since no call
// has reached it.
func (m *Manager) handOver(ctx context.Context, e *entry, req CreateRequest) error {
	if err := failpoint.Inject("pool/beforeThaw"); err != nil {
		return errors.Join(errTaking, err)
	}
	pauser, can := e.handle.(providers.Pauser)
	if !can || e.link == nil {
		return errTaking
	}
	if err := pauser.Resume(ctx); err != nil {
		return errors.Join(errTaking, err)
	}
	e.link.Release()
	if err := failpoint.Inject("pool/afterThaw"); err != nil {
		return errors.Join(errTaking, err)
	}
	if !e.link.Connected() {
		soon, cancel := context.WithTimeoutCause(ctx, reconnectTimeout, errors.New("no connection"))
		defer cancel()
		if err := e.link.WaitConnected(soon); err != nil {
			return errors.Join(errTaking, err)
		}
	}
	now := m.opts.Clock.Now()
	m.mu.Lock()
	m.seq++
	rec := e.rec
	rec.Pool, rec.PausedAt, rec.Active, rec.Seq = "", time.Time{}, now, m.seq
	s := &rec.Sandbox
	s.State, s.Labels, s.CreateTime, s.ExpireTime, s.IdleTimeout = Ready, req.Labels, now, req.expiry(now), req.IdleTimeout
	ended := e.exit != nil
	m.mu.Unlock()
	if err := context.Cause(ctx); err != nil || ended {
		return errors.Join(errTaking, err)
	}
	if err := failpoint.Inject("pool/beforeTake"); err != nil {
		return errors.Join(errTaking, err)
	}
	if err := m.putRecord(context.WithoutCancel(ctx), rec); err != nil {
		return err
	}
	if err := failpoint.Inject("pool/afterTake"); err != nil {
		return errors.Join(errTaking, err)
	}
	m.mu.Lock()
	e.rec, e.written, e.hidden = rec, now, false
	m.mu.Unlock()
	m.set(e, Ready, NoReason, "")
	if err := m.opts.Journal.Flush(ctx, rec.Sandbox.ID); err != nil {
		m.log.Warn("event of a READY sandbox not committed yet", "sandbox", rec.Sandbox.ID, "err", err)
	}
	return nil
}

// keep freezes a sandbox of a pool that has come up; the caller holds e.op.
func (m *Manager) keep(e *entry, handle providers.Handle) error {
	if err := failpoint.Inject("pool/beforeFreeze"); err != nil {
		return err
	}
	pauser, can := handle.(providers.Pauser)
	if !can {
		return errs.New(errs.FailedPrecondition, errs.Unsupported, "the %s provider cannot pause sandboxes, so that none can wait", e.rec.Sandbox.Provider)
	}
	if err := m.freeze(e, pauser); err != nil {
		return fmt.Errorf("freeze a waiting sandbox: %w", err)
	}
	return failpoint.Inject("pool/afterFreeze")
}

// adoptPools gives the sandboxes that wait back to their pools, and fills them.
func (m *Manager) adoptPools() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if !e.hidden || e.delete != nil || e.exit != nil {
			continue
		}
		p := m.pools[e.rec.Pool]
		if p == nil || e.rec.Sandbox.State != Paused {
			m.startDeleteLocked(e, Deleted)
			continue
		}
		p.members[e] = true
		p.ready = append(p.ready, e)
	}
	for _, p := range m.pools {
		slices.SortFunc(p.ready, byCreation)
		m.fill(p)
	}
}

// closeDir closes a directory that was opened for a create.
func closeDir(dir *providers.Dir) {
	if dir != nil {
		_ = unix.Close(dir.FD)
	}
}
