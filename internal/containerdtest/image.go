package containerdtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// imageRecipe changes when the image is to be built anew.
const imageRecipe = "v2 mmdebstrap --variant=extract --include=python3, compiled"

// compileHook compiles the standard library, as images of Python have it: Debian does so when
// packages are configured, which --variant=extract leaves out, and every start of a worker
// would compile it anew.
const compileHook = `chroot "$1" /usr/bin/python3 -S -m compileall -q -x '/(test|tests|idlelib|lib2to3|tkinter)/' $(cd "$1" && ls -d usr/lib/python3.* | sed s,^,/,)`

// PythonRootFS returns the path of a tar with Debian's python3 and what it needs, about
// 60 MB. It is built once (about 5 s) and kept in the user's cache directory.
func PythonRootFS(ctx context.Context) (string, error) {
	suite, err := hostSuite()
	if err != nil {
		return "", fmt.Errorf("build image: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "agentix")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("build image: %w", err)
	}
	key := sha256.Sum256([]byte(imageRecipe + " " + suite))
	path := filepath.Join(dir, "python-"+suite+"-"+hex.EncodeToString(key[:4])+".tar")
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("build image: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("build image: %w", err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	args := []string{"--variant=extract", "--include=python3", "--format=tar", "--quiet", "--extract-hook=" + compileHook, suite, path + ".new"}
	if sources := hostSources(); sources != "" {
		args = append(args, sources)
	}
	out, err := exec.CommandContext(ctx, "mmdebstrap", args...).CombinedOutput()
	if err != nil {
		_ = os.Remove(path + ".new")
		return "", fmt.Errorf("build image with mmdebstrap (apt-get install mmdebstrap): %w: %s", err, out)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("build image: %w", err)
	}
	return path, nil
}

// hostSuite is the host's own Debian release; elsewhere bookworm.
func hostSuite() (string, error) {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[k] = strings.Trim(v, `"`)
		}
	}
	if values["ID"] == "debian" && values["VERSION_CODENAME"] != "" {
		return values["VERSION_CODENAME"], nil
	}
	return "bookworm", nil
}

// hostSources is where the host itself gets Debian's packages from; empty = Debian's mirror.
func hostSources() string {
	for _, path := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "deb") {
			return path
		}
	}
	return ""
}
