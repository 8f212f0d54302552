package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentixd/agentixd/worker"
)

// unpackDirs are where the worker's files may go, the first that can be written. A private
// directory of the socket comes first: who made it removes it, even after a kill.
func unpackDirs(socket string) []string {
	dirs := []string{os.TempDir(), "/dev/shm", "/run", "/var/tmp"}
	if socket == "" {
		return dirs
	}
	parent := filepath.Dir(socket)
	if info, err := os.Stat(parent); err == nil && info.Mode().Perm()&0o077 == 0 {
		return append([]string{parent}, dirs...)
	}
	return dirs
}

// unpackWorker writes the Python packages of the worker to a private directory.
func unpackWorker(socket string) (string, error) {
	var errs []error
	for _, parent := range unpackDirs(socket) {
		dir, err := os.MkdirTemp(parent, "agentix-worker-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := copyTree(dir, worker.FS); err != nil {
			errs = append(errs, err, os.RemoveAll(dir))
			continue
		}
		return dir, nil
	}
	return "", fmt.Errorf("unpack the worker: %w", errors.Join(errs...))
}

func copyTree(dir string, tree fs.FS) error {
	return fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(path))
		if d.IsDir() {
			return os.Mkdir(to, 0o700)
		}
		b, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
}
