// Package auth says who a caller is: a process on the Unix socket by its kernel-given
// credentials, or anyone on loopback TCP who knows the token. Every byte of a request is
// hostile until it has passed here; nothing of a credential is ever logged or returned.
package auth

import (
	"context"
	"strconv"
	"strings"

	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/grpc/credentials"
)

// Peer is the process at the other end of a Unix socket, as the kernel tells.
type Peer struct {
	UID uint32
	GID uint32
	PID int32
}

// Conn is what is known of a connection before any byte was read from it.
type Conn struct {
	// Peer is set on a Unix socket.
	Peer *Peer
	// Gateway is set on the gateway's own connection inside this process. There the
	// caller's connection comes with each request, see Forward.
	Gateway bool
}

// AuthType makes Conn, with GetCommonAuthInfo, a credentials.AuthInfo.
func (Conn) AuthType() string { return "agentix" }

// GetCommonAuthInfo says that local connections need no transport security.
func (Conn) GetCommonAuthInfo() credentials.CommonAuthInfo {
	return credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}
}

// Principal is an authenticated caller.
type Principal struct {
	// Peer is set for callers on the Unix socket; only they may name host paths.
	Peer *Peer
}

// Name is the principal in logs and per-principal limits.
func (p Principal) Name() string {
	if p.Peer != nil {
		return "uid:" + strconv.FormatUint(uint64(p.Peer.UID), 10)
	}
	return "token"
}

// Authenticator admits callers.
type Authenticator struct {
	token Token
	uids  map[uint32]bool
}

// New returns an Authenticator that admits the token on TCP and these users on the Unix socket.
func New(token Token, uids ...uint32) *Authenticator {
	a := &Authenticator{token: token, uids: map[uint32]bool{}}
	for _, uid := range uids {
		a.uids[uid] = true
	}
	return a
}

// Authenticate returns the caller, or Unauthenticated. authorization are all values of the
// Authorization header; more than one is refused, so that no two readers can disagree.
func (a *Authenticator) Authenticate(conn Conn, authorization []string) (Principal, error) {
	if conn.Peer != nil {
		if !a.uids[conn.Peer.UID] {
			return Principal{}, errs.New(errs.Unauthenticated, errs.NoCredential,
				"this user may not use the daemon; only root and the daemon's own user may")
		}
		return Principal{Peer: conn.Peer}, nil
	}
	const want = "send the daemon's token as `Authorization: Bearer TOKEN`"
	switch len(authorization) {
	case 0:
		return Principal{}, errs.New(errs.Unauthenticated, errs.NoCredential, "no credential: "+want)
	case 1:
	default:
		return Principal{}, errs.New(errs.Unauthenticated, errs.NoCredential, "more than one Authorization header: "+want)
	}
	scheme, secret, ok := strings.Cut(authorization[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") || !a.token.Matches(secret) {
		return Principal{}, errs.New(errs.Unauthenticated, errs.NoCredential, "wrong credential: "+want)
	}
	return Principal{}, nil
}

type connKey struct{}

// WithConn returns ctx with what is known of the connection, for HTTP requests.
func WithConn(ctx context.Context, conn Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// ConnFrom is the connection of an HTTP request; without one nothing is known of it.
func ConnFrom(ctx context.Context) Conn {
	conn, _ := ctx.Value(connKey{}).(Conn)
	return conn
}

type principalKey struct{}

// WithPrincipal returns ctx with its authenticated caller.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom is the caller of a request; false before it was authenticated.
func PrincipalFrom(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}
