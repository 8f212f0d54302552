package sandboxes

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Snapshot makes an image of what is on a sandbox's file system. It waits for other operations
// on the sandbox, and they for it; it ends when the caller leaves. NotFound (SANDBOX_NOT_FOUND);
// FailedPrecondition (SANDBOX_NOT_READY) for one that is being made or removed, (UNSUPPORTED)
// if its provider cannot.
func (m *Manager) Snapshot(ctx context.Context, id, image string) (providers.Image, error) {
	if len(image) > maxImageBytes || !imagePattern.MatchString(image) {
		return providers.Image{}, errs.Invalid("image", "must have at most %d bytes and match %s", maxImageBytes, imagePattern)
	}
	e, err := m.hold(ctx, id)
	if err != nil {
		return providers.Image{}, err
	}
	defer e.op.Unlock()
	m.mu.Lock()
	s, base := e.rec.Sandbox, m.base
	m.mu.Unlock()
	snapshotter, can := m.engine(s.Provider).(providers.Snapshotter)
	switch {
	case s.State != Ready && s.State != Paused && s.State != Failed:
		return providers.Image{}, notReady(id, s.State, s.Reason)
	case !can:
		return providers.Image{}, errs.New(errs.FailedPrecondition, errs.Unsupported,
			"the %s provider cannot snapshot sandboxes: they have no root file system of their own", s.Provider)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(base, func() { cancel(stopping()) })()
	made, err := snapshotter.Snapshot(ctx, id, image)
	var known *errs.Error
	switch {
	case err == nil:
		m.log.Info("sandbox was made an image", "sandbox", id, "image", image, "digest", made.Digest)
		return made, nil
	case errors.As(err, &known), context.Cause(ctx) == nil:
		return made, err
	}
	return made, fmt.Errorf("snapshot sandbox %s: %w", id, context.Cause(ctx))
}
