package faulttest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Proxy stands between the two ends of a Unix socket, for example between the daemon and the
// runtime of a sandbox of the process provider. It can cut connections, hold bytes back (a half-open link: no byte and no end comes through),
// and slow them down.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	behind   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	change sync.Cond // told when what follows has changed
	conns  map[*pair]struct{}
	made   int
	held   bool // new connections are held from their first byte on
	rate   int  // bytes a second in each direction; 0 = as they come
	closed bool
}

// pair is one connection of the daemon and the one behind it.
type pair struct {
	near, far net.Conn
	held      bool // in both directions
	cutAfter  int  // bytes to the runtime that still pass; -1 = all
	closed    bool
}

// NewProxy listens at the path front and connects to the socket behind.
func NewProxy(t testing.TB, front, behind string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, behind: behind, conns: map[*pair]struct{}{}}
	p.change.L = &p.mu
	var err error
	if p.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", front); err != nil {
		t.Fatal(err)
	}
	p.wg.Go(p.accept) // ends with Close
	t.Cleanup(p.Close)
	return p
}

// Interpose puts a proxy in the runtime's place: connections made from now on pass it.
func (s *Sandbox) Interpose() *Proxy {
	s.d.t.Helper()
	front, behind := filepath.Join(s.EngineDir(), "rpc.sock"), filepath.Join(s.EngineDir(), "real.sock")
	if err := os.Rename(front, behind); err != nil {
		s.d.t.Fatal(err)
	}
	return NewProxy(s.d.t, front, behind)
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := (&net.Dialer{}).DialContext(context.Background(), "unix", p.behind)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		c := &pair{near: near, far: far, held: p.held, cutAfter: -1}
		p.conns[c] = struct{}{}
		p.made++
		if p.closed {
			p.drop(c)
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(c, near, far, true) })  // each ends with the pair
		p.wg.Go(func() { p.pump(c, far, near, false) }) // or with Close
	}
}

// pump carries bytes one way. A held direction ends neither way before it is released.
func (p *Proxy) pump(c *pair, from, to net.Conn, toRuntime bool) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for c.held && !c.closed {
			p.change.Wait()
		}
		rate, cut := p.rate, false
		if toRuntime && c.cutAfter >= 0 {
			n = min(n, c.cutAfter)
			c.cutAfter -= n
			cut = c.cutAfter == 0
		}
		p.mu.Unlock()
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
			if rate > 0 {
				<-time.After(time.Duration(n) * time.Second / time.Duration(rate))
			}
		}
		if err != nil || cut {
			p.mu.Lock()
			p.drop(c)
			p.mu.Unlock()
			return
		}
	}
}

// drop closes a pair; p.mu is held.
func (p *Proxy) drop(c *pair) {
	if c.closed {
		return
	}
	c.closed = true
	_ = c.near.Close()
	_ = c.far.Close()
	delete(p.conns, c)
	p.change.Broadcast()
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		p.drop(c)
	}
}

// CutNear closes the near side of all connections and goes on holding the far side: who
// dialled knows that the connection is gone, who accepted does not, and what was on its way
// arrives after Release.
func (p *Proxy) CutNear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.held = true
		_ = c.near.Close()
	}
}

// CutAfter closes each connection that there is now after n more bytes to the runtime.
func (p *Proxy) CutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.cutAfter = n
	}
}

// Hold lets nothing through, and tells neither side, on the connections that there are;
// with also, on later ones, too.
func (p *Proxy) Hold(also bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = also
	for c := range p.conns {
		c.held = true
	}
}

// Release lets everything through again, also what was held.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	for c := range p.conns {
		c.held = false
	}
	p.change.Broadcast()
}

// Slow lets at most rate bytes a second through; 0 = as many as come.
func (p *Proxy) Slow(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

// Made is how many connections were made so far.
func (p *Proxy) Made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		p.drop(c)
	}
	p.mu.Unlock()
	p.wg.Wait()
}
