// Package link is the daemon's end of one connection to the runtime of one sandbox: a
// Socket.IO client that keeps several namespaces on one WebSocket and reconnects. The
// runtime is hostile: every byte from it is bounded and checked here, a violation costs it
// the connection and nothing else, and nothing it sends can stall or crash the daemon.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Options say which runtime a Link talks to, and how.
type Options struct {
	Sandbox string                                  // for logs and error texts
	Dial    func(context.Context) (net.Conn, error) // opens one connection to the runtime
	Token   string                                  // the runtime's token; empty = none
	Epoch   int64                                   // grows with every start of the daemon
	Handler Handler
	Logger  *slog.Logger // default: discard
	Clock   clock.Clock  // default: the system's
}

// Handler is told what a runtime sends. All calls for one Link come from one goroutine, in
// the order of the wire; while one blocks, heartbeats are answered and further input waits.
type Handler interface {
	// Connected is called after every connect, before anything else of that connection; what it
	// returns is sent before any call.
	Connected(h wire.Health) Resume
	// Records is called for each batch. AckRecords later frees it in the runtime.
	Records(b wire.Batch)
	// Result and CallError are outcomes of calls; the id may be one that is not ours.
	Result(r wire.Result)
	CallError(e wire.CallError)
	// Disconnected is the last call of a connection.
	Disconnected(err error)
}

// Binder is a Handler that wants to know its Link: New calls Bind once.
type Binder interface{ Bind(l *Link) }

// Resume says where to go on after a reconnect: with the record stream Sid after SinceSeq,
// with the calls whose outcome is still awaited, and with those to cancel then.
type Resume struct {
	Sid      string
	SinceSeq uint64
	CallIDs  []string
	Cancel   []string
}

// Link is the connection to one runtime. Its methods may be called from any goroutine.
type Link struct {
	opts    Options
	timing  timing
	ignored atomic.Uint64

	mu      sync.Mutex
	session *session // nil while disconnected
	number  uint64   // of the session
	health  wire.Health
	lastErr error
	changed chan struct{} // closed at each change of the above
}

// New returns a Link that connects once Run is called.
func New(opts Options) *Link {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	opts.Logger = opts.Logger.With("sandbox", opts.Sandbox)
	l := &Link{opts: opts, timing: defaultTiming, changed: make(chan struct{})}
	if b, ok := opts.Handler.(Binder); ok {
		b.Bind(l)
	}
	return l
}

// Run keeps the runtime connected until ctx ends; it then returns nil, with all that it
// started ended. It must be called once.
func (l *Link) Run(ctx context.Context) error {
	pause := l.timing.backoff
	for {
		began := l.opts.Clock.Now()
		if err := l.connectOnce(ctx); ctx.Err() == nil {
			l.noteFailure(err)
		}
		if l.opts.Clock.Now().Sub(began) >= l.timing.steady {
			pause = l.timing.backoff
		}
		if !l.wait(ctx, pause/2+rand.N(pause/2+1)) { //nolint:gosec // jitter needs no secrecy
			return nil
		}
		pause = min(2*pause, l.timing.backoffTo)
	}
}

func (l *Link) noteFailure(err error) {
	l.mu.Lock()
	repeated := l.lastErr != nil && l.lastErr.Error() == err.Error()
	l.lastErr = err
	l.mu.Unlock()
	level := slog.LevelInfo
	switch {
	case repeated:
		level = slog.LevelDebug
	case errors.Is(err, errProtocol):
		level = slog.LevelWarn
	}
	l.opts.Logger.Log(context.Background(), level, "runtime connection ended", "err", err)
}

// wait waits for d; false means that ctx ended.
func (l *Link) wait(ctx context.Context, d time.Duration) bool {
	due := make(chan struct{})
	stop := l.opts.Clock.AfterFunc(d, func() { close(due) })
	defer stop()
	select {
	case <-due:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// connectOnce connects and serves one connection until it ends.
func (l *Link) connectOnce(ctx context.Context) error {
	dialCtx, cancel := context.WithTimeoutCause(ctx, l.timing.handshake, errors.New("the runtime did not answer in time"))
	s, err := dialSession(dialCtx, l)
	cancel()
	if err != nil {
		return fmt.Errorf("connect to runtime: %w", err)
	}
	stopCtx := context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx)) })
	defer stopCtx()
	stopLate := l.opts.Clock.AfterFunc(l.timing.handshake, func() {
		s.fail(errors.New("the runtime did not finish the handshake in time"))
	})
	defer stopLate()
	h, err := l.handshake(s)
	if err == nil && !stopLate() {
		err = errors.New("the runtime did not finish the handshake in time")
	}
	if err != nil {
		s.close(err)
		return fmt.Errorf("connect to runtime: %w", s.err)
	}
	return l.serve(s, h)
}

