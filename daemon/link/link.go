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
	Foreign *Foreign                                // for a runtime that someone else runs; nil = it is ours
	Handler Handler
	Logger  *slog.Logger // default: discard
	Clock   clock.Clock  // default: the system's
}

// Handler is told what a runtime sends. All calls for one Link come from one goroutine, in
// the order of the wire; while one blocks, heartbeats are answered and further input waits.
type Handler interface {
	// Connected is called after every connect, before anything else of that connection; what it
	// returns is sent before any call.
	Connected(p Peer) Resume
	// Records is called for each batch. AckRecords later frees it in the runtime.
	Records(b wire.Batch)
	// Result and CallError are outcomes of calls; the id may be one that is not ours.
	Result(r wire.Result)
	CallError(e wire.CallError)
	// Stopped tells that a call which was cancelled, or whose time ran out, has no code running
	// any more; the id may be one that is not ours.
	Stopped(callID string)
	// Disconnected is the last call of a connection. Of the calls that were queued on it, those
	// named surely did not leave.
	Disconnected(unsent []string, err error)
}

// Peer is the runtime at the other end of a connection.
type Peer struct {
	Health wire.Health
	// Neighbour tells that it speaks the public protocol only: no fence, one encoding, streams
	// of its own.
	Neighbour bool
	// Life names the life of one of our runtimes: it remembers the id of every call that it
	// got in that life. Empty for a neighbour.
	Life string
	// StillRunning are stopped calls whose code runs at the time of the connect.
	StillRunning []string
}

// Binder is a Handler that wants to know its Link: New calls Bind once.
type Binder interface{ Bind(l *Link) }

// Resume says where to go on after a reconnect.
type Resume struct {
	// Streams is how far each stream of records was taken, by name: "" for ours, the
	// namespace for a neighbour's.
	Streams map[string]Position
	CallIDs []string // calls whose outcome is still awaited
	// Again are those of them that would be sent again if the runtime never got them, which it
	// then tells as wire.ErrNotReceived. Only for one of ours in the life they were sent to.
	Again  []string
	Cancel []string // calls to cancel then
}

// Position is how far one stream was taken: up to record Seq of sender Sid.
type Position struct {
	Sid string
	Seq uint64
}

// Link is the connection to one runtime. Its methods may be called from any goroutine.
type Link struct {
	opts    Options
	timing  timing
	ignored atomic.Uint64
	probed  bool // a neighbour's worker has answered; of Run alone, as the next two
	python  string
	refused bool // a foreign runtime of ours does not admit us as its daemon

	mu      sync.Mutex
	session *session // nil while disconnected
	number  uint64   // of the session
	peer    Peer     // of the newest session
	health  wire.Health
	lastErr error
	held    chan struct{} // closed by Release; nil while the runtime is not held
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
		if !l.waitReleased(ctx) {
			return nil
		}
		began, sessions := l.opts.Clock.Now(), l.sessions()
		if err := l.connectOnce(ctx); ctx.Err() == nil {
			l.noteFailure(err)
		}
		if l.sessions() > sessions { // it was up, so what cut it may well be over
			pause = min(pause, l.timing.backoffUp)
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

// sessions is how many connections were established so far.
func (l *Link) sessions() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number
}

func (l *Link) noteFailure(err error) {
	l.mu.Lock()
	repeated := l.lastErr != nil && l.lastErr.Error() == err.Error()
	l.lastErr = err
	l.notify()
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
	p, err := l.whoIsThere(dialCtx)
	var s *session
	if err == nil {
		s, err = dialSession(dialCtx, l, p)
	}
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
	if p.Neighbour {
		err = s.neighbour.join(s)
	} else {
		p, err = l.handshake(s, p)
	}
	if err == nil && !stopLate() {
		err = errors.New("the runtime did not finish the handshake in time")
	}
	if err != nil {
		s.close(err)
		l.refused = errors.Is(s.err, errRefused) && !p.Neighbour
		if errors.Is(s.err, errRefused) && p.Neighbour {
			return fmt.Errorf("connect to runtime: %w: %w", errNoRuntime, s.err)
		}
		return fmt.Errorf("connect to runtime: %w", s.err)
	}
	return l.serve(s, p)
}

// serve hands the connection's events to the Handler until it ends.
func (l *Link) serve(s *session, p Peer) error {
	handler, handle := l.opts.Handler, l.handle
	r := handler.Connected(p)
	var err error
	if n := s.neighbour; n != nil {
		handle = n.handle
		p.Health.Ready, p.Health.Python = l.probed, l.python
		err = n.begin(s, r)
	} else {
		err = l.resume(s, r)
	}
	if err != nil {
		s.fail(err)
	} else {
		l.publish(s, p)
		l.opts.Logger.Debug("runtime connected", "neighbour", p.Neighbour)
	}
	for {
		i, ok := s.in.get()
		if !ok {
			break
		}
		if err := handle(s, i); err != nil {
			s.fail(err)
			break
		}
	}
	s.close(errors.New("the connection ended"))
	if s.neighbour != nil {
		s.neighbour.end()
	}
	l.publish(nil, Peer{})
	handler.Disconnected(s.out.unsent(), s.err)
	return s.err
}

// resume queues what has to go first on a connection to one of our runtimes.
func (l *Link) resume(s *session, r Resume) error {
	at := r.Streams[""]
	payload, err := wire.Marshal(wire.StreamResume{Sid: at.Sid, SinceSeq: at.Seq})
	if err != nil {
		return fmt.Errorf("encode resume: %w", err)
	}
	s.out.pushControl(outbound{text: headerStreamResume, binary: payload})
	fence := wire.Resume{Fence: true, Epoch: l.opts.Epoch}
	if err := s.resumeCalls(fence, r.CallIDs); err != nil {
		return err
	}
	fence.Again = true
	if err := s.resumeCalls(fence, r.Again); err != nil {
		return err
	}
	for _, id := range r.Cancel {
		s.sendRef(headerCancel, id)
	}
	return nil
}

// resumeCalls asks for the outcomes of ids, in as many events as it takes.
func (s *session) resumeCalls(r wire.Resume, ids []string) error {
	for len(ids) > 0 {
		n := min(len(ids), wire.MaxCallIDs)
		r.CallIDs = ids[:n]
		payload, err := wire.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode resume: %w", err)
		}
		if !s.out.push(context.Background(), outbound{text: headerResume, binary: payload}) {
			return errors.New("the connection ended before calls were resumed")
		}
		ids = ids[n:]
	}
	return nil
}

// handle takes one packet of an established connection to one of our runtimes.
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
	case wire.EventCallStopped:
		id, err := decodeStopped(i.data)
		if err != nil {
			return err
		}
		if !ValidCallID(id) {
			return s.charge()
		}
		l.opts.Handler.Stopped(id)
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
