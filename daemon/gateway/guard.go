package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// headers are the request headers that cross to gRPC, by their metadata names. Everything
// else stops here. Authorization crosses by the gateway library itself.
var headers = map[string]string{
	"Traceparent":  "traceparent",
	"X-Request-Id": "x-request-id",
}

func incomingHeader(key string) (string, bool) {
	name, ok := headers[key]
	return name, ok
}

func outgoingHeader(key string) (string, bool) {
	if key == "x-request-id" {
		return "X-Request-Id", true
	}
	return "", false
}

func hostSet(names []string) map[string]bool {
	set := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	for _, name := range names {
		set[strings.ToLower(name)] = true
	}
	return set
}

// checkSite refuses requests that a web page of a foreign site could have caused: another
// name in Host (DNS rebinding) or in Origin. A Unix socket is out of a page's reach, so
// any Host is good there.
func (g *gateway) checkSite(r *http.Request) error {
	if !g.Local(r) && !g.hosts[hostName(r.Host)] {
		return errs.New(errs.PermissionDenied, errs.ForeignOrigin,
			"the Host header names another site; use localhost or allow the name with --http-host")
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !g.hosts[hostName(u.Host)] {
			return errs.New(errs.PermissionDenied, errs.ForeignOrigin,
				"the Origin header names another site; pages of other sites may not use the daemon")
		}
	}
	return nil
}

// hostName is a Host header without its port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// checkRequest refuses what no honest client sends.
func checkRequest(r *http.Request) error {
	for key := range r.Header {
		if strings.HasPrefix(key, "Grpc-Metadata-") || strings.HasSuffix(key, "-Bin") {
			return errs.Invalid(clip(key), "this header is not accepted")
		}
	}
	if !utf8.ValidString(r.URL.Path) || strings.ContainsRune(r.URL.Path, 0) {
		return errs.Invalid("path", "must be UTF-8 without NUL")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return errs.Invalid("query", "is malformed").WithCause(err)
	}
	for key, values := range query {
		for _, text := range append(values, key) {
			if !utf8.ValidString(text) {
				return errs.Invalid("query", "must be UTF-8")
			}
		}
	}
	if r.ContentLength > wire.MaxBodyBytes {
		return errs.OverLimit("body_bytes", wire.MaxBodyBytes, r.ContentLength)
	}
	return nil
}

// body is a request body with a limit. It remembers why reading or decoding it failed,
// for the error handler, which gets the text only.
type body struct {
	io.ReadCloser
	control  *http.ResponseController
	extended time.Time
	read     int64
	err      error
	over     bool
}

func newBody(w http.ResponseWriter, r *http.Request) *body {
	return &body{ReadCloser: r.Body, control: http.NewResponseController(w)}
}

// bodyTimeout is how long a body may make no progress.
const bodyTimeout = 30 * time.Second

func (b *body) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Read fails once the body is over its limit, or has made no progress for too long.
func (b *body) Read(p []byte) (int, error) {
	if b.over {
		return 0, b.err
	}
	if now := time.Now(); now.Sub(b.extended) > time.Second {
		b.extended = now
		_ = b.control.SetReadDeadline(now.Add(bodyTimeout))
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{}) // it would also end the wait for the answer
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.fail(readError(err))
		return n, b.err
	}
	if b.read > wire.MaxBodyBytes {
		b.over = true
		b.fail(errs.OverLimit("body_bytes", wire.MaxBodyBytes, b.read))
		return 0, b.err
	}
	return n, err
}

func readError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errs.New(errs.DeadlineExceeded, errs.Deadline, "the body made no progress for %s", bodyTimeout)
	}
	return errs.Invalid("body", "cannot be read").WithCause(err)
}

// drain reads on for a while after a refusal was sent, so that a client that is still
// sending gets to see it instead of a broken connection.
func drain(w http.ResponseWriter, r io.Reader) {
	control := http.NewResponseController(w)
	_ = control.Flush()
	_ = control.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.CopyN(io.Discard, r, wire.MaxBodyBytes)
}
