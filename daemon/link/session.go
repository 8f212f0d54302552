package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/runtime/wire"
)

// timing holds the periods of a connection; tests shorten them.
type timing struct {
	handshake time.Duration // dial to both ready events
	watch     time.Duration // how often the watchdog looks
	stall     time.Duration // longest pause within one message
	message   time.Duration // longest time for one message, plus a second per MiB received
	write     time.Duration // longest time for one write
	backoff   time.Duration // first pause before a reconnect
	backoffTo time.Duration // longest pause
	backoffUp time.Duration // longest pause after a connection that was established
	steady    time.Duration // a connection that lasted this long resets the pause
	resume    time.Duration // to a neighbour: how long events of the connection before may be on their way
	hold      time.Duration // from a neighbour: how long a record waits for those before it
}

var defaultTiming = timing{
	handshake: 15 * time.Second,
	watch:     5 * time.Second,
	stall:     10 * time.Second,
	message:   30 * time.Second,
	write:     30 * time.Second,
	backoff:   50 * time.Millisecond,
	backoffTo: 2 * time.Second,
	backoffUp: 250 * time.Millisecond,
	steady:    time.Second,
	resume:    500 * time.Millisecond,
	hold:      time.Second,
}

// What a peer may say about its heartbeat is brought into these bounds.
const (
	minPingInterval = time.Second
	maxPingInterval = time.Minute
	minPingTimeout  = time.Second
	maxPingTimeout  = 5 * time.Minute
)

// A peer may send nuisanceBurst packets that mean nothing to us, and nuisanceRate more per second.
const (
	nuisanceBurst = 10000
	nuisanceRate  = 100
)

// session is one connection. Its reader and writer are goroutines; what they do not handle
// themselves goes through inbox to the goroutine of Link.Run.
type session struct {
	clock  clock.Clock
	timing timing
	ws     *websocket.Conn
	conn   *meteredConn
	in     *inbox
	out    *outbox
	wg     sync.WaitGroup // reader and writer

	opened       bool  // the open packet came; reader only
	controlErr   error // what chargeControl found; reader only
	idleLimit    atomic.Int64
	pongEvery    atomic.Int64
	maxPayload   atomic.Int64
	paused       atomic.Bool  // the reader waits for the handler
	held         atomic.Bool  // the runtime is frozen
	messageStart atomic.Int64 // when the message being read began, 0 between messages
	messageBytes atomic.Int64
	nuisance     nuisance
	ignored      *atomic.Uint64
	neighbour    *neighbour // what a neighbour's runtime needs; nil for ours

	failOnce  sync.Once
	err       error // set before in is closed
	mu        sync.Mutex
	stopWatch func() bool
	ended     bool
}

// dialSession opens the WebSocket and starts the connection's goroutines; close ends them.
func dialSession(ctx context.Context, l *Link, p Peer) (*session, error) {
	s := &session{clock: l.opts.Clock, timing: l.timing, in: newInbox(), out: newOutbox(), ignored: &l.ignored}
	if p.Neighbour {
		s.neighbour = newNeighbour(l)
	}
	s.nuisance.left = nuisanceBurst
	s.idleLimit.Store(int64(l.timing.handshake))
	s.maxPayload.Store(wire.MaxMessageBytes)
	client := httpClient(func(ctx context.Context) (net.Conn, error) {
		c, err := l.opts.Dial(ctx)
		if err != nil {
			return nil, err
		}
		s.conn = newMeteredConn(c, s.clock.Now)
		return s.conn, nil
	})
	ws, _, err := websocket.Dial(ctx, "ws://"+l.opts.Foreign.host()+"/socket.io/?EIO=4&transport=websocket", &websocket.DialOptions{ //nolint:bodyclose // the body is the WebSocket
		HTTPClient:      client,
		HTTPHeader:      l.opts.Foreign.header(),
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  func(context.Context, []byte) bool { return s.chargeControl() },
		OnPongReceived:  func(context.Context, []byte) { s.chargeControl() },
	})
	if err != nil {
		client.CloseIdleConnections()
		return nil, fmt.Errorf("open websocket: %w", err)
	}
	ws.SetReadLimit(-1) // read bounds each message by what it is
	s.ws = ws
	s.watch()
	s.wg.Add(2)
	go s.read()  // ends when fail closes the connection
	go s.write() // ends when fail closes the connection
	return s, nil
}

// httpClient speaks HTTP over the connections of dial: no proxy, no redirect, small headers.
func httpClient(dial func(context.Context) (net.Conn, error)) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			Proxy:                  nil,
			DisableCompression:     true,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 65536,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}
}

var errRedirect = errors.New("the runtime answered with a redirect, which is never followed")

// fail ends the connection; the first error is the one that counts.
func (s *session) fail(err error) {
	s.failOnce.Do(func() {
		s.err = err
		s.in.close()
		s.out.close()
		_ = s.conn.Close() // first, since ws waits for reads and writes in progress
		_ = s.ws.CloseNow()
	})
}

// close ends the connection and waits for its goroutines.
func (s *session) close(err error) {
	s.fail(err)
	s.mu.Lock()
	s.ended = true
	s.stopWatch()
	s.mu.Unlock()
	s.wg.Wait()
}
