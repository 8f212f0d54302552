package sandboxes

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// engines are all providers; the first is that of sandboxes which ask for none.
func (m *Manager) engines() []providers.Provider {
	return append([]providers.Provider{m.opts.Provider}, m.opts.Others...)
}

// engine is the provider of this name; the main one if there is none, since a sandbox that
// another daemon made is to be deleted all the same.
func (m *Manager) engine(name string) providers.Provider {
	for _, p := range m.engines() {
		if p.Name() == name {
			return p
		}
	}
	return m.opts.Provider
}

// checkEngine refuses a provider that is not there, and a socket that the caller may not name.
func (m *Manager) checkEngine(req CreateRequest) error {
	var names []string
	known := req.Provider == ""
	for _, p := range m.engines() {
		names = append(names, p.Name())
		known = known || p.Name() == req.Provider
	}
	switch {
	case !known:
		return errs.Invalid("sandbox.provider", "must be empty or one of %s", strings.Join(names, ", "))
	case strings.HasPrefix(strings.ToLower(req.RuntimeURL), "unix:") && req.Peer == nil:
		return errs.New(errs.PermissionDenied, errs.ExternalRefused, "runtime.url: sockets are only for callers on the Unix socket")
	}
	return nil
}

// engineStatus is what one of the providers knows of a sandbox.
type engineStatus struct {
	providers.Status
	provider string
}

// listEngines lists what all providers have.
func (m *Manager) listEngines(ctx context.Context) ([]engineStatus, error) {
	var all []engineStatus
	for _, p := range m.engines() {
		list, err := p.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("list sandboxes of provider %s: %w", p.Name(), err)
		}
		for _, st := range list {
			all = append(all, engineStatus{Status: st, provider: p.Name()})
		}
	}
	return all, nil
}

// watchEngines joins the watches of all providers; the channel is closed once one has ended.
func (m *Manager) watchEngines(ctx context.Context) (<-chan providers.Exit, error) {
	group, ctx := errgroup.WithContext(ctx)
	var watches []<-chan providers.Exit
	for _, p := range m.engines() {
		exits, err := p.Watch(ctx)
		if err != nil {
			group.Go(func() error { return err }) // ends the watches before
			return nil, group.Wait()
		}
		watches = append(watches, exits)
	}
	out := make(chan providers.Exit)
	for _, exits := range watches {
		group.Go(func() error { // ends with the watch, or with ctx
			for exit := range exits {
				select {
				case out <- exit:
				case <-ctx.Done():
				}
			}
			return errWatchOver // ends the others
		})
	}
	m.wg.Go(func() { // ends with the watches
		_ = group.Wait()
		close(out)
	})
	return out, nil
}
