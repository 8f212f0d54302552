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
// (FailedPrecondition, START_FAILED) if the worker cannot start, and with Unavailable
// (RUNTIME_UNAVAILABLE) when ctx ends.
func (l *Link) WaitReady(ctx context.Context) (wire.Health, error) {
	for {
		l.mu.Lock()
		h, connected, changed, lastErr := l.health, l.session != nil, l.changed, l.lastErr
		l.mu.Unlock()
		if connected && h.Ready {
			return h, nil
		}
		if connected && h.Error != "" {
			return h, errs.New(errs.FailedPrecondition, errs.StartFailed, "the worker does not start: %s", h.Error)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			what := "the runtime does not answer"
			if connected {
				what = "the worker does not answer"
			}
			return h, unavailable("%s", what).WithCause(errors.Join(context.Cause(ctx), lastErr))
		}
	}
}

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
