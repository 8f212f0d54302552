// Package siotest is a small Socket.IO client for the runtime's tests: one WebSocket,
// several namespaces, one msgpack payload an event.
package siotest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Event is one event that arrived.
type Event struct {
	Namespace string
	Name      string
	Payload   []byte
}

// Client is one connection.
type Client struct {
	t      testing.TB
	conn   *websocket.Conn
	cancel context.CancelCauseFunc
	done   chan struct{}
	handle func(*Client, Event) // called for each event, if set

	mu     sync.Mutex
	joined map[string]bool
	events []Event
	err    error
}

var errClosed = errors.New("closed by the test")

// Dial connects to the runtime at a Unix socket and joins the namespaces with auth. handle,
// if not nil, sees each event from the reader's goroutine, before it is kept.
func Dial(t testing.TB, socketPath string, auth any, handle func(*Client, Event), namespaces ...string) *Client {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	httpClient := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socketPath)
		},
	}}
	conn, resp, err := websocket.Dial(ctx, "http://runtime/socket.io/?EIO=4&transport=websocket", &websocket.DialOptions{HTTPClient: httpClient})
	if err != nil {
		cancel(errClosed)
		t.Fatalf("dial %s: %v", socketPath, err)
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	conn.SetReadLimit(-1)
	c := &Client{t: t, conn: conn, cancel: cancel, done: make(chan struct{}), handle: handle, joined: map[string]bool{}}
	go c.read(ctx) // ends with Close, which waits for it
	t.Cleanup(c.Close)
	payload, err := json.Marshal(auth)
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range namespaces {
		if err := conn.Write(ctx, websocket.MessageText, []byte("40"+ns+","+string(payload))); err != nil {
			t.Fatalf("join %s: %v", ns, err)
		}
	}
	await.True(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.joined) == len(namespaces) || c.err != nil
	}, "the namespaces to be joined")
	return c
}

// Close cuts the connection without a goodbye and waits for the reader.
func (c *Client) Close() {
	c.cancel(errClosed)
	_ = c.conn.CloseNow()
	<-c.done
}

// Err is why the connection ended, or what a namespace answered instead of joining.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// Events are those that arrived so far.
func (c *Client) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Event(nil), c.events...)
}

// Emit sends v, as msgpack, in an event.
func (c *Client) Emit(namespace, event string, v any) {
	c.t.Helper()
	payload, err := wire.Marshal(v)
	if err != nil {
		c.t.Fatal(err)
	}
	c.EmitRaw(namespace, event, payload)
}

// EmitRaw sends payload in an event. A connection that is gone is no error: the test looks
// at what arrives.
func (c *Client) EmitRaw(namespace, event string, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := fmt.Sprintf(`451-%s,[%q,{"_placeholder":true,"num":0}]`, namespace, event)
	_ = c.conn.Write(context.Background(), websocket.MessageText, []byte(head))
	_ = c.conn.Write(context.Background(), websocket.MessageBinary, payload)
}

// Text sends a raw Engine.IO packet.
func (c *Client) Text(packet string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Write(context.Background(), websocket.MessageText, []byte(packet))
}

func (c *Client) read(ctx context.Context) {
	defer close(c.done)
	var pending *Event
	for {
		kind, data, err := c.conn.Read(ctx)
		if err != nil {
			c.fail(err)
			return
		}
		if kind == websocket.MessageBinary {
			if pending == nil {
				c.fail(errors.New("binary frame without an event"))
				return
			}
			pending.Payload = data
			c.got(*pending)
			pending = nil
			continue
		}
		if pending != nil {
			c.fail(fmt.Errorf("text frame %q between an event and its attachment", data))
			return
		}
		if pending, err = c.packet(ctx, string(data)); err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) got(e Event) {
	if c.handle != nil {
		c.handle(c, e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// packet handles a text packet; it returns the event whose attachment comes next.
func (c *Client) packet(ctx context.Context, s string) (*Event, error) {
	switch {
	case strings.HasPrefix(s, "0"), s == "6":
		return nil, nil
	case s == "2":
		return nil, c.conn.Write(ctx, websocket.MessageText, []byte("3"))
	case strings.HasPrefix(s, "40"):
		ns, _, _ := strings.Cut(s[2:], ",")
		c.mu.Lock()
		defer c.mu.Unlock()
		c.joined[ns] = true
		return nil, nil
	case strings.HasPrefix(s, "44"):
		c.fail(fmt.Errorf("connect error %s", s))
		return nil, nil
	case strings.HasPrefix(s, "451-"):
		ns, rest, _ := strings.Cut(s[4:], ",")
		var args []any
		if err := json.Unmarshal([]byte(rest), &args); err != nil || len(args) != 2 {
			return nil, fmt.Errorf("event %q: %w", s, err)
		}
		name, _ := args[0].(string)
		return &Event{Namespace: ns, Name: name}, nil
	}
	return nil, fmt.Errorf("unexpected packet %q", s)
}

// Binary sends a raw binary frame.
func (c *Client) Binary(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Write(context.Background(), websocket.MessageBinary, b)
}
