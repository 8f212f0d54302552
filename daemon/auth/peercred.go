package auth

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerOf asks the kernel who connected on a Unix socket.
func PeerOf(conn syscall.Conn) (*Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	if credErr != nil {
		return nil, fmt.Errorf("read peer credentials: %w", credErr)
	}
	return &Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}

// Known is a connection that carries what is known of it.
type Known interface {
	net.Conn
	AuthConn() Conn
}
