package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/agentixd/agentixd/daemon/relay"
)

var errWatchOver = errors.New("the watch is over")

// secret is what clients of an exposed runtime have to present. It is the same as long as
// the sandbox lives, and that of no other sandbox, earlier ones of the same id included.
func (m *Manager) secret(e *entry) Secret {
	return Secret(m.opts.Store.RuntimeToken(e.rec.Sandbox.ID + "/neighbour/" + e.rec.Nonce))
}

// tag tells this sandbox's calls from those of others on the same runtime.
func (m *Manager) tag(e *entry) string {
	const digits = 12
	return m.opts.Store.RuntimeToken(e.rec.Sandbox.ID + "/tag/" + e.rec.Nonce)[:digits]
}

// expose opens the port of a sandbox whose runtime is to be reachable: the one that it had,
// if it had one and that is free.
func (m *Manager) expose(ctx context.Context, e *entry) error {
	m.mu.Lock()
	wanted, port, handle, base := e.rec.Sandbox.Expose, e.rec.Port, e.handle, m.base
	m.mu.Unlock()
	if !wanted {
		return nil
	}
	opts := relay.Options{Port: port, Secret: string(m.secret(e)), Dial: handle.Dial, Logger: m.log.With("sandbox", handle.ID())}
	r, err := relay.Listen(ctx, opts)
	if err != nil && port != 0 {
		m.log.Warn("port of exposed runtime is taken; it gets another", "sandbox", handle.ID(), "err", err)
		opts.Port = 0
		r, err = relay.Listen(ctx, opts)
	}
	if err != nil {
		return fmt.Errorf("expose runtime: %w", err)
	}
	ctx, cancel := context.WithCancelCause(base)
	over := make(chan struct{})
	m.mu.Lock()
	e.rec.Port = r.Port()
	e.unexpose = func() { cancel(errors.New("the sandbox is over")); <-over }
	m.mu.Unlock()
	m.wg.Go(func() { // ends with ctx
		defer close(over)
		r.Run(ctx)
	})
	if port != 0 && port != r.Port() {
		return m.put(ctx, e)
	}
	return nil
}

// closePort ends what expose began.
func (m *Manager) closePort(e *entry) {
	m.mu.Lock()
	unexpose := e.unexpose
	e.unexpose = nil
	m.mu.Unlock()
	if unexpose != nil {
		unexpose()
	}
}

// shown is the sandbox as clients may see it; m.mu is held. Its secret is for those whom the
// API tells it.
func (m *Manager) shown(e *entry) Sandbox {
	s := e.rec.Sandbox.clone()
	if s.Runtime != nil && e.unexpose != nil {
		s.Runtime.URL = fmt.Sprintf("http://127.0.0.1:%d", e.rec.Port)
		s.Runtime.Secret = m.secret(e)
	}
	return s
}

// withoutUser is a URL without its user info.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}
