package external

import (
	"encoding/base64"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentixd/agentixd/internal/errs"
)

const maxURLBytes = 2048

// endpoint is where a runtime listens.
type endpoint struct {
	tls      bool
	name     string // host name or address; empty for a Unix socket
	port     string
	socket   string // path of a Unix socket
	userinfo *url.Userinfo
}

// parseURL takes http(s)://[user:password@]host[:port] and unix:///path. The texts of its
// errors hold nothing of the URL: there may be a password anywhere in a malformed one.
func parseURL(text string) (endpoint, error) {
	bad := func(format string, args ...any) (endpoint, error) {
		return endpoint{}, errs.Invalid("sandbox.runtime.url", format, args...)
	}
	switch {
	case text == "":
		return bad("must be http(s)://[user:password@]host:port or unix:///path")
	case len(text) > maxURLBytes:
		return bad("is %d bytes long, over the limit of %d", len(text), maxURLBytes)
	case !utf8.ValidString(text):
		return bad("must be UTF-8")
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("is no URL")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
		return bad("must have neither query nor fragment")
	}
	e := endpoint{userinfo: u.User}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) != u.Path || strings.ContainsRune(u.Path, 0) {
			return bad("of a Unix socket must be unix:// and an absolute path without . or ..")
		}
		e.socket = u.Path
		return e, nil
	case "http", "https":
		e.tls = u.Scheme == "https"
	default:
		return bad("must begin with http://, https:// or unix://")
	}
	if u.Path != "" && u.Path != "/" {
		return bad("must have no path: the public protocol drops it")
	}
	e.name, e.port = u.Hostname(), u.Port()
	if e.port == "" {
		e.port = map[bool]string{false: "80", true: "443"}[e.tls]
	}
	if n, err := strconv.ParseUint(e.port, 10, 16); err != nil || n == 0 {
		return bad("has a port that is none of 1 to 65535")
	}
	if e.name == "" || len(e.name) > 255 || strings.ContainsAny(e.name, "% \t/\\") {
		return bad("must name a host")
	}
	return e, nil
}

// host is the Host header.
func (e endpoint) host() string {
	if e.socket != "" {
		return "runtime"
	}
	return net.JoinHostPort(e.name, e.port)
}

// authorization is HTTP Basic of the URL's user info; empty without one.
func (e endpoint) authorization() string {
	if e.userinfo == nil {
		return ""
	}
	password, _ := e.userinfo.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(e.userinfo.Username()+":"+password))
}
