package link

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxCork is how many bytes of small writes are gathered into one.
const maxCork = 65536 // 64 KiB

// meteredConn is a net.Conn that notes its progress and can gather writes.
type meteredConn struct {
	net.Conn
	now       func() time.Time
	lastRead  atomic.Int64 // when bytes came last, in Unix nanoseconds
	lastWrite atomic.Int64 // when a write began or ended last
	writing   atomic.Int32 // writes in progress

	mu     sync.Mutex
	corked bool
	buf    []byte
}

func newMeteredConn(c net.Conn, now func() time.Time) *meteredConn {
	m := &meteredConn{Conn: c, now: now}
	m.lastRead.Store(now().UnixNano())
	m.lastWrite.Store(now().UnixNano())
	return m
}

// Read reads and notes when.
func (m *meteredConn) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if n > 0 {
		m.lastRead.Store(m.now().UnixNano())
	}
	return n, err
}

// Write writes p, or keeps it until uncork.
func (m *meteredConn) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.corked {
		m.buf = append(m.buf, p...)
		if len(m.buf) < maxCork {
			return len(p), nil
		}
		return len(p), m.flush()
	}
	return m.write(p)
}

// cork makes further writes wait for uncork, up to maxCork bytes.
func (m *meteredConn) cork() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.corked = true
}

// uncork writes what was gathered.
func (m *meteredConn) uncork() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.corked = false
	return m.flush()
}

func (m *meteredConn) flush() error {
	if len(m.buf) == 0 {
		return nil
	}
	_, err := m.write(m.buf)
	m.buf = m.buf[:0]
	return err
}

func (m *meteredConn) write(p []byte) (int, error) {
	m.lastWrite.Store(m.now().UnixNano())
	m.writing.Add(1)
	n, err := m.Conn.Write(p)
	m.writing.Add(-1)
	m.lastWrite.Store(m.now().UnixNano())
	return n, err
}

// silentFor is how long nothing came from the peer.
func (m *meteredConn) silentFor() time.Duration {
	return m.now().Sub(time.Unix(0, m.lastRead.Load()))
}

// stuckFor is how long the current write has lasted, 0 if there is none.
func (m *meteredConn) stuckFor() time.Duration {
	if m.writing.Load() == 0 {
		return 0
	}
	return m.now().Sub(time.Unix(0, m.lastWrite.Load()))
}
