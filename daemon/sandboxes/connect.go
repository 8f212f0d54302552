package sandboxes

import (
	"context"
	"time"

	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/providers"
)

// connect starts the link of a sandbox; it ends with unlink.
func (m *Manager) connect(e *entry, handle providers.Handle) {
	id := e.rec.Sandbox.ID
	l := link.New(link.Options{
		Sandbox: id, Dial: handle.Dial, Token: m.opts.Store.RuntimeToken(id), Epoch: m.opts.Store.Epoch(),
		Handler: m.opts.Handler(id), Logger: m.log, Clock: m.opts.Clock,
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithCancelCause(m.base)
	over := make(chan struct{})
	e.handle, e.link, e.unlink, e.linkOver = handle, l, cancel, over
	m.wg.Go(func() { // ends with ctx
		defer close(over)
		if err := l.Run(ctx); err != nil {
			m.log.Error("link ended", "sandbox", id, "err", err)
		}
	})
}

// disconnect ends the link of a sandbox whose processes have ended or are to be given up:
// what they sent last is read first.
func (m *Manager) disconnect(e *entry, why error) {
	m.mu.Lock()
	l, unlink, over := e.link, e.unlink, e.linkOver
	e.link = nil
	m.mu.Unlock()
	if l == nil {
		return
	}
	deadline := time.NewTimer(drainTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for l.Connected() {
		select {
		case <-tick.C:
			continue
		case <-deadline.C:
		}
		break
	}
	unlink(why)
	<-over
}
