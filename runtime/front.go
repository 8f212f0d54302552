package runtime

import (
	"strings"
	"sync"

	"github.com/zishang520/socket.io/parsers/engine/v3/packet"
	"github.com/zishang520/socket.io/servers/engine/v3"
	"github.com/zishang520/socket.io/servers/socket/v3"
	"github.com/zishang520/socket.io/v3/pkg/types"
)

// front stands before the Socket.IO server on one connection and takes away what the protocol
// ignores and the server would end the connection for: pings of a client, events for a
// namespace that was not joined, a second CONNECT.
type front struct {
	conn engine.Socket

	mu     sync.Mutex
	joined map[string]bool // namespaces whose CONNECT came
	skip   int             // attachments of an event that was taken away
}

// maxJoined bounds the namespaces of one connection.
const maxJoined = 4096

// fronts are those of all connections.
type fronts struct{ byID sync.Map } // Engine.IO id → *front

// stand puts a front before a connection that was just made.
func (f *fronts) stand(args ...any) {
	conn, ok := args[0].(engine.Socket)
	if !ok {
		return
	}
	fr := &front{conn: conn, joined: map[string]bool{}}
	f.byID.Store(conn.Id(), fr)
	_ = conn.Once("close", func(...any) { f.byID.Delete(conn.Id()) })
	// "packet" comes before the connection itself looks at the packet.
	_ = conn.On("packet", func(args ...any) {
		if p, ok := args[0].(*packet.Packet); ok && !fr.pass(p) {
			p.Type = packet.NOOP
		}
	})
}

// refused notes that a CONNECT was answered with an error.
func (f *fronts) refused(sock *socket.Socket) {
	if v, ok := f.byID.Load(sock.Conn().Id()); ok {
		fr := v.(*front)
		fr.mu.Lock()
		defer fr.mu.Unlock()
		delete(fr.joined, sock.Nsp().Name())
	}
}

// pass reports whether the server is to see a packet.
func (f *front) pass(p *packet.Packet) bool {
	if p.Type == packet.PING {
		return false
	}
	if p.Type != packet.MESSAGE {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text, ok := p.Data.(*types.StringBuffer)
	if !ok {
		if f.skip > 0 {
			f.skip--
			return false
		}
		return true
	}
	return f.passText(text.String())
}

// passText reports whether the server is to see a Socket.IO packet; f.mu is held.
func (f *front) passText(text string) bool {
	kind, attachments, namespace := packetHead(text)
	switch {
	case kind == '0' && f.joined[namespace]:
		f.refuse(namespace)
		return false
	case kind == '0' && len(f.joined) >= maxJoined:
		f.refuse(namespace)
		return false
	case kind == '0':
		f.joined[namespace] = true
		return true
	case kind == '4': // CONNECT_ERROR: none of a client's business
		return false
	case kind < '1' || kind > '6' || f.joined[namespace]:
		if kind == '1' {
			delete(f.joined, namespace)
		}
		return true // or no packet at all, for the server to refuse
	}
	f.skip = attachments
	return false
}

// refuse answers a CONNECT as the protocol does when a namespace cannot be joined.
func (f *front) refuse(namespace string) {
	where := ""
	if namespace != "/" {
		where = namespace + ","
	}
	f.conn.Send(strings.NewReader("4"+where+`"Unable to connect"`), nil, nil)
}

// packetHead reads the type, the number of attachments and the namespace of a packet.
func packetHead(text string) (kind byte, attachments int, namespace string) {
	if text == "" {
		return 0, 0, "/"
	}
	kind, rest := text[0], text[1:]
	if kind == '5' || kind == '6' {
		dash := 0
		for dash < len(rest) && rest[dash] >= '0' && rest[dash] <= '9' && dash < 3 {
			attachments = attachments*10 + int(rest[dash]-'0')
			dash++
		}
		rest = strings.TrimPrefix(rest[dash:], "-")
	}
	if !strings.HasPrefix(rest, "/") {
		return kind, attachments, "/"
	}
	namespace, _, _ = strings.Cut(rest, ",")
	namespace, _, _ = strings.Cut(namespace, "?")
	return kind, attachments, namespace
}
