package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
)

const (
	pauseTimeout     = 10 * time.Second // for the provider to freeze or thaw one sandbox
	reconnectTimeout = 5 * time.Second  // for a link that did not outlive the pause; then READY is told all the same
)

// Pause freezes a READY sandbox and returns it PAUSED; one that is PAUSED stays so. The
// record is written first, so that the next daemon finishes what this one began. Calls
// in flight stand still, their deadlines go on. NotFound (SANDBOX_NOT_FOUND);
// FailedPrecondition (SANDBOX_NOT_READY, or UNSUPPORTED by the provider).
func (m *Manager) Pause(ctx context.Context, id string) (Sandbox, error) {
	e, pauser, err := m.holdPauser(ctx, id)
	if err != nil {
		return Sandbox{}, err
	}
	defer e.op.Unlock()
	if e.rec.Sandbox.State == Ready {
		if err := m.freeze(e, pauser); err != nil {
			return Sandbox{}, err
		}
		m.set(e, Paused, NoReason, "")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown(e), nil
}

// Resume lets a PAUSED sandbox go on and returns it READY, as Pause the other way round.
func (m *Manager) Resume(ctx context.Context, id string) (Sandbox, error) {
	e, pauser, err := m.holdPauser(ctx, id)
	if err != nil {
		return Sandbox{}, err
	}
	defer e.op.Unlock()
	if e.rec.Sandbox.State == Paused {
		if err := m.thaw(e, pauser); err != nil {
			return Sandbox{}, err
		}
		soon, cancel := context.WithTimeoutCause(ctx, reconnectTimeout, errors.New("no connection yet"))
		if err := e.link.WaitConnected(soon); err != nil {
			m.log.Warn("resumed sandbox not connected yet", "sandbox", id, "err", err)
		}
		cancel()
		m.set(e, Ready, NoReason, "")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown(e), nil
}

// holdPauser is hold for a sandbox that is READY or PAUSED and can be paused.
func (m *Manager) holdPauser(ctx context.Context, id string) (*entry, providers.Pauser, error) {
	e, err := m.hold(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	s, handle, ended := e.rec.Sandbox, e.handle, e.exit != nil
	m.mu.Unlock()
	pauser, can := handle.(providers.Pauser)
	switch {
	case s.State != Ready && s.State != Paused || ended:
		err = notReady(id, s.State, s.Reason)
	case !can:
		err = errs.New(errs.FailedPrecondition, errs.Unsupported, "the %s provider cannot pause sandboxes", s.Provider)
	default:
		return e, pauser, nil
	}
	e.op.Unlock()
	return nil, nil, err
}

// freeze pauses the sandbox of an entry whose op is held. It is not told to anybody.
func (m *Manager) freeze(e *entry, pauser providers.Pauser) error {
	ctx, cancel := m.pauseContext()
	defer cancel()
	m.mu.Lock()
	id, now := e.rec.Sandbox.ID, m.opts.Clock.Now()
	if a := m.opts.Activity(id); a.Open > 0 {
		e.rec.Active = now
	} else if a.Last.After(e.rec.Active) {
		e.rec.Active = a.Last
	}
	e.rec.PausedAt = now
	e.rec.Sandbox.State = Paused // no call is taken from here on
	m.mu.Unlock()
	err := m.put(ctx, e)
	if err == nil {
		err = failpoint.Inject("pause/afterRecord")
	}
	if err == nil {
		e.link.Hold()
		err = pauser.Pause(ctx)
	}
	if err == nil {
		err = failpoint.Inject("pause/afterFreeze")
	}
	if err == nil {
		return nil
	}
	thawed := pauser.Resume(ctx)
	e.link.Release()
	m.mu.Lock()
	e.rec.Sandbox.State, e.rec.PausedAt = Ready, time.Time{}
	m.mu.Unlock()
	if err := errors.Join(thawed, m.put(ctx, e)); err != nil {
		m.log.Error("sandbox that could not be paused not as before", "sandbox", id, "err", err)
	}
	return pauseError(id, "paused", err)
}

// thaw resumes the sandbox of an entry whose op is held; its state is the caller's business.
func (m *Manager) thaw(e *entry, pauser providers.Pauser) error {
	ctx, cancel := m.pauseContext()
	defer cancel()
	m.mu.Lock()
	rec := e.rec
	m.mu.Unlock()
	id := rec.Sandbox.ID
	rec.Sandbox.State = Ready
	if !rec.PausedAt.IsZero() { // the idle clock stood still
		rec.Active = rec.Active.Add(max(0, m.opts.Clock.Now().Sub(rec.PausedAt)))
	}
	rec.PausedAt = time.Time{}
	err := m.putRecord(ctx, rec)
	if err == nil {
		err = failpoint.Inject("resume/afterRecord")
	}
	if err == nil {
		err = pauser.Resume(ctx)
	}
	if err == nil {
		err = failpoint.Inject("resume/afterThaw")
	}
	if err != nil {
		if err := errors.Join(pauser.Pause(ctx), m.put(ctx, e)); err != nil {
			m.log.Error("sandbox that could not be resumed not as before", "sandbox", id, "err", err)
		}
		return pauseError(id, "resumed", err)
	}
	m.mu.Lock()
	e.rec.Active, e.rec.PausedAt, e.apart = rec.Active, rec.PausedAt, time.Time{}
	m.mu.Unlock()
	e.link.Release()
	return nil
}

// pauseContext is for steps that are to be finished whether or not somebody waits.
func (m *Manager) pauseContext() (context.Context, context.CancelFunc) {
	m.mu.Lock()
	base := m.base
	m.mu.Unlock()
	return context.WithTimeoutCause(context.WithoutCancel(base), pauseTimeout, fmt.Errorf("the provider took longer than %s", pauseTimeout))
}

func pauseError(id, what string, err error) error {
	var known *errs.Error
	if errors.As(err, &known) {
		return err
	}
	return errs.New(errs.Unavailable, errs.ProviderUnavailable, "sandbox %s could not be %s; it is as before", id, what).
		WithCause(err).WithRetry(time.Second)
}

func (m *Manager) putRecord(ctx context.Context, rec record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode record of sandbox %s: %w", rec.Sandbox.ID, err)
	}
	return m.opts.Store.PutSandbox(ctx, rec.Sandbox.ID, data)
}

// settle makes the engine do what the record says of a pause: a daemon may have died in
// between, or somebody else may have a hand in it. The caller holds e.op.
func (m *Manager) settle(ctx context.Context, e *entry, st providers.Status) {
	m.mu.Lock()
	id, state, handle := e.rec.Sandbox.ID, e.rec.Sandbox.State, e.handle
	m.mu.Unlock()
	pauser, can := handle.(providers.Pauser)
	if !can || !st.Running || st.Paused == (state == Paused) || state != Paused && state != Ready {
		return
	}
	var err error
	if state == Paused {
		e.link.Hold()
		err = pauser.Pause(ctx)
	} else {
		err = pauser.Resume(ctx)
		e.link.Release()
	}
	m.log.Warn("sandbox brought to its recorded state", "sandbox", id, "state", string(state), "err", err)
}

// settleLater is settle in the background, with a closer look; one that is busy is looked
// at the next time.
func (m *Manager) settleLater(e *entry) {
	if !e.op.TryLock() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		e.op.Unlock()
		return
	}
	m.wg.Go(func() {
		defer e.op.Unlock()
		statuser, can := e.handle.(providers.Statuser)
		if !can {
			return
		}
		ctx, cancel := m.pauseContext()
		defer cancel()
		if st, err := statuser.Status(ctx); err == nil {
			m.settle(ctx, e, st)
		}
	})
}
