package runtime

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/zishang520/socket.io/servers/socket/v3"

	"github.com/agentixd/agentixd/runtime/wire"
)

// caller is who a connection or a request comes from.
type caller int

const (
	stranger  caller = iota // presented nothing that lets it in
	neighbour               // a host of the public protocol
	ourDaemon
)

// same compares secrets in constant time, whatever their lengths.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// basicOK checks HTTP Basic, which is all that hosts of the public protocol can present: any
// user, with the neighbours' secret as the password.
func (r *Runtime) basicOK(h http.Header) bool {
	_, password, ok := (&http.Request{Header: h}).BasicAuth()
	return ok && r.cfg.NeighbourSecret != "" && same(password, r.cfg.NeighbourSecret)
}

// tokenOK checks the token of our daemon.
func (r *Runtime) tokenOK(token string) bool { return r.cfg.Token != "" && same(token, r.cfg.Token) }

// callerOf tells who sent a request.
func (r *Runtime) callerOf(req *http.Request) caller {
	token, bearer := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	switch {
	case bearer && r.tokenOK(token):
		return ourDaemon
	case !r.cfg.guarded(), r.basicOK(req.Header):
		return neighbour
	}
	return stranger
}

// callerOn tells who joins a namespace.
func (r *Runtime) callerOn(sock *socket.Socket) caller {
	auth := sock.Handshake().Auth
	role, _ := auth["role"].(string)
	token, _ := auth["token"].(string)
	switch {
	case role == wire.RoleDaemon && (r.tokenOK(token) || !r.cfg.guarded()):
		return ourDaemon
	case role == wire.RoleDaemon:
		return stranger
	case !r.cfg.guarded(), r.basicOK(sock.Request().Request().Header):
		return neighbour
	}
	return stranger
}

// guardSocketIO refuses requests to the Socket.IO server that cannot join anything.
func (r *Runtime) guardSocketIO(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		tries := req.Header.Get("Authorization") != "" || r.cfg.Token == ""
		if r.cfg.NeighbourSecret != "" && tries && r.callerOf(req) == stranger {
			w.Header().Set("WWW-Authenticate", `Basic realm="agentix-runtime"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		// As the protocol has it: no transport named means polling.
		if query := req.URL.Query(); !query.Has("transport") {
			req.URL.RawQuery += "&transport=polling"
		}
		next.ServeHTTP(w, req)
	})
}

// checkOrigin refuses pages of other origins: a browser on the machine may reach our port.
// Only our own clients, which send no Origin, and a page served from this very address under
// a name that cannot be rebound are let in.
func checkOrigin(req *http.Request) error {
	origins := req.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	u, err := url.Parse(origins[0])
	if err != nil || len(origins) > 1 || u.Host == "" || !strings.EqualFold(u.Host, req.Host) {
		return errForeignOrigin
	}
	if host := u.Hostname(); net.ParseIP(host) == nil && !isLocalName(host) {
		return errForeignOrigin
	}
	return nil
}
