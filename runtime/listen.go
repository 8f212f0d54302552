package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// maxSunPath is the longest path that a Unix socket address holds.
const maxSunPath = 107

// listen opens the socket or the TCP port of c.
func listen(c *Config) (net.Listener, error) {
	if c.Socket == "" {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(c.Host, c.Port))
		if err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		return l, nil
	}
	if err := removeStale(c.Socket); err != nil {
		return nil, err
	}
	path := c.Socket
	if len(path) > maxSunPath {
		// The address would not hold it: go by the open parent directory.
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", c.Socket, err)
		}
		defer func() { _ = dir.Close() }()
		path = "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", c.Socket, err)
	}
	l.SetUnlinkOnClose(false) // by its real path, below
	// gVisor lets no socket of the host be changed; the directory around it is private all the same.
	if err := os.Chmod(c.Socket, 0o600); err != nil && !errors.Is(err, os.ErrPermission) {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", c.Socket, err), l.Close())
	}
	return &unixListener{UnixListener: l, path: c.Socket}, nil
}

// removeStale removes a socket that an earlier process left, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("listen on %s: it exists and is not a socket", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	return nil
}

// unixListener removes its socket when it closes.
type unixListener struct {
	*net.UnixListener
	path string
}

// Close stops listening and removes the socket.
func (l *unixListener) Close() error {
	err := l.UnixListener.Close()
	if rmErr := os.Remove(l.path); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
		err = errors.Join(err, rmErr)
	}
	return err
}
