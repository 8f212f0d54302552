package link

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	steady    time.Duration // a connection that lasted this long resets the pause
}

var defaultTiming = timing{
	handshake: 15 * time.Second,
	watch:     5 * time.Second,
	stall:     10 * time.Second,
	message:   30 * time.Second,
	write:     30 * time.Second,
	backoff:   50 * time.Millisecond,
	backoffTo: 2 * time.Second,
	steady:    time.Second,
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
	messageStart atomic.Int64 // when the message being read began, 0 between messages
	messageBytes atomic.Int64
	nuisance     nuisance
	ignored      *atomic.Uint64

	failOnce  sync.Once
	err       error // set before in is closed
	mu        sync.Mutex
	stopWatch func() bool
	ended     bool
}

// dialSession opens the WebSocket and starts the connection's goroutines; close ends them.
func dialSession(ctx context.Context, l *Link) (*session, error) {
	s := &session{clock: l.opts.Clock, timing: l.timing, in: newInbox(), out: newOutbox(), ignored: &l.ignored}
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
	ws, _, err := websocket.Dial(ctx, "ws://runtime/socket.io/?EIO=4&transport=websocket", &websocket.DialOptions{ //nolint:bodyclose // the body is the WebSocket
		HTTPClient:      client,
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

// watch looks at the connection every timing.watch until close.
func (s *session) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.stopWatch = s.clock.AfterFunc(s.timing.watch, func() {
		if err := s.lifeless(); err != nil {
			s.fail(err)
			return
		}
		s.watch()
	})
}

// lifeless tells why the connection has to be given up, if it has.
func (s *session) lifeless() error {
	if stuck := s.conn.stuckFor(); stuck > s.timing.write {
		return fmt.Errorf("the runtime took no bytes for %s", stuck.Round(time.Millisecond))
	}
	if s.paused.Load() {
		return nil
	}
	silent := s.conn.silentFor()
	if limit := time.Duration(s.idleLimit.Load()); silent > limit {
		return fmt.Errorf("the runtime was silent for %s, longer than its heartbeat allows (%s)", silent.Round(time.Millisecond), limit)
	}
	start := s.messageStart.Load()
	if start == 0 {
		return nil
	}
	if silent > s.timing.stall {
		return violation("no progress within a message for %s", silent.Round(time.Millisecond))
	}
	lasted := s.clock.Now().Sub(time.Unix(0, start))
	if allowed := s.timing.message + time.Duration(s.messageBytes.Load()>>20)*time.Second; lasted > allowed {
		return violation("a message took longer than %s", allowed)
	}
	return nil
}

// charge counts one packet that means nothing to us; too many are a violation.
func (s *session) charge() error {
	s.ignored.Add(1)
	if s.nuisance.take(s.clock.Now()) {
		return nil
	}
	return violation("over %d meaningless packets", nuisanceBurst)
}

// chargeControl charges for a WebSocket control frame. It runs inside a read, so it cannot
// call fail, which waits for reads.
func (s *session) chargeControl() bool {
	err := s.charge()
	if err != nil {
		s.controlErr = err
		_ = s.conn.Close()
	}
	return err == nil
}

// nuisance is a token bucket.
type nuisance struct {
	mu   sync.Mutex
	left float64
	at   time.Time
}

func (n *nuisance) take(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.at.IsZero() {
		n.left = min(nuisanceBurst, n.left+now.Sub(n.at).Seconds()*nuisanceRate)
	}
	n.at = now
	if n.left < 1 {
		return false
	}
	n.left--
	return true
}

// read is the reader goroutine: it pairs frames, answers pings and fills the inbox.
func (s *session) read() {
	defer s.wg.Done()
	for {
		if err := s.readPacket(); err != nil {
			s.fail(cmp.Or(s.controlErr, err))
			return
		}
	}
}

func (s *session) readPacket() error {
	text, err := s.readMessage(websocket.MessageText, maxTextBytes)
	if err != nil {
		return err
	}
	p, err := parseText(text)
	if err != nil {
		return err
	}
	if !s.opened && p.kind != packetOpen {
		return violation("a packet before the open packet")
	}
	switch p.kind {
	case packetOpen:
		return s.acceptOpen(p)
	case packetPing:
		s.out.pushPong()
		return s.charge()
	case packetClose:
		return errors.New("the runtime closed the connection")
	case packetIgnored:
		return s.charge()
	case packetEvent, packetSkip:
		return s.readAttachments(p)
	default:
		return s.deliver(inbound{kind: p.kind, namespace: p.namespace, data: p.data})
	}
}

func (s *session) acceptOpen(p packet) error {
	if s.opened {
		return violation("a second open packet")
	}
	o, err := parseOpen(p.data)
	if err != nil {
		return err
	}
	interval := clampMillis(o.PingInterval, minPingInterval, maxPingInterval)
	timeout := clampMillis(o.PingTimeout, minPingTimeout, maxPingTimeout)
	s.idleLimit.Store(int64(interval + timeout))
	s.pongEvery.Store(int64(interval))
	if o.MaxPayload >= 1 && o.MaxPayload < wire.MaxMessageBytes {
		s.maxPayload.Store(int64(o.MaxPayload))
	}
	s.opened = true
	return s.deliver(inbound{kind: packetOpen})
}

func clampMillis(ms float64, least, most time.Duration) time.Duration {
	return time.Duration(min(max(ms, float64(least.Milliseconds())), float64(most.Milliseconds()))) * time.Millisecond
}

// readAttachments reads the binary frames of p. Engine packets may come in between, another
// message may not.
func (s *session) readAttachments(p packet) error {
	limit := attachmentLimit(p.namespace, p.event)
	if p.kind == packetSkip || limit == 0 {
		for range p.attachments {
			if err := s.readBinary(wire.MaxMessageBytes, nil); err != nil {
				return err
			}
		}
		return s.charge()
	}
	var data []byte
	if err := s.readBinary(limit, &data); err != nil {
		return err
	}
	return s.deliver(inbound{kind: packetEvent, namespace: p.namespace, event: p.event, data: data})
}

// readBinary reads the next binary frame into data, or drops it if data is nil.
func (s *session) readBinary(limit int, data *[]byte) error {
	s.messageStart.Store(s.clock.Now().UnixNano())
	defer s.messageStart.Store(0)
	for {
		kind, r, err := s.ws.Reader(context.Background())
		if err != nil {
			return readError(err)
		}
		if kind == websocket.MessageText {
			b, err := s.readAll(r, 2)
			if err != nil || len(b) != 1 || (b[0] != '2' && b[0] != '6') {
				return violation("a text frame where an attachment is due")
			}
			if b[0] == '2' {
				s.out.pushPong()
			}
			if err := s.charge(); err != nil {
				return err
			}
			continue
		}
		if data == nil {
			return s.discard(r, limit)
		}
		*data, err = s.readAll(r, limit)
		return err
	}
}

// readMessage reads the next message, which must be of this kind and at most limit bytes.
func (s *session) readMessage(want websocket.MessageType, limit int) ([]byte, error) {
	kind, r, err := s.ws.Reader(context.Background())
	if err != nil {
		return nil, readError(err)
	}
	if kind != want {
		return nil, violation("a binary frame that no event announced")
	}
	s.messageStart.Store(s.clock.Now().UnixNano())
	defer s.messageStart.Store(0)
	return s.readAll(r, limit)
}

// readAll reads r to its end. Memory grows with what came, never with what was claimed.
func (s *session) readAll(r io.Reader, limit int) ([]byte, error) {
	s.messageBytes.Store(0)
	buf := make([]byte, 0, min(512, limit+1))
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(max(2*cap(buf), 4096), limit+1))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		s.messageBytes.Store(int64(len(buf)))
		if len(buf) > limit {
			return nil, violation("a message over its limit of %d bytes", limit)
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, readError(err)
		}
	}
}

