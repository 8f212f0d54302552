package runtime

import (
	"errors"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/zishang520/socket.io/parsers/socket/v3/parser"
	"github.com/zishang520/socket.io/servers/engine/v3"
	"github.com/zishang520/socket.io/servers/engine/v3/transports"
	"github.com/zishang520/socket.io/servers/socket/v3"
	"github.com/zishang520/socket.io/v3/pkg/types"

	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/stream"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Heartbeat of the Socket.IO server. The timeout must be longer than the interval: a pong
// that comes while the server still arms its timer is lost, and the next ping mends that.
const (
	pingInterval = 25 * time.Second
	pingTimeout  = 60 * time.Second
)

// messageSlack is what a Socket.IO message may hold beyond the limit, so that a call that is
// a little too large gets its error instead of a cut connection.
const messageSlack = 16 << 20

// anyNamespace matches what a host may join: everything.
var anyNamespace = regexp.MustCompile(`^/.*$`)

// sioServer is the Socket.IO server with what guards it.
type sioServer struct {
	r      *Runtime
	io     *socket.Server
	server http.Handler

	fronts fronts

	mu     sync.Mutex
	peers  map[string]*peer // by Engine.IO id
	nextID calltable.Owner
	runs   sync.WaitGroup
	closed bool
}

func newSIOServer(r *Runtime) *sioServer {
	opts := socket.DefaultServerOptions()
	opts.SetPingInterval(r.cfg.PingInterval)
	opts.SetPingTimeout(r.cfg.PingTimeout)
	opts.SetMaxHttpBufferSize(wire.MaxMessageBytes + messageSlack)
	opts.SetParser(packetParser{parser.NewParser()})
	opts.SetServeClient(false)
	opts.SetTransports(types.NewSet[transports.TransportCtor](&pollingBuilder{}, &webSocketBuilder{}))
	opts.SetCleanupEmptyChildNamespaces(true)
	s := &sioServer{r: r, peers: map[string]*peer{}}
	s.io = socket.NewServer(nil, opts)
	for _, namespace := range []socket.Namespace{s.io.Of(anyNamespace, nil), s.io.Of("/", nil)} {
		namespace.Use(s.admit)
		_ = namespace.On("connection", s.connected)
	}
	s.server = s.io.ServeHandler(nil)
	_ = s.io.Engine().On("connection", s.fronts.stand)
	return s
}

// admit refuses who may not join.
func (s *sioServer) admit(sock *socket.Socket, next func(*socket.ExtendedError)) {
	if s.r.callerOn(sock) == stranger {
		s.fronts.refused(sock)
		next(socket.NewExtendedError("unauthorized", nil))
		return
	}
	next(nil)
}

// guard keeps a panic from ending anything but the handler it happened in.
func (s *sioServer) guard(what string) {
	if v := recover(); v != nil {
		s.r.cfg.Logger.Error("handler panicked", "handler", what, "err", v, "stack", string(debug.Stack()))
	}
}

// connected takes a socket that joined a namespace.
func (s *sioServer) connected(args ...any) {
	defer s.guard("connection")
	sock, ok := args[0].(*socket.Socket)
	if !ok {
		return
	}
	namespace := sock.Nsp().Name()
	p := s.peer(sock)
	if p == nil {
		return
	}
	sock.OnAny(func(args ...any) {
		defer s.guard("event")
		s.event(p, namespace, args)
	})
	_ = sock.On("disconnect", func(...any) { s.left(p, namespace, sock) })
	streaming := s.join(p, namespace, sock)
	if !sock.Connected() || sock.Conn().ReadyState() != "open" { // it went before the listener was there
		s.left(p, namespace, sock)
		return
	}
	if p.daemon {
		s.sendReady(p, sock, namespace, true)
	} else if streaming {
		time.AfterFunc(resumeGrace, func() { s.r.hub.live(p, namespace) })
	}
}

// maxCapabilities bounds what a daemon announces.
const maxCapabilities = 64

// sendReady tells the daemon how the worker is, and first that the namespace is joined: the
// last act of joining it.
func (s *sioServer) sendReady(p *peer, sock *socket.Socket, namespace string, first bool) {
	ready := s.r.readyState()
	if p.knows[wire.CapRetire] || p.knows[wire.CapIsolation] {
		ready.Capabilities = Capabilities
	}
	if first && namespace == wire.NamespaceRPC && p.knows[wire.CapRetire] {
		ready.StillRunning = s.r.calls.stillRunning()
	}
	if namespace == wire.NamespaceLog {
		ready.Sid = s.r.hub.buffer.Sid()
	}
	payload, err := wire.Marshal(ready)
	if err == nil {
		err = emit(sock, wire.EventReady, payload)
	}
	if err != nil {
		s.r.cfg.Logger.Warn("event is not sent", "event", wire.EventReady, "err", err)
	}
}

// announceReady tells each daemon session on /rpc how the worker is.
func (s *sioServer) announceReady() {
	s.mu.Lock()
	peers := make([]*peer, 0, len(s.peers))
	for _, p := range s.peers {
		peers = append(peers, p)
	}
	s.mu.Unlock()
	for _, p := range peers {
		s.r.hub.mu.Lock()
		sock := p.sockets[wire.NamespaceRPC]
		s.r.hub.mu.Unlock()
		if p.daemon && sock != nil {
			s.sendReady(p, sock, wire.NamespaceRPC, false)
		}
	}
}

// peer returns the peer of a connection, made at its first namespace.
func (s *sioServer) peer(sock *socket.Socket) *peer {
	conn := sock.Conn()
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[conn.Id()]; p != nil {
		return p
	}
	if s.closed {
		return nil
	}
	s.nextID++
	epoch, _ := sock.Handshake().Auth["epoch"].(float64)
	p := &peer{
		knows: map[string]bool{},
		id:    s.nextID, hub: s.r.hub, conn: conn, daemon: s.r.callerOn(sock) == ourDaemon, epoch: int64(epoch), logger: s.r.cfg.Logger, trim: &s.r.trim,
		poked: make(chan struct{}, 1), urgent: make(chan struct{}, 1), gone: make(chan struct{}), cut: make(chan struct{}),
		sockets: map[string]*socket.Socket{}, readers: map[string]*stream.Reader{}, watched: map[string]bool{},
	}
	if list, ok := sock.Handshake().Auth["capabilities"].([]any); ok && p.daemon {
		for _, c := range list[:min(len(list), maxCapabilities)] {
			if name, ok := c.(string); ok {
				p.knows[name] = true
			}
		}
	}
	s.peers[conn.Id()] = p
	carryOver(conn)
	s.runs.Go(func() { // ends with gone
		defer func() {
			if v := recover(); v != nil { // costs this peer its connection, nobody else anything
				s.r.cfg.Logger.Error("peer panicked", "err", v, "stack", string(debug.Stack()))
				conn.Close(true)
			}
		}()
		p.run()
	})
	return p
}

// carryOver sends what a polling transport still holds on the transport that replaces it.
func carryOver(conn engine.Socket) {
	polling, ok := conn.Transport().(*pollingTransport)
	if !ok {
		return
	}
	_ = conn.Once("upgrade", func(args ...any) {
		if next, ok := args[0].(transports.Transport); ok {
			if rest := polling.take(); len(rest) > 0 {
				next.Send(rest)
			}
		}
	})
}

// join notes that p is on namespace; streaming says that a ring of events is read there.
func (s *sioServer) join(p *peer, namespace string, sock *socket.Socket) (streaming bool) {
	h := s.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers[p.id] = p
	p.sockets[namespace] = sock
	switch ring := h.rings[namespace]; {
	case p.daemon && namespace == wire.NamespaceLog:
		p.seq.Join()
	case !p.daemon && ring != nil:
		p.readers[namespace] = stream.NewReader(ring)
		return true
	}
	return false
}

// left takes a socket away, and the peer with its last one.
func (s *sioServer) left(p *peer, namespace string, sock *socket.Socket) {
	defer s.guard("disconnect")
	h := s.r.hub
	h.mu.Lock()
	if p.sockets[namespace] == sock {
		delete(p.sockets, namespace)
		if reader := p.readers[namespace]; reader != nil {
			s.r.hub.wentAway(namespace, reader)
			delete(p.readers, namespace)
		}
	}
	last := len(p.sockets) == 0
	if last {
		delete(h.peers, p.id)
	}
	h.room.Broadcast() // the daemon may be gone: nobody waits for it then
	h.mu.Unlock()
	if !last {
		return
	}
	p.leave.Do(func() {
		s.mu.Lock()
		for id, other := range s.peers {
			if other == p {
				delete(s.peers, id)
			}
		}
		s.mu.Unlock()
		close(p.gone)
		s.r.calls.release(p)
	})
}

// event handles what a peer sent on a namespace: a name, one binary argument, and perhaps a
// request for an acknowledgement.
func (s *sioServer) event(p *peer, namespace string, args []any) {
	if len(args) == 0 {
		return
	}
	name, ok := args[0].(string)
	if !ok {
		return
	}
	none := byte(0xc0) // what no data means: nil, and on /rpc an empty map
	if namespace == wire.NamespaceRPC {
		none = 0x80
	}
	payload, ok := argument(args, none)
	if !ok && namespace != wire.NamespaceRPC { // there, only binary arguments are taken
		payload, ok = jsonArgument(args[1])
	}
	if !ok {
		return
	}
	known := s.r.handle(p, namespace, name, payload)
	if ack, ok := args[len(args)-1].(socket.Ack); ok && known {
		ack([]any{}, nil)
	}
}

// argument is the binary argument of an event, none if it has no data.
func argument(args []any, none byte) ([]byte, bool) {
	if len(args) < 2 {
		return []byte{none}, true
	}
	switch v := args[1].(type) {
	case types.BufferInterface:
		if _, text := v.(*types.StringBuffer); text {
			return nil, false
		}
		if v.Len() == 0 {
			return []byte{none}, true
		}
		return v.Bytes(), true
	case []byte:
		return v, true
	case nil, socket.Ack:
		return []byte{none}, true
	}
	return nil, false
}

// jsonArgument is an argument that came as JSON, as the document that it would have been.
func jsonArgument(arg any) ([]byte, bool) {
	payload, err := wire.Marshal(integers(arg, wire.MaxDepth))
	return payload, err == nil
}

// integers makes integers of the numbers that were some: the parser knows only floats.
func integers(v any, depth int) any {
	if depth == 0 {
		return nil
	}
	switch v := v.(type) {
	case float64:
		if n := int64(v); float64(n) == v && n > -1<<53 && n < 1<<53 {
			return n
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i], depth-1)
		}
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key], depth-1)
		}
	}
	return v
}

// close ends every connection without a goodbye, so that hosts come back, and waits.
func (s *sioServer) close() {
	s.mu.Lock()
	s.closed = true
	peers := make([]*peer, 0, len(s.peers))
	for _, p := range s.peers {
		peers = append(peers, p)
	}
	s.mu.Unlock()
	for _, p := range peers {
		p.conn.Close(true)
	}
	s.io.Engine().Close()
	for _, p := range peers {
		for _, namespace := range p.namespaces() {
			s.left(p, namespace.Nsp().Name(), namespace)
		}
	}
	s.runs.Wait()
}

func (p *peer) namespaces() []*socket.Socket {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	var all []*socket.Socket
	for _, sock := range p.sockets {
		all = append(all, sock)
	}
	return all
}

// errForeignOrigin is what a browser's page of another origin gets.
var errForeignOrigin = errors.New("foreign origin")

// localNames are the hosts whose own origin is let in; a name could be rebound to us.
var localNames = []string{"localhost", "127.0.0.1", "::1"}

func isLocalName(host string) bool { return slices.Contains(localNames, host) }
