package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/agentixd/agentixd/providers"
)

// watch follows the provider's hints, and looks at its list now and then.
func (m *Manager) watch(ctx context.Context, exits <-chan providers.Exit) error {
	tick := time.NewTicker(m.opts.CheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case exit, ok := <-exits:
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				return errors.New("watch sandboxes: the provider ended the watch")
			}
			m.hint(ctx, exit)
		case <-tick.C:
			m.check(ctx)
		}
	}
}

// hint looks whether what the provider told is so: the event may be of an earlier sandbox
// with the same id.
func (m *Manager) hint(ctx context.Context, exit providers.Exit) {
	m.mu.Lock()
	e, ok := m.entries[exit.ID]
	var handle providers.Handle
	if ok {
		handle = e.handle
	}
	m.mu.Unlock()
	if !ok {
		return
	}
	if handle == nil { // being made: once it is, it is asked
		return
	}
	if ended, known := m.ended(ctx, handle); known && ended == nil {
		return
	} else if known {
		exit = *ended
	}
	m.startFail(e, exit)
}

// ended asks the provider whether a sandbox has ended; nil = it runs.
func (m *Manager) ended(ctx context.Context, handle providers.Handle) (exit *providers.Exit, known bool) {
	statuser, can := handle.(providers.Statuser)
	if !can {
		return nil, false
	}
	st, err := statuser.Status(ctx)
	switch {
	case err != nil:
		return nil, false
	case st.Running:
		return nil, true
	case st.Exit == nil:
		return &providers.Exit{ID: handle.ID(), Reason: providers.Lost}, true
	}
	return st.Exit, true
}

// check compares with the provider's list, which is the truth.
func (m *Manager) check(ctx context.Context) {
	m.mu.Lock()
	before := maps.Clone(m.entries)
	m.mu.Unlock()
	list, err := m.listEngines(ctx)
	if err != nil {
		m.log.Warn("provider not listed", "err", err)
		return
	}
	known := map[string]engineStatus{}
	for _, st := range list {
		known[st.ID] = st
	}
	for id, e := range before {
		m.mu.Lock()
		state, deleting := e.rec.Sandbox.State, e.delete != nil
		m.mu.Unlock()
		st, exists := known[id]
		switch {
		case (state == Ready || state == Paused) && !st.Running:
			exit := providers.Exit{ID: id, Reason: providers.Lost}
			if exists && st.Exit != nil {
				exit = *st.Exit
			}
			m.startFail(e, exit)
		case state == Ready && m.outOfReach(e):
			m.startFail(e, providers.Exit{ID: id, Reason: providers.ExitReason(Unreachable)})
		case (state == Ready || state == Paused) && st.Paused != (state == Paused):
			m.settleLater(e)
		case state == Stopping && !deleting: // a removal that failed is tried again
			m.startDelete(e, leftReason(e.rec.Sandbox))
		}
	}
}

// outOfReach tells whether a sandbox that runs has had no connection for too long, so that
// its calls would wait for ever: its code may have taken the socket away.
func (m *Manager) outOfReach(e *entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Clock.Now()
	_, foreign := e.handle.(providers.Foreigner)
	switch {
	case foreign || e.link == nil || e.link.Connected():
		e.apart = time.Time{}
	case e.apart.IsZero():
		e.apart = now
	}
	return !e.apart.IsZero() && now.Sub(e.apart) >= m.opts.UnreachableAfter
}

// startFail handles the end of a sandbox in the background.
func (m *Manager) startFail(e *entry, exit providers.Exit) {
	m.mu.Lock()
	first := e.exit == nil
	if first {
		e.exit = &exit
		close(e.ended) // a create under way fails by it
	}
	m.mu.Unlock()
	if !first {
		return
	}
	m.wg.Go(func() {
		e.op.Lock()
		defer e.op.Unlock()
		m.mu.Lock()
		state := e.rec.Sandbox.State
		m.mu.Unlock()
		switch {
		case e.hidden: // nobody has to know of it
			m.leavePool(e)
		case state == Ready || state == Paused:
			m.fail(e, exit)
		}
	})
}

// fail makes a sandbox FAILED: its calls end, its link is closed, its record stays. What
// the provider still has of it stays until Delete.
func (m *Manager) fail(e *entry, exit providers.Exit) {
	ctx, cancel := m.detached()
	defer cancel()
	id, message := e.rec.Sandbox.ID, exitMessage(exit)
	m.mu.Lock()
	e.rec.Sandbox.State, e.rec.Sandbox.Reason, e.rec.Sandbox.Message = Failed, Reason(exit.Reason), message
	m.mu.Unlock()
	if err := m.put(ctx, e); err != nil {
		m.log.Error("sandbox record not written", "sandbox", id, "err", err)
	}
	m.closePort(e)
	m.disconnect(e, exitError{exit})
	m.opts.OnLost(id, string(exit.Reason), message)
	m.set(e, Failed, Reason(exit.Reason), message)
	if Reason(exit.Reason) == Unreachable { // nobody can use what still runs there
		if err := m.engine(e.rec.Sandbox.Provider).Delete(ctx, id); err != nil {
			m.log.Error("unreachable sandbox not ended", "sandbox", id, "err", err)
		}
	}
}

// exitMessage is one sentence for people.
func exitMessage(exit providers.Exit) string {
	switch exit.Reason {
	case providers.Exited:
		return fmt.Sprintf("the sandbox's main process ended with exit code %d", exit.Code)
	case providers.Killed:
		return fmt.Sprintf("the sandbox's main process was killed by signal %d", -exit.Code)
	case providers.OOMKilled:
		return "the sandbox's main process was killed because the memory limit was reached"
	case providers.ExitReason(Unreachable):
		return "the sandbox's runtime did not answer any more and was ended"
	case providers.Lost:
	}
	return "the provider no longer runs the sandbox"
}
