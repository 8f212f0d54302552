package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Update is what to change of a sandbox; nil leaves a thing as it is.
type Update struct {
	Labels      *map[string]string // all labels
	SetLabels   map[string]*string // single ones; nil removes
	ExpireTime  *time.Time         // zero = never
	TTL         *time.Duration     // from now on; never ends the sandbox earlier than it would
	IdleTimeout *time.Duration     // 0 = never
	AllowCIDRs  *[]string          // what a bridged sandbox may reach, from now on
}

func (u Update) validate() error {
	switch {
	case u.TTL != nil && u.ExpireTime != nil:
		return errs.Invalid("update_mask", "names both ttl and expire_time; one of them")
	case u.TTL != nil:
		return validateLifetime("sandbox.ttl", *u.TTL)
	case u.IdleTimeout != nil && *u.IdleTimeout != 0:
		return validateLifetime("sandbox.idle_timeout", *u.IdleTimeout)
	}
	return nil
}

// apply changes s; now is the daemon's time.
func (u Update) apply(s *Sandbox, now time.Time) error {
	if u.Labels != nil {
		s.Labels = maps.Clone(*u.Labels)
	}
	for key, value := range u.SetLabels {
		if value == nil {
			delete(s.Labels, key)
			continue
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[key] = *value
	}
	if err := validateLabels(s.Labels); err != nil {
		return err
	}
	if u.ExpireTime != nil {
		if u.ExpireTime.Sub(now) > maxLifetime {
			return errs.Invalid("sandbox.expire_time", "must be within 10 years; leave it unset for no end")
		}
		s.ExpireTime = *u.ExpireTime
	}
	if u.TTL != nil {
		if renewed := now.Add(*u.TTL).UTC().Round(0); renewed.After(s.ExpireTime) {
			s.ExpireTime = renewed
		}
	}
	if u.IdleTimeout != nil {
		s.IdleTimeout = *u.IdleTimeout
	}
	if u.AllowCIDRs != nil {
		s.Network.AllowCIDRs = slices.Clone(*u.AllowCIDRs)
		if _, err := s.Network.Egress(); err != nil {
			return err //nolint:wrapcheck // Of package errs, for clients.
		}
	}
	return nil
}

// Update changes a sandbox and returns it as it is then. It waits for other operations on
// it. InvalidArgument; NotFound (SANDBOX_NOT_FOUND); FailedPrecondition (SANDBOX_NOT_READY)
// once it is being removed.
func (m *Manager) Update(ctx context.Context, id string, u Update) (Sandbox, error) {
	if err := u.validate(); err != nil {
		return Sandbox{}, err
	}
	e, err := m.hold(ctx, id)
	if err != nil {
		return Sandbox{}, err
	}
	defer e.op.Unlock()
	m.mu.Lock()
	rec := e.rec
	rec.Sandbox = rec.Sandbox.clone()
	now := m.opts.Clock.Now()
	err = u.apply(&rec.Sandbox, now)
	if u.IdleTimeout != nil && e.rec.Sandbox.IdleTimeout == 0 { // it was not looked at before
		rec.Active = now
	}
	m.mu.Unlock()
	if err != nil {
		return Sandbox{}, err
	}
	if u.AllowCIDRs != nil {
		if err := m.setNetwork(ctx, e, rec.Sandbox.Network); err != nil {
			return Sandbox{}, err
		}
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return Sandbox{}, fmt.Errorf("encode record of sandbox %s: %w", id, err)
	}
	// The caller's end must not leave it open whether it was written.
	if err := m.opts.Store.PutSandbox(context.WithoutCancel(ctx), id, data); err != nil {
		return Sandbox{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.rec = rec
	m.changedLocked(e)
	m.look()
	return m.shown(e), nil
}

// setNetwork changes what a sandbox may reach; the caller holds e.op.
func (m *Manager) setNetwork(ctx context.Context, e *entry, n providers.Network) error {
	m.mu.Lock()
	handle, engine := e.handle, e.rec.Sandbox.Provider
	m.mu.Unlock()
	networker, can := handle.(providers.Networker)
	if !can {
		return errs.New(errs.FailedPrecondition, errs.Unsupported, "sandbox.network: the %s provider cannot change it", engine)
	}
	return networker.SetNetwork(ctx, n) //nolint:wrapcheck // Of package errs, for clients.
}

// hold waits for its turn at a sandbox that is there and not being removed. The caller
// unlocks e.op.
func (m *Manager) hold(ctx context.Context, id string) (*entry, error) {
	if _, err := m.waitReady(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	e, ok := m.entries[id]
	ok = ok && !e.hidden
	m.mu.Unlock()
	if !ok {
		return nil, notFound(id)
	}
	if err := e.op.LockFor(ctx); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, errs.New(errs.DeadlineExceeded, errs.Deadline, "the caller's deadline passed while another operation on sandbox %s went on", id)
		}
		return nil, errs.New(errs.Cancelled, errs.CallerLeft, "the caller left while another operation on sandbox %s went on", id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.entries[id] != e:
		e.op.Unlock()
		return nil, notFound(id)
	case m.stopped:
		e.op.Unlock()
		return nil, stopping()
	case e.delete != nil || e.rec.Sandbox.State == Stopping:
		e.op.Unlock()
		return nil, notReady(id, Stopping, e.rec.Sandbox.Reason)
	}
	return e, nil
}
