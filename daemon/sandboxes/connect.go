package sandboxes

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/providers"
)

// startPoll is how often a starting runtime is dialled: it listens a few milliseconds after
// its process began, and a create waits for that. One that does not is dialled less often.
const (
	startPoll    = 2 * time.Millisecond
	startPollMax = 100 * time.Millisecond
)

// dialStarting dials until somebody listens.
func dialStarting(ctx context.Context, handle providers.Handle) (net.Conn, error) {
	for began, pause := time.Now(), startPoll; ; {
		if time.Since(began) > time.Second {
			pause = min(2*pause, startPollMax)
		}
		conn, err := handle.Dial(ctx)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// connect starts the link of a sandbox; it ends with unlink. A held one connects once it is
// released.
func (m *Manager) connect(e *entry, handle providers.Handle, starting, held bool) {
	id := e.rec.Sandbox.ID
	var dialled atomic.Bool
	dial := func(ctx context.Context) (net.Conn, error) {
		if starting && !dialled.Swap(true) {
			return dialStarting(ctx, handle)
		}
		return handle.Dial(ctx)
	}
	opts := link.Options{
		Sandbox: id, Dial: dial, Token: m.opts.Store.RuntimeToken(id), Epoch: m.opts.Store.Epoch(),
		Handler: m.opts.Handler(id), Logger: m.log, Clock: m.opts.Clock,
	}
	if foreigner, is := handle.(providers.Foreigner); is {
		f := foreigner.Foreign()
		opts.Foreign, opts.Token = &link.Foreign{Host: f.Host, Authorization: f.Authorization, Tag: m.tag(e)}, ""
	}
	if e.rec.Fronted { // a server of the public protocol, which knows no token
		opts.Foreign, opts.Token = &link.Foreign{Host: "localhost", Tag: m.tag(e)}, ""
	}
	l := link.New(opts)
	if held {
		l.Hold()
	}
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
