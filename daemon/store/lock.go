package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockPatience is how long a lock may be held by a daemon that is gone: a child that it was
// about to start holds it for the moment between fork and exec.
const lockPatience = 2 * time.Second

// lock takes the lock of an open file, or tells that it is held (EWOULDBLOCK).
func lock(f *os.File) error {
	for deadline := time.Now().Add(lockPatience); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err //nolint:wrapcheck // The caller tells.
		}
		<-time.After(10 * time.Millisecond)
	}
}

// lockDir takes the directory's lock for this process and writes its pid into it. The
// kernel drops the lock when the process ends, however it ends.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator's own state directory
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 32))
		closing := f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("it is in use by process %s (lock file %s)", strings.TrimSpace(string(holder)), path)
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), closing)
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
