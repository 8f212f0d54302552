package docker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

const (
	logTimeout   = 5 * time.Second
	maxLogRead   = 4 << 20 // 4 MiB: the engine keeps less
	logTailBytes = 2048
)

// handle is one sandbox.
type handle struct {
	p  *Provider
	id string
}

var (
	_ providers.Statuser      = handle{}
	_ providers.Pauser        = handle{}
	_ providers.RuntimeLogger = handle{}
)

// ID is the sandbox id.
func (h handle) ID() string { return h.id }

// Dial connects to the runtime's socket in the sandbox's small file system.
func (h handle) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := providers.DialSocket(ctx, h.p.hostDir(h.id).socket())
	if err != nil {
		return nil, fmt.Errorf("dial sandbox %s: %w", h.id, err)
	}
	return conn, nil
}

// Status asks the engine.
func (h handle) Status(ctx context.Context) (providers.Status, error) {
	st, err := h.p.status(ctx, h.id, h.p.containerName(h.id))
	if err != nil {
		return st, fmt.Errorf("ask for sandbox %s: %w", h.id, translate(err))
	}
	return st, nil
}

// Pause freezes all processes. See providers.Pauser.
func (h handle) Pause(ctx context.Context) error { return h.freeze(ctx, "pause", true) }

// Resume lets them go on. See providers.Pauser.
func (h handle) Resume(ctx context.Context) error { return h.freeze(ctx, "unpause", false) }

func (h handle) freeze(ctx context.Context, what string, paused bool) error {
	unlock, err := h.p.locks.Lock(ctx, h.id)
	if err != nil {
		return err
	}
	defer unlock()
	name := h.p.containerName(h.id)
	err = h.p.engine.post(ctx, "/containers/"+name+"/"+what, nil, nil, nil)
	if err == nil {
		return nil
	}
	if answered(err, http.StatusNotFound) {
		return noSandbox(h.id)
	}
	// The engine refuses to do it twice.
	if st, statusErr := h.p.status(ctx, h.id, name); statusErr == nil && st.Running && st.Paused == paused {
		return nil
	}
	return fmt.Errorf("%s sandbox %s: %w", what, h.id, translate(err))
}

func noSandbox(id string) error {
	return errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", id)
}

// RuntimeLog returns the end of what the runtime itself wrote to its standard error.
func (h handle) RuntimeLog() string {
	ctx, cancel := context.WithTimeoutCause(h.p.closing, logTimeout, fmt.Errorf("no log of sandbox %s", h.id))
	defer cancel()
	resp, err := h.p.engine.do(ctx, http.MethodGet, "/containers/"+h.p.containerName(h.id)+"/logs",
		url.Values{"stderr": {"1"}, "tail": {"200"}}, nil, nil)
	if err != nil {
		return ""
	}
	defer resp.Body.Close() //nolint:errcheck // as much as was read
	return strings.TrimSpace(strings.ToValidUTF8(string(lastOf(io.LimitReader(resp.Body, maxLogRead))), "\uFFFD"))
}

// lastOf is the end of a stream of the engine's frames: 8 bytes with the length in the last
// four, and so many bytes.
func lastOf(r io.Reader) (tail []byte) {
	var head [8]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return tail
		}
		data, err := io.ReadAll(io.LimitReader(r, int64(binary.BigEndian.Uint32(head[4:]))))
		tail = append(tail, data...)
		tail = tail[max(0, len(tail)-logTailBytes):]
		if err != nil {
			return tail
		}
	}
}

// Get returns the handle of a sandbox that exists, running or not.
func (p *Provider) Get(ctx context.Context, id string) (providers.Handle, error) {
	if !providers.ValidID(id) {
		return nil, noSandbox(id)
	}
	_, err := p.inspect(ctx, p.containerName(id))
	if answered(err, http.StatusNotFound) {
		return nil, noSandbox(id)
	}
	if err != nil {
		return nil, fmt.Errorf("get sandbox %s: %w", id, translate(err))
	}
	return handle{p: p, id: id}, nil
}
