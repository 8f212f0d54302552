package sandboxes_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/providers"
)

// pressed is a handle that tells what the test says.
type pressed struct {
	providers.Handle
	mu  sync.Mutex
	now providers.Pressure
}

func (p *pressed) Pressure(context.Context) (providers.Pressure, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, nil
}

// TestLimitsThatWereReachedAreEvents: each limit that a sandbox runs into is told once, the sandbox goes on.
func TestLimitsThatWereReachedAreEvents(t *testing.T) {
	r := newRig(t, func(o *sandboxes.Options) { o.PressureInterval = time.Millisecond })
	p := &pressed{}
	r.provider.create = func(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
		h, err := r.provider.Provider.Create(ctx, spec)
		p.Handle = h
		return p, err
	}
	s := r.create(sandboxes.CreateRequest{})
	p.mu.Lock()
	p.now = providers.Pressure{OOMKills: 3, PIDsRefused: 7, DiskFull: true, SocketFull: true}
	p.mu.Unlock()
	want := []string{"CREATING", "READY"}
	for range 4 {
		want = append(want, "READY LIMIT_REACHED")
	}
	await.True(t, func() bool { return slices.Equal(r.lifecycle(s.ID), want) }, "the events of four limits")
	if got := r.state(s.ID); got != sandboxes.Ready {
		t.Errorf("state = %s", got)
	}
}
