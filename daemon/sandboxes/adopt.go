package sandboxes

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
)

// adopt takes over what the daemon before left: READY sandboxes that run go on, those that
// ended become FAILED, half-made ones and those being deleted are removed, and so is what
// the provider has without a record.
func (m *Manager) adopt(ctx context.Context) error {
	rows, err := m.opts.Store.Sandboxes(ctx)
	if err != nil {
		return err
	}
	list, err := m.listEngines(ctx)
	if err != nil {
		return err
	}
	if err := failpoint.Inject("reconcile/afterList"); err != nil {
		return err
	}
	served, err := m.opts.Store.LastCalls(ctx)
	if err != nil {
		return err
	}
	if err := m.adoptTemplates(ctx); err != nil {
		return err
	}
	known := map[string]engineStatus{}
	for _, st := range list {
		known[st.ID] = st
	}
	for _, row := range rows {
		st, exists := known[row.ID]
		delete(known, row.ID)
		if err := failpoint.Inject("reconcile/midAdopt"); err != nil {
			return err
		}
		m.adoptOne(ctx, row, st, exists, served[row.ID])
	}
	for id, st := range known {
		m.removeStray(id, st.provider)
	}
	return nil
}

func (m *Manager) adoptOne(ctx context.Context, row store.SandboxRow, st engineStatus, exists bool, served time.Time) {
	var rec record
	if err := json.Unmarshal(row.Record, &rec); err != nil || rec.Sandbox.ID != row.ID {
		m.log.Error("sandbox record unreadable", "sandbox", row.ID, "err", err)
		rec = record{Sandbox: Sandbox{ID: row.ID, State: Stopping, Reason: Lost, Provider: cmp.Or(st.provider, m.opts.Provider.Name())}}
	}
	e := newEntry(rec)
	close(e.created)
	e.cancelCreate = func(error) {}
	e.hidden = rec.Pool != ""
	m.adoptActivity(e, served)
	m.mu.Lock()
	m.entries[row.ID] = e
	if rec.RequestID != "" {
		m.byRequest[rec.RequestID] = e
	}
	m.seq = max(m.seq, rec.Seq)
	m.mu.Unlock()

	switch {
	case rec.Sandbox.State == Failed:
		m.opts.OnLost(row.ID, string(rec.Sandbox.Reason), rec.Sandbox.Message)
	case rec.Sandbox.State != Ready && rec.Sandbox.State != Paused: // half-made or half-removed
		m.startDelete(e, leftReason(rec.Sandbox))
	case exists && st.Running:
		handle, err := m.engine(rec.Sandbox.Provider).Get(ctx, row.ID)
		if err != nil {
			m.log.Error("sandbox not adopted", "sandbox", row.ID, "err", err)
			m.startFail(e, providers.Exit{ID: row.ID, Reason: providers.Lost})
			return
		}
		m.connect(e, handle, false, rec.Sandbox.State == Paused)
		m.settle(ctx, e, st.Status)
		if err := m.expose(ctx, e); err != nil {
			m.log.Error("runtime not exposed again", "sandbox", row.ID, "err", err)
		}
		m.log.Info("sandbox adopted", "sandbox", row.ID)
	default:
		exit := providers.Exit{ID: row.ID, Reason: providers.Lost}
		if st.Exit != nil {
			exit = *st.Exit
		}
		m.startFail(e, exit)
	}
}

// removeStray removes what the provider has without a record: it was half-made.
func (m *Manager) removeStray(id, provider string) {
	e := newEntry(record{Sandbox: Sandbox{ID: id, State: Stopping, Reason: Lost, Provider: provider}})
	close(e.created)
	e.cancelCreate = func(error) {}
	m.mu.Lock()
	m.entries[id] = e // keeps the id until it is gone
	m.mu.Unlock()
	m.log.Warn("sandbox without a record removed", "sandbox", id)
	m.startDelete(e, Deleted)
}

// leftReason is why a sandbox that the daemon before was about to make or remove is removed.
func leftReason(s Sandbox) Reason {
	if s.State == Stopping && (s.Reason == Expired || s.Reason == Idle) {
		return s.Reason
	}
	return Deleted
}
