package sandboxes

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
)

// Delete ends a sandbox with everything it had, also one that is being created. A second
// delete joins the first. It goes on when the caller leaves.
func (m *Manager) Delete(ctx context.Context, id string, allowMissing bool) error {
	if _, err := m.waitReady(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	e, ok := m.entries[id]
	ok = ok && !e.hidden
	m.mu.Unlock()
	if !ok {
		if allowMissing {
			return nil
		}
		return notFound(id)
	}
	d := m.startDelete(e, Deleted)
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errs.New(errs.DeadlineExceeded, errs.Deadline, "the caller's deadline passed; sandbox %s is still being deleted", id)
		}
		return errs.New(errs.Cancelled, errs.CallerLeft, "the caller left; sandbox %s is still being deleted", id)
	}
}

// startDelete begins to delete in the background, or joins the deletion under way, whose
// reason stays.
func (m *Manager) startDelete(e *entry, reason Reason) *deletion {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.startDeleteLocked(e, reason)
}

func (m *Manager) startDeleteLocked(e *entry, reason Reason) *deletion {
	if e.delete != nil {
		return e.delete
	}
	d := &deletion{done: make(chan struct{}), reason: reason}
	if m.stopped {
		d.err = stopping()
		close(d.done)
		return d
	}
	e.delete = d
	e.cancelCreate(errDeletedToo)
	m.wg.Go(func() {
		err := m.deleteEntry(e, reason)
		m.mu.Lock()
		d.err = err
		e.delete = nil
		m.mu.Unlock()
		close(d.done)
	})
	return d
}

func (m *Manager) deleteEntry(e *entry, reason Reason) error {
	e.op.Lock()
	defer e.op.Unlock()
	m.mu.Lock()
	present := m.entries[e.rec.Sandbox.ID] == e
	m.mu.Unlock()
	if !present {
		return nil // it was being created, and that left nothing
	}
	ctx, cancel := m.detached()
	defer cancel()
	m.set(e, Stopping, reason, "")
	return m.remove(ctx, e)
}

// remove takes everything of a sandbox away; the caller holds e.op. What fails stays
// STOPPING and is tried again by check.
func (m *Manager) remove(ctx context.Context, e *entry) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), removeTimeout,
		fmt.Errorf("it was not removed within %s", removeTimeout))
	defer cancel()
	id := e.rec.Sandbox.ID
	m.mu.Lock()
	e.rec.Sandbox.State = Stopping
	reason := e.rec.Sandbox.Reason
	m.mu.Unlock()
	putErr := m.put(ctx, e)
	if err := failpoint.Inject("delete/afterRecord"); err != nil {
		return err
	}
	m.closePort(e)
	rmErr := m.engine(e.rec.Sandbox.Provider).Delete(ctx, id)
	m.disconnect(e, errors.New("the sandbox was deleted"))
	m.opts.OnLost(id, string(reason), endMessage(reason))
	if rmErr != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, rmErr)
	}
	if err := failpoint.Inject("delete/beforeForget"); err != nil {
		return err
	}
	if err := m.opts.Store.DeleteSandbox(ctx, id); err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, errors.Join(putErr, err))
	}
	if reason != Expired && reason != Idle {
		reason = Deleted
	}
	if err := failpoint.Inject("delete/afterForget"); err != nil {
		m.log.Error("failpoint", "sandbox", id, "err", err)
	}
	m.journal(id, Stopped, reason, "") // ends followers
	if err := m.opts.Journal.DeleteSandbox(ctx, id); err != nil {
		m.log.Warn("journal of deleted sandbox kept", "sandbox", id, "err", err)
	}
	m.drop(e)
	return nil
}

// endMessage is what the calls of a sandbox that is removed are told.
func endMessage(reason Reason) string {
	switch reason {
	case Expired:
		return "the sandbox was deleted: its expire_time came"
	case Idle:
		return "the sandbox was deleted: it had no call for its idle_timeout"
	}
	return "the sandbox was deleted"
}

// detached is a context for steps that are to be finished although the daemon stops.
func (m *Manager) detached() (context.Context, context.CancelFunc) {
	m.mu.Lock()
	base := m.base
	m.mu.Unlock()
	return context.WithTimeoutCause(context.WithoutCancel(base), 2*removeTimeout, errors.New("the step took too long"))
}