// handshake joins both namespaces and waits until the runtime is ready on each.
func (l *Link) handshake(s *session) (wire.Health, error) {
	h := wire.Health{Status: "ok", Runtime: "agentix-runtime", Protocol: 1}
	joined := map[string]bool{}
	ready := map[string]bool{}
	auth := wire.Auth{
		Token: l.opts.Token, Role: wire.RoleDaemon, Epoch: l.opts.Epoch,
		Capabilities: []string{wire.CapFence, wire.CapEncoding, wire.CapDeadline, wire.CapOwnedResults, wire.CapSidAck, wire.CapBaggage},
	}
	for len(ready) < 2 {
		i, ok := s.in.get()
		if !ok {
			return h, s.err
		}
		switch i.kind {
		case packetOpen:
			for _, namespace := range []string{wire.NamespaceRPC, wire.NamespaceLog} {
				p, err := connectPacket(namespace, auth)
				if err != nil {
					return h, err
				}
				s.out.pushControl(p)
			}
		case packetConnect:
			if joined[i.namespace] || (i.namespace != wire.NamespaceRPC && i.namespace != wire.NamespaceLog) {
				return h, violation("CONNECT of namespace %s that was not asked for", quote(i.namespace))
			}
			joined[i.namespace] = true
		case packetConnectError:
			return h, fmt.Errorf("the runtime refused namespace %s: %s", quote(i.namespace), connectErrorText(i.data))
		case packetDisconnect:
			return h, fmt.Errorf("the runtime disconnected namespace %s", quote(i.namespace))
		default:
			if !joined[i.namespace] {
				return h, violation("an event on namespace %s before its CONNECT", quote(i.namespace))
			}
			if i.event == wire.EventRecords {
				return h, violation("records before they were asked for")
			}
			if i.event != wire.EventReady {
				continue // an outcome of a call of an older session
			}
			r, err := decodeReady(i.data)
			if err != nil {
				return h, err
			}
			ready[i.namespace] = true
			if i.namespace == wire.NamespaceRPC {
				h.Ready, h.Error, h.Python = r.WorkerOK, r.Error, r.Python
			}
		}
	}
	return h, nil
}

// serve hands the connection's events to the Handler until it ends.
func (l *Link) serve(s *session, h wire.Health) error {
	handler := l.opts.Handler
	err := l.resume(s, handler.Connected(h))
	if err != nil {
		s.fail(err)
	} else {
		l.publish(s, h)
		l.opts.Logger.Debug("runtime connected")
	}
	for {
		i, ok := s.in.get()
		if !ok {
			break
		}
		if err := l.handle(s, i); err != nil {
			s.fail(err)
			break
		}
	}
	s.close(errors.New("the connection ended"))
	l.publish(nil, wire.Health{})
	handler.Disconnected(s.err)
	return s.err
}

// resume queues what has to go first on a connection.
func (l *Link) resume(s *session, r Resume) error {
	payload, err := wire.Marshal(wire.StreamResume{Sid: r.Sid, SinceSeq: r.SinceSeq})
	if err != nil {
		return fmt.Errorf("encode resume: %w", err)
	}
	s.out.pushControl(outbound{text: headerStreamResume, binary: payload})
	for ids := r.CallIDs; len(ids) > 0; {
		n := min(len(ids), wire.MaxCallIDs)
		payload, err := wire.Marshal(wire.Resume{CallIDs: ids[:n], Fence: true, Epoch: l.opts.Epoch})
		if err != nil {
			return fmt.Errorf("encode resume: %w", err)
		}
		if !s.out.push(context.Background(), outbound{text: headerResume, binary: payload}) {
			return errors.New("the connection ended before calls were resumed")
		}
		ids = ids[n:]
	}
	for _, id := range r.Cancel {
		s.sendRef(headerCancel, id)
	}
	return nil
}

// handle takes one packet of an established connection.
func (l *Link) handle(s *session, i inbound) error {
	switch i.kind {
	case packetEvent:
	case packetDisconnect, packetConnectError:
		return fmt.Errorf("the runtime disconnected namespace %s", quote(i.namespace))
	default:
		return violation("CONNECT of namespace %s that was not asked for", quote(i.namespace))
	}
	switch i.event {
	case wire.EventRecords:
		b, err := decodeBatch(i.data)
		if err != nil {
			return err
		}
		l.opts.Handler.Records(b)
	case wire.EventCallResult:
		r, err := decodeResult(i.data)
		if err != nil {
			return err
		}
		if !ValidCallID(r.CallID) {
			return s.charge()
		}
		l.opts.Handler.Result(r)
	case wire.EventCallError:
		e, err := decodeCallError(i.data)
		if err != nil {
			return err
		}
		if !ValidCallID(e.CallID) {
			return s.charge()
		}
		l.opts.Handler.CallError(e)
	case wire.EventReady:
		r, err := decodeReady(i.data)
		if err != nil {
			return err
		}
		if i.namespace == wire.NamespaceRPC {
			l.updateHealth(s, r)
		}
		return s.charge()
	}
	return nil
}
