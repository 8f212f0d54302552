package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/runtime/wire"
)

const (
	healthTimeout       = 2 * time.Second
	maxHealthBytes      = 65536 // 64 KiB: body of GET /health
	maxHealthTextBytes  = 128
	maxHealthCapability = 64 // entries
)

// askHealth asks the runtime for its version and capabilities. They are for show, so a
// runtime that does not answer well costs nothing but them.
func (m *Manager) askHealth(ctx context.Context, handle providers.Handle) wire.Health {
	ctx, cancel := context.WithTimeoutCause(ctx, healthTimeout, errors.New("no answer to /health in time"))
	defer cancel()
	h, err := fetchHealth(ctx, handle, m.opts.Store.RuntimeToken(handle.ID()))
	if err != nil {
		m.log.Debug("runtime health not read", "sandbox", handle.ID(), "err", err)
		return wire.Health{}
	}
	return h
}

func fetchHealth(ctx context.Context, handle providers.Handle, token string) (h wire.Health, err error) {
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return handle.Dial(ctx) },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHealthBytes,
	}
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox/health", nil)
	if err != nil {
		return h, fmt.Errorf("ask health: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token) // without it only the status is told
	resp, err := client.Do(req)
	if err != nil {
		return h, fmt.Errorf("ask health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return h, fmt.Errorf("ask health: status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBytes))
	if err != nil {
		return h, fmt.Errorf("ask health: %w", err)
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return wire.Health{}, fmt.Errorf("ask health: %w", err)
	}
	return h, nil
}

// runtimeOf joins what the link and /health told, bounded.
func runtimeOf(linked, told wire.Health) *Runtime {
	r := &Runtime{Version: text(told.Version), Python: text(linked.Python)}
	if r.Python == "" {
		r.Python = text(told.Python)
	}
	for _, c := range told.Capabilities[:min(len(told.Capabilities), maxHealthCapability)] {
		r.Capabilities = append(r.Capabilities, text(c))
	}
	return r
}

func text(s string) string {
	s = strings.ToValidUTF8(clip(s, maxHealthTextBytes), "")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}
