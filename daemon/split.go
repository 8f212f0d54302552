package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/agentixd/agentixd/daemon/auth"
)

const (
	sniffTimeout = 5 * time.Second // for the first bytes of a connection
	maxConns     = 4096            // on one listener, at once
)

// http2Preface is how every HTTP/2 connection begins; no HTTP/1 method does.
const http2Preface = "PRI"

// splitter takes the connections of one listener apart: those that begin with the HTTP/2
// preface are gRPC, the others HTTP/1. Both then run on their own servers unchanged.
type splitter struct {
	listener net.Listener
	logger   *slog.Logger
	grpc     *connQueue
	http     *connQueue
	slots    chan struct{}
	wg       sync.WaitGroup
}

func newSplitter(listener net.Listener, logger *slog.Logger) *splitter {
	return &splitter{
		listener: listener, logger: logger,
		grpc:  newConnQueue(listener.Addr()),
		http:  newConnQueue(listener.Addr()),
		slots: make(chan struct{}, maxConns),
	}
}

// run accepts until ctx ends, then stops listening.
func (s *splitter) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer func() {
		stop()
		_ = s.listener.Close()
		_ = s.grpc.Close()
		_ = s.http.Close()
		s.wg.Wait()
	}()
	pause := 5 * time.Millisecond
	for {
		conn, err := s.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("accept on %s: %w", s.listener.Addr(), err)
			}
			// Out of descriptors, for example: what is open must live on.
			s.logger.LogAttrs(ctx, slog.LevelWarn, "accept failed", slog.Any("err", err))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = 5 * time.Millisecond
		select {
		case s.slots <- struct{}{}:
			s.wg.Add(1)
			go s.sort(conn) // ends within sniffTimeout, or once a server took the connection
		default:
			_ = conn.Close() // over maxConns
		}
	}
}

// sort reads the first bytes and hands the connection on.
func (s *splitter) sort(conn net.Conn) {
	defer s.wg.Done()
	known := &knownConn{Conn: conn, release: sync.OnceFunc(func() { <-s.slots })}
	if raw, ok := conn.(*net.UnixConn); ok {
		peer, err := auth.PeerOf(raw)
		if err != nil {
			_ = known.Close()
			return
		}
		known.info.Peer = peer
	}
	if err := known.sniff(); err != nil {
		_ = known.Close()
		return
	}
	queue := s.http
	if string(known.first) == http2Preface {
		queue = s.grpc
	}
	queue.put(known)
}

// knownConn is a connection of which the first bytes were read and the peer is known.
type knownConn struct {
	net.Conn
	first   []byte // read, not yet given on
	info    auth.Conn
	release func()
}

// AuthConn is what is known of the connection.
func (c *knownConn) AuthConn() auth.Conn { return c.info }

func (c *knownConn) sniff() error {
	if err := c.Conn.SetReadDeadline(time.Now().Add(sniffTimeout)); err != nil {
		return err
	}
	first := make([]byte, 0, len(http2Preface))
	for len(first) < len(http2Preface) {
		n, err := c.Conn.Read(first[len(first):cap(first)])
		first = first[:len(first)+n]
		if err != nil {
			return err
		}
	}
	c.first = first
	return c.Conn.SetReadDeadline(time.Time{})
}

// Read gives the first bytes, then reads on.
func (c *knownConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p) //nolint:wrapcheck // The servers look at net's own errors.
}

// Close ends the connection and frees its slot.
func (c *knownConn) Close() error {
	c.release()
	return c.Conn.Close() //nolint:wrapcheck // As Read.
}

// SyscallConn lets gRPC read socket options.
func (c *knownConn) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return raw.SyscallConn() //nolint:wrapcheck // As Read.
	}
	return nil, errors.ErrUnsupported
}

// connQueue is the net.Listener that a server gets its connections from.
type connQueue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newConnQueue(addr net.Addr) *connQueue {
	q := &connQueue{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	q.close = sync.OnceFunc(func() { close(q.closed) })
	return q
}

func (q *connQueue) put(conn net.Conn) {
	select {
	case q.conns <- conn:
	case <-q.closed:
		_ = conn.Close()
	}
}

// Accept waits for the next connection.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; connections that were given out live on.
func (q *connQueue) Close() error { q.close(); return nil }

// Addr is the address of the real listener.
func (q *connQueue) Addr() net.Addr { return q.addr }
