package runtime

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/zishang520/socket.io/parsers/engine/v3/packet"
	"github.com/zishang520/socket.io/servers/engine/v3/transports"
	"github.com/zishang520/socket.io/v3/pkg/types"

	"github.com/agentixd/agentixd/runtime/wire"
)

// maxBacklog is how many bytes may wait in a connection before a peer's goroutine waits too:
// the Socket.IO server itself queues without end for a client that does not read.
const maxBacklog = 8 << 20

// meter counts what really left for a client, and tells when it grows.
type meter struct {
	n        atomic.Int64
	progress chan struct{} // capacity 1
}

func newMeter() *meter { return &meter{progress: make(chan struct{}, 1)} }

func (m *meter) add(n int) {
	m.n.Add(int64(n))
	select {
	case m.progress <- struct{}{}:
	default:
	}
}

// meteredListener makes connections that count what is written to them.
type meteredListener struct{ net.Listener }

// Accept waits for the next connection.
func (l meteredListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &meteredConn{Conn: conn, meter: newMeter()}, nil
}

type meteredConn struct {
	net.Conn
	meter *meter
}

// Write counts what the kernel took.
func (c *meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.meter.add(n)
	return n, err
}

type connKey struct{}

// withConn puts the connection of a request into its context.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// metered is a transport whose output is counted.
type metered interface{ output() *meter }

// webSocketBuilder makes WebSocket transports that know their connection.
type webSocketBuilder struct{ transports.WebSocketBuilder }

// New makes the transport of one connection.
func (*webSocketBuilder) New(ctx *types.HttpContext) transports.Transport {
	t := &webSocketTransport{Transport: transports.NewWebSocket(ctx)}
	if conn, ok := ctx.Request().Context().Value(connKey{}).(*meteredConn); ok {
		t.meter = conn.meter
	}
	return t
}

type webSocketTransport struct {
	transports.Transport
	meter *meter
}

func (t *webSocketTransport) output() *meter { return t.meter }

// pollingBuilder makes polling transports that a Python host can read: at most
// wire.MaxPollingPackets packets in one payload. JSONP is not offered.
type pollingBuilder struct{ transports.PollingBuilder }

// New makes the transport of one session.
func (*pollingBuilder) New(ctx *types.HttpContext) transports.Transport {
	t := &pollingTransport{Polling: transports.NewPolling(ctx), meter: newMeter()}
	t.Prototype(t)                                // so that DoClose is ours
	_ = t.On("ready", func(...any) { t.flush() }) // before the server's own listener
	return t
}

type pollingTransport struct {
	transports.Polling
	meter *meter

	mu   sync.Mutex
	rest []*packet.Packet // what did not fit in the last payload
}

func (t *pollingTransport) output() *meter { return t.meter }

// Send hands out one payload and keeps the rest for the next poll.
func (t *pollingTransport) Send(packets []*packet.Packet) {
	t.mu.Lock()
	all := append(t.rest, packets...)
	n := min(len(all), wire.MaxPollingPackets)
	t.rest = all[n:]
	t.mu.Unlock()
	for _, p := range all[:n] {
		if sized, ok := p.Data.(interface{ Len() int }); ok {
			t.meter.add(sized.Len())
		}
	}
	t.Polling.Send(all[:n:n])
}

// DoClose ends the transport. A waiting poll is answered with nothing rather than with the
// library's close packet, which hosts take as final: they would never come back.
func (t *pollingTransport) DoClose(fn types.Callable) {
	if fn != nil {
		fn()
	}
	t.OnClose()
}

// flush answers a poll with what is left, before anything newer.
func (t *pollingTransport) flush() {
	t.mu.Lock()
	waiting := len(t.rest) > 0
	t.mu.Unlock()
	if waiting && t.Writable() {
		t.Send(nil)
	}
}

// take returns what was never polled, for the transport that replaces this one.
func (t *pollingTransport) take() []*packet.Packet {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := t.rest
	t.rest = nil
	return rest
}

// backlog estimates how many bytes of a peer wait in its connection.
type backlog struct {
	transport transports.Transport
	meter     *meter
	emitted   int64
	base      int64
}

// of turns to the transport in use and returns how much waits there. What leaves beside the
// events, as pings and headers, makes it look smaller; that is set right each time nothing waits.
func (b *backlog) of(t transports.Transport) int64 {
	if t != b.transport {
		b.transport, b.meter, b.emitted = t, nil, 0
		if m, ok := t.(metered); ok && m.output() != nil {
			b.meter = m.output()
			b.base = b.meter.n.Load()
		}
	}
	if b.meter == nil {
		return 0
	}
	waits := b.emitted - (b.meter.n.Load() - b.base)
	if waits < 0 {
		b.base += -waits
		waits = 0
	}
	return waits
}
