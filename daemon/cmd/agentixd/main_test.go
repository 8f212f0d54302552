package main

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
)

type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func noEnv(string) (string, bool) { return "", false }

func TestExitCodes(t *testing.T) {
	runtime := daemontest.Runtime(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--help"}, 0, "Usage: agentixd"},
		{[]string{"--nope"}, 2, "agentixd: read flags: unknown flag: --nope"},
		{[]string{"--http", "0.0.0.0:1"}, 2, "not a loopback address"},
		{[]string{"--state-dir", t.TempDir(), "--runtime", "/nope"}, 1, "agentixd: find the runtime"},
		{[]string{"--state-dir", t.TempDir(), "--runtime", runtime, "--containerd-address", "/nope.sock"}, 1, "containers cannot run here"},
	} {
		var stderr output
		if code := run(c.args, noEnv, &stderr); code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%v: got %d and %q, want %d and %q", c.args, code, stderr.String(), c.code, c.says)
		}
	}
}

func TestSignalStops(t *testing.T) {
	// Without this a signal that came too early would end the test itself.
	caught := make(chan os.Signal, 4)
	signal.Notify(caught, syscall.SIGTERM)
	defer signal.Stop(caught)
	dir, err := os.MkdirTemp("", "agx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, format := range []string{"text", "json"} {
		var stderr output
		code := make(chan int, 1)
		args := []string{
			"--state-dir", dir, "--runtime", daemontest.Runtime(t), "--provider", "process", "--insecure-process-as-root", "--log-format", format, "--http", "127.0.0.1:0",
		}
		go func() { code <- run(args, noEnv, &stderr) }()
		await.True(t, func() bool { return strings.Contains(stderr.String(), "daemon is ready") }, "the daemon")
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := <-code; got != 0 {
			t.Errorf("got exit code %d:\n%s", got, stderr.String())
		}
		token, err := os.ReadFile(filepath.Join(dir, "token"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stderr.String(), strings.TrimSpace(string(token))) {
			t.Error("the token is in the log")
		}
		if !strings.Contains(stderr.String(), "state-dir") {
			t.Error("the effective configuration is not in the log")
		}
	}
}
