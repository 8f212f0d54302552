package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Foreign is what it takes to talk to a runtime that someone else runs. It may be a
// neighbour's or one of ours, and may change from one to the other: it is asked before each
// connection.
type Foreign struct {
	Host          string // for the HTTP requests
	Authorization string // header of the HTTP requests, a secret; empty = none
	// Tag tells the calls of this sandbox from those of others on the same runtime. It stays
	// the same as long as the sandbox lives, over restarts of the daemon.
	Tag string
}

func (f *Foreign) host() string {
	if f == nil || f.Host == "" {
		return "runtime"
	}
	return f.Host
}

func (f *Foreign) header() http.Header {
	h := http.Header{}
	if f != nil && f.Authorization != "" {
		h.Set("Authorization", f.Authorization)
	}
	return h
}

const (
	maxHealthBytes        = 65536 // 64 KiB: body of GET /health
	maxHealthCapabilities = 64
)

// whoIsThere finds out what kind of runtime listens. Without Foreign it is one of ours.
func (l *Link) whoIsThere(ctx context.Context) (Peer, error) {
	if l.opts.Foreign == nil {
		return Peer{Health: wire.Health{Status: "ok", Runtime: "agentix-runtime", Protocol: 1}}, nil
	}
	h, err := l.askHealth(ctx)
	switch {
	case errors.Is(err, errProtocol), errors.Is(err, errStatus), errors.Is(err, errRedirect):
		return Peer{}, fmt.Errorf("%w: %w", errNoRuntime, err)
	case err != nil:
		return Peer{}, err
	}
	return Peer{Health: h, Neighbour: l.refused || !ours(h)}, nil
}

// errRefused is the answer to a CONNECT. One of our runtimes that is guarded by a secret for
// neighbours gives it to a daemon without its token: then we are a neighbour there.
var errRefused = errors.New("the runtime refused")

// errNoRuntime is wrapped by errors about a foreign runtime that will not pass by waiting.
var errNoRuntime = errors.New("what answers there is no runtime, or does not let us in")

// errStatus is a status of GET /health that says that something else is there.
var errStatus = errors.New("status")

// ours reports whether a runtime can all that our side of the wire counts on. One that tells
// no capabilities, or too few, is spoken to as the public protocol says.
func ours(h wire.Health) bool {
	for _, c := range []string{wire.CapFence, wire.CapEncoding, wire.CapDeadline, wire.CapOwnedResults, wire.CapSidAck} {
		if !slices.Contains(h.Capabilities, c) {
			return false
		}
	}
	return true
}

func (l *Link) askHealth(ctx context.Context) (wire.Health, error) {
	body, err := getHealth(ctx, l.opts.Dial, l.opts.Foreign.host(), l.opts.Foreign.header())
	if err != nil {
		return wire.Health{}, err
	}
	return decodeHealth(body)
}

// Health asks one of our runtimes over a connection of its own for its health. Without
// token, it tells only its status and version.
func Health(ctx context.Context, dial func(context.Context) (net.Conn, error), token string) (wire.Health, error) {
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	var h wire.Health
	body, err := getHealth(ctx, dial, "runtime", header)
	if err == nil && json.Unmarshal(body, &h) != nil {
		err = violation("health is not its JSON object")
	}
	return h, err
}

func getHealth(ctx context.Context, dial func(context.Context) (net.Conn, error), host string, header http.Header) ([]byte, error) {
	client := httpClient(dial)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/health", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get health: %w", err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get health: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch code := resp.StatusCode; {
	case code >= http.StatusMultipleChoices && code < http.StatusInternalServerError:
		return nil, fmt.Errorf("get health: %w %d", errStatus, code)
	case code != http.StatusOK: // it may be about to start
		return nil, fmt.Errorf("get health: status %d", code)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBytes+1))
	if err != nil {
		return nil, fmt.Errorf("get health: %w", err)
	}
	if len(body) > maxHealthBytes {
		return nil, violation("health over %d bytes", maxHealthBytes)
	}
	return body, nil
}

// decodeHealth reads the body of GET /health. A neighbour's may have keys of our names that
// mean something else.
func decodeHealth(body []byte) (h wire.Health, err error) {
	var told map[string]json.RawMessage
	if err := json.Unmarshal(body, &told); err != nil {
		return h, violation("no JSON object")
	}
	if json.Unmarshal(told["version"], &h.Version) != nil {
		return h, violation("no version in it")
	}
	h.Status, h.Version = "ok", cut(h.Version, 64)
	var capabilities []string
	if json.Unmarshal(told["capabilities"], &capabilities) == nil {
		for _, c := range capabilities[:min(len(capabilities), maxHealthCapabilities)] {
			h.Capabilities = append(h.Capabilities, cut(c, 64))
		}
	}
	return h, nil
}
