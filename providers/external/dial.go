package external

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
)

const (
	dialTimeout  = 5 * time.Second // for one address
	maxAddresses = 8               // of one host
)

// keepAlive finds a peer that has gone without a word within half a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

func refused(format string, args ...any) error {
	return errs.New(errs.PermissionDenied, errs.ExternalRefused, format, args...)
}

// resolve returns the addresses of a runtime that may be joined; none, and no error, for a
// Unix socket that may.
func (p *Provider) resolve(ctx context.Context, e endpoint) ([]netip.AddrPort, error) {
	if e.socket != "" {
		if _, _, ok := p.allow.socket(e.socket); !ok {
			return nil, refused("runtime.url: the socket is not below a path that agentixd's --external-allow names")
		}
		return nil, nil
	}
	port, err := strconv.ParseUint(e.port, 10, 16)
	if err != nil {
		return nil, errs.Invalid("sandbox.runtime.url", "has a port that is none of 1 to 65535")
	}
	found, err := p.addresses(ctx, e.name)
	if err != nil {
		return nil, errs.New(errs.FailedPrecondition, errs.StartFailed, "runtime.url: the host %q has no address", e.name).WithCause(err)
	}
	var allowed []netip.AddrPort
	for _, addr := range found {
		if p.allow.address(addr) && len(allowed) < maxAddresses {
			allowed = append(allowed, netip.AddrPortFrom(addr.Unmap(), uint16(port)))
		}
	}
	if len(allowed) == 0 {
		return nil, refused("runtime.url: no address of the host %q is one that agentixd's --external-allow admits", e.name)
	}
	return allowed, nil
}

func (p *Provider) addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{addr}, nil
	}
	return p.lookup(ctx, name)
}

// dial connects to an address that was checked, and to no other.
func (p *Provider) dial(ctx context.Context, e endpoint) (net.Conn, error) {
	addresses, err := p.resolve(ctx, e)
	if err != nil {
		return nil, err
	}
	if e.socket != "" {
		return p.dialSocket(ctx, e.socket)
	}
	var failures []error
	for _, address := range addresses {
		conn, err := dialAddress(ctx, e, address)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func dialAddress(ctx context.Context, e endpoint, address netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errors.New("no connection in time"))
	defer cancel()
	d := net.Dialer{KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", address.String())
	if err != nil || !e.tls {
		return conn, err //nolint:wrapcheck // net's errors name the address
	}
	secure := tls.Client(conn, &tls.Config{ServerName: e.name, MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tls with %s: %w", address, err)
	}
	return secure, nil
}

// dialSocket connects to a Unix socket below an allowed prefix, without following a symlink
// below it, and to the very inode that was opened.
func (p *Provider) dialSocket(ctx context.Context, name string) (net.Conn, error) {
	prefix, rest, _ := p.allow.socket(name)
	dir, err := unix.Open(prefix, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", prefix, err)
	}
	defer unix.Close(dir) //nolint:errcheck // an O_PATH descriptor has nothing to lose
	fd, err := unix.Openat2(dir, rest, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH,
	})
	if err != nil {
		return nil, fmt.Errorf("open socket below %s: %w", prefix, err)
	}
	defer unix.Close(fd) //nolint:errcheck // as above
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat socket below %s: %w", prefix, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("what is named below %s is no socket", prefix)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd)) //nolint:wrapcheck // as above
}
