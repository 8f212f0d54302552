// Package relay lets clients on this host reach the runtime of one sandbox over a loopback
// port: it forwards connections that present the sandbox's secret. Everybody on the host can
// connect, so whoever does not present it gets nowhere near the sandbox. What comes back is
// the sandbox's and goes to the client as it is.
package relay

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	maxConnections = 256              // at once, of one sandbox
	maxHeadBytes   = 65536            // 64 KiB: head of the first request of a connection
	headTimeout    = 10 * time.Second // for the head of the first request
	acceptPause    = 50 * time.Millisecond
)

// Options say what is relayed, to whom.
type Options struct {
	Port   int                                     // loopback port; 0 = a free one
	Secret string                                  // password that HTTP Basic has to present, with any user
	Dial   func(context.Context) (net.Conn, error) // to the runtime
	Logger *slog.Logger                            // default: discard
}

// Relay is an open port.
type Relay struct {
	opts   Options
	secret [sha256.Size]byte
	ln     net.Listener

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
	wg    sync.WaitGroup
}

// Listen opens the port; Run serves it.
func Listen(ctx context.Context, opts Options) (*Relay, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(opts.Port)))
	if err != nil {
		return nil, fmt.Errorf("open port: %w", err)
	}
	return &Relay{opts: opts, secret: sha256.Sum256([]byte(opts.Secret)), ln: ln, conns: map[net.Conn]struct{}{}}, nil
}

// Port is the number of the open port.
func (r *Relay) Port() int { return r.ln.Addr().(*net.TCPAddr).Port } //nolint:forcetypeassert // it listens on TCP

// Run relays until ctx ends; then the port and all connections are closed.
func (r *Relay) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.close)
	defer stop()
	for {
		conn, err := r.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil { // out of descriptors, most likely: others end sooner or later
			r.opts.Logger.Warn("exposed runtime accepts no connection just now", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		if !r.add(conn) {
			_ = conn.Close()
			continue
		}
		r.wg.Go(func() { // ends with the connection, which close ends
			defer r.remove(conn)
			r.serve(ctx, conn)
		})
	}
	r.wg.Wait()
}

func (r *Relay) close() {
	_ = r.ln.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for conn := range r.conns {
		_ = conn.Close()
	}
}

// add notes a connection to close at the end; false means that there are too many.
func (r *Relay) add(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || len(r.conns) >= 2*maxConnections { // each has two ends
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *Relay) remove(conn net.Conn) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

// serve relays one connection. The runtime checks every request on it; the first is checked
// here already.
func (r *Relay) serve(ctx context.Context, client net.Conn) {
	if client.SetReadDeadline(time.Now().Add(headTimeout)) != nil {
		return
	}
	begin, err := readHead(client)
	if err != nil {
		return
	}
	if !r.admits(begin) {
		_, _ = io.WriteString(client, "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"agentix-runtime\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	if client.SetReadDeadline(time.Time{}) != nil {
		return
	}
	runtime, err := r.opts.Dial(ctx)
	if err != nil {
		_, _ = io.WriteString(client, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	if !r.add(runtime) {
		_ = runtime.Close()
		return
	}
	defer r.remove(runtime)
	var wg sync.WaitGroup
	wg.Go(func() { // ends with either connection
		_, _ = io.Copy(client, runtime)
		endWrite(client)
	})
	if _, err := runtime.Write(begin); err == nil {
		_, _ = io.Copy(runtime, client)
	}
	endWrite(runtime)
	wg.Wait()
}

// endWrite tells the other side that nothing more comes.
func endWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		return
	}
	_ = conn.Close()
}

var errHead = errors.New("no head of a request")

// readHead reads what a connection begins with, at least the head of the first request.
func readHead(conn net.Conn) ([]byte, error) {
	buf := make([]byte, 0, 4096)
	for {
		if bytes.Contains(buf, []byte("\r\n\r\n")) {
			return buf, nil
		}
		if len(buf) >= maxHeadBytes {
			return nil, errHead
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil {
			return nil, err
		}
	}
}

// admits reports whether a request presents the secret.
func (r *Relay) admits(head []byte) bool {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil || len(req.Header.Values("Authorization")) != 1 {
		return false
	}
	_, password, ok := req.BasicAuth()
	sum := sha256.Sum256([]byte(password))
	return ok && subtle.ConstantTimeCompare(sum[:], r.secret[:]) == 1
}
