package sandboxes

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/runtime/wire"
)

const (
	healthTimeout       = 2 * time.Second
	maxHealthTextBytes  = 128
	maxHealthCapability = 64 // entries
)

// askHealth asks the runtime for its version and capabilities. They are for show, so a
// runtime that does not answer well costs nothing but them.
func (m *Manager) askHealth(ctx context.Context, handle providers.Handle) wire.Health {
	ctx, cancel := context.WithTimeoutCause(ctx, healthTimeout, errors.New("no answer to /health in time"))
	defer cancel()
	h, err := link.Health(ctx, handle.Dial, m.opts.Store.RuntimeToken(handle.ID()))
	if err != nil {
		m.log.Debug("runtime health not read", "sandbox", handle.ID(), "err", err)
		return wire.Health{}
	}
	return h
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
