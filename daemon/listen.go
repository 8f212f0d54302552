package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// listenUnix listens on a path that only this user can connect to: the socket is made in
// a private directory and moved to its place with mode 0600. A socket that is there and
// dead is replaced; one that answers belongs to someone and is left alone.
func listenUnix(ctx context.Context, path string) (*unixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := checkFree(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer os.RemoveAll(private) //nolint:errcheck // Empty by then, or there is an error already.
	dir, err := unix.Open(private, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer unix.Close(dir) //nolint:errcheck // Nothing was written.
	// Through the descriptor the name stays below the limit for a socket's path.
	short := fmt.Sprintf("/proc/self/fd/%d/s", dir)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", short)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	u := &unixListener{Listener: listener, path: path}
	err = errors.Join(os.Chmod(short, 0o600), os.Rename(filepath.Join(private, "s"), path))
	if err == nil {
		u.info, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), listener.Close())
	}
	return u, nil
}

func checkFree(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("something that is no socket has this name; remove it or choose another --socket")
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return errors.New("another process listens there; stop it or choose another --socket")
	}
	return nil
}

// unixListener removes its path when it is closed, unless another took the name meanwhile.
type unixListener struct {
	net.Listener
	path string
	info fs.FileInfo
}

// Close stops listening and removes the path.
func (u *unixListener) Close() error {
	if now, err := os.Lstat(u.path); err == nil && os.SameFile(now, u.info) {
		_ = os.Remove(u.path)
	}
	return u.Listener.Close() //nolint:wrapcheck // net's errors name the address.
}

// listenTCP listens on a loopback address, checked again after the name was resolved.
func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("listen on %s: not a loopback address", address), listener.Close())
	}
	return listener, nil
}
