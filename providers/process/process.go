// Package process runs each sandbox as a plain child process of the host: no isolation at
// all. It is for laptops and CI, and is only used when asked for by name.
//
// A sandbox is a directory <StateDir>/<id> with its record, its socket, its working
// directory and the runtime's own log. The runtime outlives the daemon; another daemon on
// the same directory finds it by pid and start time.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Name is the provider's registered name.
const Name = "process"

// markerEnv is set in every process of a sandbox, with the sandbox's directory as its
// value, so that Delete finds those that left the process tree.
const markerEnv = "AGENTIX_SANDBOX_DIR"

func init() {
	providers.Register(Name, func(_ context.Context, cfg providers.Config) (providers.Provider, error) {
		return New(cfg)
	})
}

// Provider starts runtimes as child processes.
type Provider struct {
	cfg   providers.Config
	log   *slog.Logger
	exits providers.Exits

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	closed    bool
	closing   chan struct{}
	wg        sync.WaitGroup
}

// New opens the provider on cfg.StateDir and finds the sandboxes that a daemon before left running.
func New(cfg providers.Config) (*Provider, error) {
	if os.Geteuid() == 0 && !cfg.InsecureProcessAsRoot {
		return nil, errors.New("the process provider has no isolation: user code would run as root; " +
			"run agentixd as another user, or pass --insecure-process-as-root")
	}
	if _, err := os.Stat(cfg.RuntimePath); err != nil {
		return nil, fmt.Errorf("runtime binary: %w", err)
	}
	dir, err := filepath.Abs(cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	cfg.StateDir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{
		cfg:       cfg,
		log:       cfg.Logger.With("provider", Name),
		sandboxes: map[string]*sandbox{},
		closing:   make(chan struct{}),
	}
	if err := p.adopt(); err != nil {
		return nil, err
	}
	p.wg.Go(p.trimLogs) // ends with Close
	return p, nil
}

// adopt takes every directory as a sandbox; half-made ones too, so that List tells them.
func (p *Provider) adopt() error {
	entries, err := os.ReadDir(p.cfg.StateDir)
	if err != nil {
		return fmt.Errorf("read state directory: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || !providers.ValidID(e.Name()) {
			continue
		}
		s := newSandbox(e.Name(), filepath.Join(p.cfg.StateDir, e.Name()))
		close(s.created)
		rec, err := readRecord(s.dir)
		if err != nil {
			p.log.Warn("sandbox record unreadable", "sandbox", s.id, "err", err)
		}
		s.rec = rec
		p.sandboxes[s.id] = s
		if pidfd, ok := rec.open(); ok {
			p.monitor(s, pidfd)
			continue
		}
		if rec.Exit == nil {
			s.rec.Exit = &exitRecord{Reason: providers.Lost}
		}
	}
	return nil
}

// Name is "process".
func (p *Provider) Name() string { return Name }

// Create starts the runtime of one sandbox. See providers.Provider.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
	if err := refuse(spec); err != nil {
		return nil, err
	}
	s := newSandbox(spec.ID, filepath.Join(p.cfg.StateDir, spec.ID))
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errs.New(errs.Unavailable, errs.ProviderUnavailable, "the process provider is closed")
	}
	if _, taken := p.sandboxes[s.id]; taken {
		p.mu.Unlock()
		return nil, errs.New(errs.AlreadyExists, errs.SandboxExists, "sandbox %s exists", s.id)
	}
	p.sandboxes[s.id] = s
	p.mu.Unlock()
	defer close(s.created)

	pidfd, err := p.start(ctx, s, spec)
	if err != nil {
		err = fmt.Errorf("start sandbox %s: %w", s.id, err)
		if rmErr := s.destroy(); rmErr != nil {
			err = errors.Join(err, rmErr)
		}
		p.forget(s)
		return nil, err
	}
	p.monitor(s, pidfd)
	return s, nil
}

// refuse tells what this provider cannot do.
func refuse(spec providers.Spec) error {
	unsupported := func(what string) error {
		return errs.New(errs.FailedPrecondition, errs.Unsupported, "the process provider %s; leave it unset", what)
	}
	switch {
	case !providers.ValidID(spec.ID):
		return providers.InvalidID()
	case spec.Image != "":
		return unsupported("has no images and cannot use sandbox.image")
	case spec.Bundle != nil:
		return unsupported("cannot mount sandbox.bundle at /nix")
	case spec.RuntimeURL != "":
		return unsupported("starts runtimes and cannot join sandbox.runtime.url")
	case spec.Limits.CPUs != 0:
		return unsupported("cannot enforce resources.cpus")
	case spec.Limits.MemoryBytes != 0:
		return unsupported("cannot enforce resources.memory_bytes")
	case spec.Limits.PIDs != 0:
		return unsupported("cannot enforce resources.pids")
	case spec.Limits.OpenFiles != 0:
		return unsupported("cannot enforce resources.open_files")
	case spec.Limits.DiskBytes != 0:
		return unsupported("cannot enforce resources.disk_bytes")
	case spec.Security != providers.Security{}:
		return unsupported("isolates nothing and cannot do what sandbox.security asks for")
	case !spec.Network.IsZero():
		return unsupported("isolates nothing and cannot do what sandbox.network asks for")
	}
	return nil
}

// Get returns the handle of a sandbox that exists, running or not.
func (p *Provider) Get(_ context.Context, id string) (providers.Handle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.sandboxes[id]
	if !ok {
		return nil, errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", id)
	}
	return s, nil
}

// List returns every sandbox, in the order of ids.
func (p *Provider) List(context.Context) ([]providers.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []providers.Status
	for _, id := range slices.Sorted(maps.Keys(p.sandboxes)) {
		list = append(list, p.sandboxes[id].status())
	}
	return list, nil
}

// Delete kills every process of the sandbox and removes its directory.
func (p *Provider) Delete(ctx context.Context, id string) error {
	p.mu.Lock()
	s, ok := p.sandboxes[id]
	p.mu.Unlock()
	if !ok {
		return nil
	}
	select { // a create under way ends soon: it does not wait for the runtime
	case <-s.created:
	case <-ctx.Done():
		return fmt.Errorf("delete sandbox %s: %w", id, context.Cause(ctx))
	}
	if err := s.destroy(); err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, err)
	}
	p.forget(s)
	return nil
}

func (p *Provider) forget(s *sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sandboxes[s.id] == s {
		delete(p.sandboxes, s.id)
	}
}

// Watch tells of exits. See providers.Provider.
func (p *Provider) Watch(ctx context.Context) (<-chan providers.Exit, error) {
	return p.exits.Watch(ctx), nil
}

// Close stops watching; the sandboxes go on.
func (p *Provider) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.exits.Close()
	return nil
}
