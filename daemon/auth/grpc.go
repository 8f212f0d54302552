package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// The metadata by which the gateway forwards the connection of an HTTP caller. They count
// on the gateway's own connection only; anyone else may send them in vain.
const (
	metadataUID = "agentix-peer-uid"
	metadataGID = "agentix-peer-gid"
	metadataPID = "agentix-peer-pid"
)

// Forward is the metadata that tells the gRPC server about an HTTP caller's connection.
func Forward(conn Conn) metadata.MD {
	if conn.Peer == nil {
		return nil
	}
	return metadata.Pairs(
		metadataUID, strconv.FormatUint(uint64(conn.Peer.UID), 10),
		metadataGID, strconv.FormatUint(uint64(conn.Peer.GID), 10),
		metadataPID, strconv.FormatInt(int64(conn.Peer.PID), 10),
	)
}

// AuthenticateRPC is Authenticate for a gRPC request.
func (a *Authenticator) AuthenticateRPC(ctx context.Context) (Principal, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	var conn Conn
	if p, ok := peer.FromContext(ctx); ok {
		conn, _ = p.AuthInfo.(Conn)
	}
	if conn.Gateway {
		conn = forwarded(md)
	}
	return a.Authenticate(conn, md.Get("authorization"))
}

func forwarded(md metadata.MD) Conn {
	number := func(key string, bits int) (int64, bool) {
		values := md.Get(key)
		if len(values) != 1 {
			return 0, false
		}
		n, err := strconv.ParseInt(values[0], 10, bits)
		return n, err == nil
	}
	uid, okUID := number(metadataUID, 64)
	gid, okGID := number(metadataGID, 64)
	pid, okPID := number(metadataPID, 32)
	if !okUID || !okGID || !okPID {
		return Conn{}
	}
	return Conn{Peer: &Peer{UID: uint32(uid), GID: uint32(gid), PID: int32(pid)}}
}

// TransportCredentials takes AuthInfo from the connection itself (Known); the bytes stay plain.
func TransportCredentials() credentials.TransportCredentials { return transport{} }

type transport struct{}

// ServerHandshake takes what is known of the connection.
func (transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	known, ok := conn.(Known)
	if !ok {
		return nil, nil, fmt.Errorf("accept %T: nothing is known of this connection", conn)
	}
	return conn, known.AuthConn(), nil
}

// ClientHandshake fails.
func (transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers only")
}

// Info names the protocol.
func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "agentix"}
}

// Clone is itself: there is no state.
func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName does nothing.
func (transport) OverrideServerName(string) error { return nil }
