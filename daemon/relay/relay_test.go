package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/internal/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start relays to a server that counts its connections.
func start(t *testing.T, handler http.HandlerFunc) (r *Relay, dialled *atomic.Int64) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	dialled = &atomic.Int64{}
	r, err := Listen(t.Context(), Options{Secret: "s3cret", Dial: func(ctx context.Context) (net.Conn, error) {
		dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(errors.New("test over")); wg.Wait() })
	return r, dialled
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestR11_NoSecretNoEffect: whoever does not present the secret does not reach the runtime.
func TestR11_NoSecretNoEffect(t *testing.T) {
	r, dialled := start(t, func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		_, _ = fmt.Fprint(w, req.URL.Path, " ", user, " ", password)
	})
	for _, userinfo := range []string{"", "s3cret@", "any:wrong@", "any:@", "any:s3cret2@"} {
		if code, _ := get(t, fmt.Sprintf("http://%s127.0.0.1:%d/health", userinfo, r.Port())); code != http.StatusUnauthorized {
			t.Errorf("%q: got %d", userinfo, code)
		}
	}
	for _, raw := range []string{
		"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\r\n",
		"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\nAuthorization: Basic eDpzM2NyZXQ=\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "garbage\r\n\r\n", "\r\n\r\n",
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHeadBytes),
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, raw)
		answer, _ := io.ReadAll(conn)
		if len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
			t.Errorf("%.60q: got %q", raw, answer)
		}
		_ = conn.Close()
	}
	if n := dialled.Load(); n != 0 {
		t.Errorf("the runtime was dialled %d times", n)
	}
	if code, body := get(t, fmt.Sprintf("http://me:s3cret@127.0.0.1:%d/health", r.Port())); code != http.StatusOK || body != "/health me s3cret" {
		t.Errorf("got %d %q", code, body)
	}
}

// TestBothWaysAndHalfClosed: bytes pass as they are, also after one side is done.
func TestBothWaysAndHalfClosed(t *testing.T) {
	r, _ := start(t, func(w http.ResponseWriter, req *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		all, err := io.ReadAll(buffered)
		if err != nil {
			t.Error(err)
		}
		_, _ = conn.Write(append([]byte("echo "), all...))
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := strings.Repeat("0123456789", 100000)
	go func() { // ends when all is written
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDpzM2NyZXQ=\r\n\r\n"+text)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "echo "+text {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// TestR12_ConnectionsAreBounded: further ones are closed at once, and room comes back.
func TestR12_ConnectionsAreBounded(t *testing.T) {
	r, _ := start(t, func(http.ResponseWriter, *http.Request) {})
	var held []net.Conn
	for range 2 * maxConnections {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	url := fmt.Sprintf("http://me:s3cret@127.0.0.1:%d/", r.Port())
	await.True(t, func() bool { code, _ := get(t, url); return code == 0 }, "the refusal")
	for _, conn := range held {
		_ = conn.Close()
	}
	await.True(t, func() bool { code, _ := get(t, url); return code == http.StatusOK }, "room")
}

func TestDeadRuntimeAndTakenPort(t *testing.T) {
	r, err := Listen(t.Context(), Options{Secret: "s", Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("gone") }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), Options{Port: r.Port()}); err == nil {
		t.Error("a taken port was opened")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	if code, _ := get(t, fmt.Sprintf("http://me:s@127.0.0.1:%d/", r.Port())); code != http.StatusBadGateway {
		t.Errorf("got %d", code)
	}
	cancel(errors.New("over"))
	wg.Wait()
	again, err := Listen(t.Context(), Options{Port: r.Port()})
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	again.close()
}