func (s *session) discard(r io.Reader, limit int) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return readError(err)
	}
	if n > int64(limit) {
		return violation("a message over its limit of %d bytes", limit)
	}
	return nil
}

func readError(err error) error { return fmt.Errorf("read from the runtime: %w", err) }

// deliver queues i for the handler goroutine. When that is behind, it waits, and keeps the
// peer's heartbeat content meanwhile.
func (s *session) deliver(i inbound) error {
	if s.in.tryPut(i) {
		return nil
	}
	s.paused.Store(true)
	stop := s.keepAlive()
	s.in.put(i)
	stop()
	s.conn.lastRead.Store(s.clock.Now().UnixNano())
	s.paused.Store(false)
	return nil
}

// keepAlive sends unasked pongs until stop is called: the reader does not see pings now.
func (s *session) keepAlive() (stop func()) {
	var mu sync.Mutex
	var cancel func() bool
	stopped := false
	var arm func()
	arm = func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		cancel = s.clock.AfterFunc(time.Duration(s.pongEvery.Load()), func() {
			s.out.pushPong()
			arm()
		})
	}
	arm()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		cancel()
	}
}

// write is the writer goroutine: it writes what is queued, many events at a time.
func (s *session) write() {
	defer s.wg.Done()
	for {
		w, ok := s.out.take()
		if !ok {
			return
		}
		if err := s.writeWork(w); err != nil {
			s.fail(fmt.Errorf("write to the runtime: %w", err))
			return
		}
	}
}

var pongFrame = []byte("3")

func (s *session) writeWork(w work) error {
	s.conn.cork()
	if w.pong {
		if err := s.ws.Write(context.Background(), websocket.MessageText, pongFrame); err != nil {
			return err
		}
	}
	for n, o := range w.items {
		if n > 0 && s.out.takePong() {
			if err := s.ws.Write(context.Background(), websocket.MessageText, pongFrame); err != nil {
				return err
			}
		}
		if err := s.writeEvent(o); err != nil {
			return err
		}
		s.out.written(o.size())
	}
	if w.ackSid != "" {
		payload, err := wire.Marshal(wire.StreamAck{Sid: w.ackSid, Seq: w.ackSeq})
		if err != nil {
			return err
		}
		if err := s.writeEvent(outbound{text: headerStreamAck, binary: payload}); err != nil {
			return err
		}
	}
	return s.conn.uncork()
}

func (s *session) writeEvent(o outbound) error {
	if err := s.ws.Write(context.Background(), websocket.MessageText, o.text); err != nil {
		return err
	}
	if o.binary == nil {
		return nil
	}
	return s.ws.Write(context.Background(), websocket.MessageBinary, o.binary)
}

// connectPacket is the CONNECT of one namespace.
func connectPacket(namespace string, auth wire.Auth) (outbound, error) {
	payload, err := json.Marshal(auth)
	if err != nil {
		return outbound{}, fmt.Errorf("encode CONNECT: %w", err)
	}
	return outbound{text: append([]byte("40"+namespace+","), payload...)}, nil
}
