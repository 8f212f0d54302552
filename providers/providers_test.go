package providers_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/providers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestR10_DialSocket: only a socket is dialled, never what a symlink leads to, and nothing
// in its place can make the daemon wait.
func TestR10_DialSocket(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat("long/", 40)) // far over a socket address
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", short)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the test is over
	socket := filepath.Join(deep, "socket")
	if err := os.Rename(short, socket); err != nil {
		t.Fatal(err)
	}
	conn, err := providers.DialSocket(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()

	for name, plant := range map[string]func(path string) error{
		"symlink":  func(path string) error { return os.Symlink(socket, path) },
		"file":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"fifo":     func(path string) error { return unix.Mkfifo(path, 0o600) },
		"dir":      func(path string) error { return os.Mkdir(path, 0o700) },
		"nothing":  func(string) error { return nil },
		"dangling": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		path := filepath.Join(dir, name)
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		if conn, err := providers.DialSocket(t.Context(), path); err == nil {
			_ = conn.Close()
			t.Errorf("%s: dialled", name)
		}
	}
}

// TestExits: every watcher gets every exit in order; one that does not read harms nobody.
func TestExits(t *testing.T) {
	var exits providers.Exits
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	lazy, keen := exits.Watch(t.Context()), exits.Watch(ctx)
	const n = 1000
	for i := range n {
		exits.Publish(providers.Exit{Code: i})
	}
	for i := range n {
		if got := <-keen; got.Code != i {
			t.Fatalf("exit %d = %+v", i, got)
		}
	}
	cancel(errors.New("enough"))
	await.True(t, func() bool {
		select {
		case _, open := <-keen:
			return !open
		default:
			return false
		}
	}, "end of the watch")
	if got := <-lazy; got.Code != 0 {
		t.Errorf("first exit = %+v", got)
	}
	exits.Close()
	for range lazy { // what was on its way, then the end
	}
	if _, open := <-exits.Watch(t.Context()); open {
		t.Error("a watch after Close tells something")
	}
}

func TestRuntimeLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := providers.LogTail(path); got != "" {
		t.Errorf("of a missing log: %q", got)
	}
	if err := os.WriteFile(path, []byte("one line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := providers.LogTail(path); got != "one line" {
		t.Errorf("tail = %q", got)
	}
	providers.TrimLog(path)
	if got := providers.LogTail(path); got != "one line" {
		t.Errorf("a small log was trimmed: %q", got)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 1<<20)+"\xff\xfe the end"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := providers.LogTail(path); len(got) > 2048+4 || !strings.HasSuffix(got, "\uFFFD the end") {
		t.Errorf("tail of a long log has %d bytes and ends with %q", len(got), got[len(got)-20:])
	}
	providers.TrimLog(path)
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("after trimming: %v, %v", info, err)
	}
}
