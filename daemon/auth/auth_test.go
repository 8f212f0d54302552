package auth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/daemon/auth"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

const secret = "CANARY-0123456789abcdef"

func TestAuthenticate(t *testing.T) {
	a := auth.New(auth.NewToken(secret), 0, 1000)
	for name, c := range map[string]struct {
		conn   auth.Conn
		header []string
		ok     bool
	}{
		"root on the socket":              {conn: auth.Conn{Peer: &auth.Peer{UID: 0}}, ok: true},
		"own user on the socket":          {conn: auth.Conn{Peer: &auth.Peer{UID: 1000}}, ok: true},
		"other user on the socket":        {conn: auth.Conn{Peer: &auth.Peer{UID: 1001}}},
		"other user with the token":       {conn: auth.Conn{Peer: &auth.Peer{UID: 1001}}, header: []string{"Bearer " + secret}},
		"no token":                        {},
		"empty header":                    {header: []string{""}},
		"empty token":                     {header: []string{"Bearer "}},
		"wrong token":                     {header: []string{"Bearer nope"}},
		"part of the token":               {header: []string{"Bearer " + secret[:len(secret)-1]}},
		"more than the token":             {header: []string{"Bearer " + secret + "x"}},
		"token without scheme":            {header: []string{secret}},
		"other scheme":                    {header: []string{"Basic " + secret}},
		"the token twice":                 {header: []string{"Bearer " + secret, "Bearer " + secret}},
		"right and wrong":                 {header: []string{"Bearer " + secret, "Bearer nope"}},
		"the token":                       {header: []string{"Bearer " + secret}, ok: true},
		"the token, scheme in lower case": {header: []string{"bearer " + secret}, ok: true},
		"gateway's connection alone":      {conn: auth.Conn{Gateway: true}},
	} {
		principal, err := a.Authenticate(c.conn, c.header)
		if (err == nil) != c.ok {
			t.Errorf("%s: got %v", name, err)
		}
		if err != nil && (!errs.Is(err, errs.Unauthenticated) || strings.Contains(err.Error(), "CANARY")) {
			t.Errorf("%s: got %v", name, err)
		}
		if c.ok && principal.Peer != c.conn.Peer {
			t.Errorf("%s: got peer %v", name, principal.Peer)
		}
	}
}

// Metadata that claims to be of a Unix socket counts on the gateway's connection only.
func TestForwardedPeerCountsFromTheGatewayOnly(t *testing.T) {
	a := auth.New(auth.NewToken(secret), 0)
	md := auth.Forward(auth.Conn{Peer: &auth.Peer{UID: 0, GID: 5, PID: 7}})
	for _, c := range []struct {
		conn auth.Conn
		ok   bool
	}{{auth.Conn{Gateway: true}, true}, {auth.Conn{}, false}, {auth.Conn{Peer: &auth.Peer{UID: 1001}}, false}} {
		ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), md), &peer.Peer{AuthInfo: c.conn})
		principal, err := a.AuthenticateRPC(ctx)
		if (err == nil) != c.ok {
			t.Errorf("%+v: got %v", c.conn, err)
		}
		if c.ok && *principal.Peer != (auth.Peer{UID: 0, GID: 5, PID: 7}) {
			t.Errorf("got %+v", principal.Peer)
		}
	}
	ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), metadata.Join(md, md)), &peer.Peer{AuthInfo: auth.Conn{Gateway: true}})
	if _, err := a.AuthenticateRPC(ctx); err == nil {
		t.Error("doubled metadata was believed")
	}
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	made, err := auth.LoadToken(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("got %v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(content))
	if len(text) != 43 || !made.Matches(text) {
		t.Errorf("the token in the file has %d bytes and matches: %t", len(text), made.Matches(text))
	}
	again, err := auth.LoadToken(path)
	if err != nil || again != made {
		t.Errorf("read again: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.LoadToken(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("short\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.LoadToken(path); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("a short token: %v", err)
	}
	link := filepath.Join(t.TempDir(), "token")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.LoadToken(link); err == nil {
		t.Error("a symlink was read")
	}
}

func TestTokenPrintsAsRedacted(t *testing.T) {
	token := auth.NewToken(secret)
	encoded, err := json.Marshal(struct{ Token auth.Token }{token})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "token", token)
	for _, text := range []string{fmt.Sprint(token), fmt.Sprintf("%v %+v %s", token, token, token), string(encoded), log.String()} {
		if !strings.Contains(text, "[redacted]") || strings.Contains(text, "CANARY") {
			t.Errorf("got %s", text)
		}
	}
}

func TestPeerOf(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	got, err := auth.PeerOf(server.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	if want := (auth.Peer{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: int32(os.Getpid())}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}
