package link

import (
	"context"
	"errors"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// publish makes s the session that calls use; nil = none.
func (l *Link) publish(s *session, p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.health = s, p.Health
	if s != nil {
		s.held.Store(l.held != nil)
		l.peer = p
		l.number++
		l.lastErr = nil
	}
	l.notify()
}

func (l *Link) updateHealth(s *session, r wire.Ready) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == s {
		l.health.Ready, l.health.Error, l.health.Python = r.WorkerOK, r.Error, r.Python
		l.notify()
	}
}

// notify wakes WaitReady; l.mu is held.
func (l *Link) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Connected reports whether calls can be sent just now.
func (l *Link) Connected() bool { return l.Session() != 0 }

// Session is the number of the current connection, 0 while there is none. No two
// connections of a Link have the same.
func (l *Link) Session() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		return 0
	}
	return l.number
}

// PeerIn is the runtime at the other end of the connection with this number, which is or was
// the newest one.
func (l *Link) PeerIn(session uint64) (Peer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peer, session == l.number && session != 0
}

// Ignored is how many packets without a meaning for us the runtime has sent.
func (l *Link) Ignored() uint64 { return l.ignored.Load() }

// WaitReady waits until the runtime is connected and its worker has answered. It fails early
// (FailedPrecondition, START_FAILED) if the worker cannot start or what answers is no runtime, and
// with Unavailable (RUNTIME_UNAVAILABLE) when ctx ends.
func (l *Link) WaitReady(ctx context.Context) (wire.Health, error) {
	return l.waitFor(ctx, func(h wire.Health) (bool, error) {
		if !h.Ready && h.Error != "" {
			return false, errs.New(errs.FailedPrecondition, errs.StartFailed, "the worker does not start: %s", h.Error)
		}
		return h.Ready, nil
	})
}

// WaitConnected is WaitReady that does not wait for a worker.
func (l *Link) WaitConnected(ctx context.Context) error {
	_, err := l.waitFor(ctx, func(wire.Health) (bool, error) { return true, nil })
	return err
}

// waitFor waits until the runtime is connected and done says so.
func (l *Link) waitFor(ctx context.Context, done func(wire.Health) (bool, error)) (wire.Health, error) {
	for {
		l.mu.Lock()
		h, connected, changed, lastErr := l.health, l.session != nil, l.changed, l.lastErr
		l.mu.Unlock()
		if connected {
			if ready, err := done(h); ready || err != nil {
				return h, err
			}
		}
		if errors.Is(lastErr, errNoRuntime) {
			return h, errs.New(errs.FailedPrecondition, errs.StartFailed, "%s", cut(lastErr.Error(), maxErrorText))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			what := "the runtime does not answer"
			if connected {
				what = "the worker does not answer"
			} else if l.opts.Foreign != nil && lastErr != nil { // how to get there is the caller's business
				what += ": " + cut(lastErr.Error(), maxErrorText)
			}
			return h, unavailable("%s", what).WithCause(errors.Join(context.Cause(ctx), lastErr))
		}
	}
}

// maxErrorText is how much of an error about a foreign runtime a client is told.
const maxErrorText = 500

// WaitSession waits for a connection with another number than ended, and returns its number;
// it fails only when ctx ends.
func (l *Link) WaitSession(ctx context.Context, ended uint64) (uint64, error) {
	for {
		l.mu.Lock()
		number, connected, changed := l.number, l.session != nil, l.changed
		l.mu.Unlock()
		if connected && number != ended {
			return number, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func unavailable(format string, args ...any) *errs.Error {
	return errs.New(errs.Unavailable, errs.RuntimeUnavailable, format, args...).WithRetry(time.Second)
}
