package link

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// listener is a scripted runtime: each test says byte by byte what a connection does.
type listener struct {
	t    *testing.T
	ln   net.Listener
	path string
}

func newListener(t *testing.T) *listener {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return &listener{t: t, ln: ln, path: path}
}

func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", l.path)
}

// peer is the runtime's end of one connection. Its methods panic with io errors; script
// ends quietly on them, as the link may hang up at any time.
type peer struct {
	conn net.Conn
	br   *bufio.Reader
}

// serve runs script for each connection until the listener is closed, and waits for all.
func (l *listener) serve(script func(n int, p *peer)) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := l.ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				defer func() {
					if r := recover(); r != nil {
						if _, ok := r.(hangup); !ok {
							panic(r)
						}
					}
				}()
				script(n, &peer{conn: conn, br: bufio.NewReader(conn)})
			})
		}
	})
	l.t.Cleanup(func() { _ = l.ln.Close(); wg.Wait() })
}

type hangup struct{ err error }

func check(err error) {
	if err != nil {
		panic(hangup{err})
	}
}

func (p *peer) write(b []byte) {
	_, err := p.conn.Write(b)
	check(err)
}

// request reads the HTTP request of the connection.
func (p *peer) request() *http.Request {
	req, err := http.ReadRequest(p.br)
	check(err)
	return req
}

func (p *peer) upgrade() { p.accept(p.request()) }

func (p *peer) accept(req *http.Request) {
	sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	p.write(fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:])))
}

// head is a frame's header without mask: fin, opcode, claimed length.
func head(fin bool, opcode byte, n uint64) []byte {
	b := []byte{opcode}
	if fin {
		b[0] |= 0x80
	}
	switch {
	case n < 126:
		return append(b, byte(n))
	case n < 65536:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 127), n)
}

func (p *peer) frame(opcode byte, data []byte) {
	p.write(append(head(true, opcode, uint64(len(data))), data...))
}

func (p *peer) text(s string)   { p.frame(1, []byte(s)) }
func (p *peer) binary(b []byte) { p.frame(2, b) }
func (p *peer) event(namespace, event string, v any) {
	b, err := wire.Marshal(v)
	check(err)
	p.frame(1, eventHeader(namespace, event))
	p.binary(b)
}

// read reads one frame of the link.
func (p *peer) read() (opcode byte, data []byte) {
	var h [2]byte
	_, err := io.ReadFull(p.br, h[:])
	check(err)
	n := uint64(h[1] & 0x7f)
	switch n {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(p.br, b[:])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(p.br, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	check(err)
	var mask [4]byte
	_, err = io.ReadFull(p.br, mask[:])
	check(err)
	data = make([]byte, n)
	_, err = io.ReadFull(p.br, data)
	check(err)
	for i := range data {
		data[i] ^= mask[i%4]
	}
	return h[0] & 0x0f, data
}

// readText reads up to the next text frame.
func (p *peer) readText() string {
	for {
		if opcode, data := p.read(); opcode == 1 {
			return string(data)
		}
	}
}

// readEvent reads up to the next event of this name and decodes its attachment into v.
func (p *peer) readEvent(event string, v any) {
	for !strings.Contains(p.readText(), `["`+event+`"`) {
	}
	_, data := p.read()
	check(wire.Unmarshal(data, v))
}

const openPacket = `0{"sid":"S","upgrades":[],"pingInterval":25000,"pingTimeout":60000,"maxPayload":268435456}`

// join does the handshake up to and including the link's resume of records.
func (p *peer) join() {
	p.upgrade()
	p.text(openPacket)
	p.joinOpened()
}

func (p *peer) joinOpened() {
	for range 2 {
		s := p.readText()
		if !strings.HasPrefix(s, "40/rpc,") && !strings.HasPrefix(s, "40/log,") {
			panic(hangup{errors.New("no CONNECT")})
		}
		p.text(s[:7] + `{"sid":"N"}`)
		p.event(s[2:6], wire.EventReady, wire.Ready{Sid: "stream", WorkerOK: true, Python: "3.11.2"})
	}
	var r wire.StreamResume
	p.readEvent(wire.EventStreamResume, &r)
}

// idle waits until the link hangs up.
func (p *peer) idle() {
	for {
		p.read()
	}
}

// recorder is a Handler that keeps what it is told.
type recorder struct {
	mu           sync.Mutex
	resume       Resume
	connected    int
	peer         Peer
	unsent       []string
	disconnected []error
	batches      []wire.Batch
	results      []wire.Result
	errors       []wire.CallError
	stopped      []string
	gate         chan struct{} // if not nil, Records waits for it
}

func (r *recorder) Connected(p Peer) Resume {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected++
	r.peer = p
	return r.resume
}

func (r *recorder) Records(b wire.Batch) {
	if r.gate != nil {
		<-r.gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, b)
}

func (r *recorder) Result(res wire.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
}

func (r *recorder) CallError(e wire.CallError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, e)
}

func (r *recorder) Stopped(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = append(r.stopped, id)
}

func (r *recorder) Disconnected(unsent []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsent = append(r.unsent, unsent...)
	r.disconnected = append(r.disconnected, err)
}

// get reads a count or list under the lock.
func get[T any](r *recorder, f func(*recorder) T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f(r)
}

// start runs a link against l until the test ends.
func start(t *testing.T, l *listener, h Handler, change func(*Link)) *Link {
	t.Helper()
	link := New(Options{Sandbox: "box", Dial: l.dial, Token: "secret", Epoch: 7, Handler: h})
	link.timing.backoff = time.Millisecond
	link.timing.backoffTo = 20 * time.Millisecond
	if change != nil {
		change(link)
	}
	run(t, link)
	return link
}

// run runs a link until the test ends.
func run(t *testing.T, link *Link) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := link.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(errors.New("test over")); wg.Wait() })
}
