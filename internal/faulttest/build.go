package faulttest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Binaries are the programs under test.
type Binaries struct{ Daemon, Runtime string }

var builds struct {
	mu   sync.Mutex
	made map[string]Binaries
}

// Build builds the real daemon and runtime from this source tree with some build tags, into
// the user's cache, once per process.
func Build(t testing.TB, tags ...string) Binaries {
	t.Helper()
	builds.mu.Lock()
	defer builds.mu.Unlock()
	key := strings.Join(tags, ",")
	if b, done := builds.made[key]; done {
		return b
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	tree := sha256.Sum256([]byte(root)) // each source tree has its own
	dir := filepath.Join(cache, "agentix-faulttest", hex.EncodeToString(tree[:4])+strings.Join(append([]string{""}, tags...), "-"))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // test processes run in parallel
		t.Fatal(err)
	}
	args := []string{"build", "-tags", key, "-o", dir + "/", "./daemon/cmd/agentixd", "./runtime/cmd/agentix-runtime"}
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	b := Binaries{Daemon: filepath.Join(dir, "agentixd"), Runtime: filepath.Join(dir, "agentix-runtime")}
	if builds.made == nil {
		builds.made = map[string]Binaries{}
	}
	builds.made[key] = b
	return b
}

// WithEnv returns a runtime that starts with variables which the daemon would not pass on.
func (b Binaries) WithEnv(t testing.TB, dir string, env ...string) Binaries {
	t.Helper()
	script := "#!/bin/sh\n"
	for _, v := range env {
		script += "export '" + v + "'\n"
	}
	path := filepath.Join(dir, "runtime-with-env")
	if err := os.WriteFile(path, []byte(script+"exec '"+b.Runtime+"' \"$@\"\n"), 0o700); err != nil { //nolint:gosec // it is to be executed
		t.Fatal(err)
	}
	b.Runtime = path
	return b
}
