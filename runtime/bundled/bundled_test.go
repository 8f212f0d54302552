package bundled

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/await"
)

func TestMain(m *testing.M) {
	if os.Getenv("SERVE") != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}

// serve is a bundle's server: it answers with what it was given, and ends when told to.
func serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getenv("MARK")) })
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(7) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	server := &http.Server{
		Addr:    net.JoinHostPort(os.Getenv("AGENTIX_BIND_HOST"), os.Getenv("AGENTIX_BIND_PORT")),
		Handler: mux, ReadHeaderTimeout: time.Minute,
	}
	if err := server.ListenAndServe(); err != nil {
		os.Exit(1)
	}
}

// begin runs this test binary as a bundle's server.
func begin(t *testing.T, command ...string) (client *http.Client, end context.CancelCauseFunc, over chan error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	t.Setenv("SERVE", "1")
	t.Setenv("MARK", "hello")
	t.Setenv("AGENTIX_BIND_HOST", "0.0.0.0")
	t.Setenv("AGENTIX_BIND_PORT", "1")
	ctx, end := context.WithCancelCause(t.Context())
	over = make(chan error, 1)
	go func() { over <- Run(ctx, Config{Socket: socket, Command: command}) }() // ends with ctx, or with the server
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, end, over
}

func get(t *testing.T, c *http.Client, path, body string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// TestFront: the server is reachable at the socket once it accepts, on loopback alone, and ends
// with the front.
func TestFront(t *testing.T) {
	c, end, over := begin(t, os.Args[0])
	await.True(t, func() bool { text, err := get(t, c, "/health", ""); return err == nil && text == "hello" }, "the server at the socket")
	big := strings.Repeat("0123456789", 1<<20)
	if text, err := get(t, c, "/echo", big); err != nil || text != big {
		t.Errorf("echo of %d bytes: %d, %v", len(big), len(text), err)
	}
	end(nil)
	if err := <-over; err != nil {
		t.Errorf("the end: %v", err)
	}
	if text, err := get(t, c, "/health", ""); err == nil {
		t.Errorf("after the end: %q", text)
	}
}

// TestFrontEndsWithItsServer: the end of the server is the front's, and told.
func TestFrontEndsWithItsServer(t *testing.T) {
	c, _, over := begin(t, os.Args[0])
	await.True(t, func() bool { _, err := get(t, c, "/health", ""); return err == nil }, "the server at the socket")
	_, _ = get(t, c, "/exit", "")
	if err := <-over; err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("the end: %v", err)
	}
	_, _, over = begin(t, "/bin/sh", "-c", "kill -9 $$")
	if err := <-over; err == nil || !strings.Contains(err.Error(), "signal 9") {
		t.Errorf("a server that is killed before it serves: %v", err)
	}
	_, _, over = begin(t, "/nonexistent/bootstrap.sh")
	if err := <-over; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a server that is not there: %v", err)
	}
}

// TestFrontTakesAllWithIt: what the server has started ends with it.
func TestFrontTakesAllWithIt(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // as PID 1 is
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "pid")
	c, end, over := begin(t, "/bin/sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! > "+mark+"; exec "+os.Args[0])
	await.True(t, func() bool { _, err := get(t, c, "/health", ""); return err == nil }, "the server at the socket")
	text, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	end(nil)
	if err := <-over; err != nil {
		t.Errorf("the end: %v", err)
	}
	if cmdline, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/cmdline"); err == nil && strings.Contains(string(cmdline), "sleep") {
		t.Errorf("still there: %q", cmdline)
	}
}
