package providers

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// DialSocket connects to the Unix socket at path. The directory that holds it is writable by
// the sandbox, so the name itself is never trusted: it is opened without following a
// symlink, must be a socket, and the connection goes to that very inode. The length of
// path does not matter.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd) //nolint:errcheck // an O_PATH descriptor has nothing to lose
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat socket: %w", &os.PathError{Op: "stat", Path: path, Err: err})
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("open socket: %s is no socket (mode %#o)", path, st.Mode)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}
