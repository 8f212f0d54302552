package daemontest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

var build struct {
	once   sync.Once
	path   string
	output string
	err    error
}

// Runtime returns the agentix-runtime binary: AGENTIX_RUNTIME_PATH, or one that is built
// from this source tree into the user's cache, once per process.
func Runtime(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("AGENTIX_RUNTIME_PATH"); path != "" {
		return path
	}
	build.once.Do(buildRuntime)
	if build.err != nil {
		t.Fatalf("build agentix-runtime: %v\n%s", build.err, build.output)
	}
	return build.path
}

func buildRuntime() {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	tree := sha256.Sum256([]byte(root)) // each source tree has a runtime of its own
	dir := filepath.Join(cache, "agentix-daemontest", hex.EncodeToString(tree[:8]))
	if build.err = os.MkdirAll(dir, 0o750); build.err != nil {
		return
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		build.err = err
		return
	}
	defer lock.Close()
	if build.err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); build.err != nil { // test processes run in parallel
		return
	}
	build.path = filepath.Join(dir, "agentix-runtime")
	command := exec.Command("go", "build", "-o", build.path, "./runtime/cmd/agentix-runtime") //nolint:noctx // Of this tree; it ends by itself.
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := command.CombinedOutput()
	build.output, build.err = string(output), err
}
