// Package docker runs each sandbox as a container of a Docker Engine: an image's layers and a
// layer of its own, namespaces, no capabilities, the engine's default seccomp profile, no
// network, limits by cgroup. It speaks the Engine API, version 1.41, over the engine's Unix socket.
//
// Everything of a sandbox carries the instance of its daemon as a label and in its name, so that
// two daemons on one engine never touch each other's. The directory under StateDir is made
// before the container and removed after it: what has a container or a directory is a sandbox,
// whole or half.
package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agentixd/agentixd/providers"
)

// Name is the provider's registered name.
const Name = "docker"

const (
	defaultHost = "unix:///var/run/docker.sock"

	labelInstance = "agentix.dev/instance"
	labelSandbox  = "agentix.dev/sandbox"

	probeTimeout = 10 * time.Second
)

func init() {
	providers.Register(Name, func(ctx context.Context, cfg providers.Config) (providers.Provider, error) {
		return New(ctx, cfg)
	})
}

// Provider makes containers on one Docker Engine.
type Provider struct {
	cfg    providers.Config
	log    *slog.Logger
	engine *engine
	info   engineInfo
	exits  providers.Exits

	locks   providers.IDLocks
	mu      sync.Mutex        // of watched
	watched map[string]string // engine's id of the container, by sandbox whose exit is to be told
	imageMu sync.RWMutex      // held while names of images change, or one is taken

	closing context.Context //nolint:containedctx // the life of the Provider
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup
}

var (
	_ providers.Provider    = (*Provider)(nil)
	_ providers.Imager      = (*Provider)(nil)
	_ providers.Limiter     = (*Provider)(nil)
	_ providers.Snapshotter = (*Provider)(nil)
)

// engineInfo is what matters of the engine's description of itself.
type engineInfo struct {
	OSType          string
	ServerVersion   string
	SecurityOptions []string
	Runtimes        map[string]any
	MemoryLimit     bool
	SwapLimit       bool
	CPUQuota        bool `json:"CpuCfsQuota"`
	PidsLimit       bool
}

// New connects to the engine. It fails, naming what is missing, if sandboxes cannot run there.
func New(ctx context.Context, cfg providers.Config) (*Provider, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the docker provider needs root: it mounts file systems")
	}
	if cfg.DockerHost == "" {
		cfg.DockerHost = defaultHost
	}
	socket, ok := strings.CutPrefix(cfg.DockerHost, "unix://")
	if !ok || !filepath.IsAbs(socket) {
		return nil, fmt.Errorf("--docker-host %q: must be unix:// and the absolute path of a socket: "+
			"sandboxes are reached through the file system of this host", cfg.DockerHost)
	}
	for what, path := range map[string]*string{"state directory": &cfg.StateDir, "runtime binary": &cfg.RuntimePath} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		*path = abs
	}
	if _, err := os.Stat(cfg.RuntimePath); err != nil {
		return nil, fmt.Errorf("runtime binary: %w", err)
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{
		cfg: cfg, log: cfg.Logger.With("provider", Name), engine: newEngine(socket),
		watched: map[string]string{},
	}
	p.closing, p.stop = context.WithCancelCause(context.Background())
	if err := p.probe(ctx, socket); err != nil {
		_ = p.Close()
		return nil, err
	}
	if err := p.adopt(ctx); err != nil {
		_ = p.Close()
		return nil, err
	}
	p.wg.Go(p.watch) // ends with Close
	return p, nil
}

// probe tells what is missing on this engine.
func (p *Provider) probe(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errors.New("the Docker Engine does not answer"))
	defer cancel()
	if _, err := os.Stat(socket); err != nil {
		return fmt.Errorf("no Docker Engine at %s (is it installed and running? --docker-host names another): %w", socket, err)
	}
	if err := p.engine.get(ctx, "/info", nil, &p.info); err != nil {
		return fmt.Errorf("the Docker Engine at %s: %w", socket, err)
	}
	if p.info.OSType != "linux" {
		return fmt.Errorf("the Docker Engine at %s runs containers of %q, not of Linux", socket, p.info.OSType)
	}
	seccomp := false
	for _, option := range p.info.SecurityOptions {
		name, _, _ := strings.Cut(option, ",")
		switch name {
		case "name=seccomp":
			seccomp = !strings.Contains(option, "profile=unconfined")
		case "name=userns", "name=rootless":
			return fmt.Errorf("the Docker Engine at %s is set up with %s, with which sandboxes do not work", socket, strings.TrimPrefix(name, "name="))
		}
	}
	if !seccomp {
		return fmt.Errorf("the Docker Engine at %s has no seccomp profile", socket)
	}
	return nil
}

// Name is "docker".
func (p *Provider) Name() string { return Name }

// EnforcesLimits marks the provider.
func (p *Provider) EnforcesLimits() {}

// Watch tells of exits. See providers.Provider.
func (p *Provider) Watch(ctx context.Context) (<-chan providers.Exit, error) {
	return p.exits.Watch(ctx), nil
}

// Close ends the connections to the engine; the sandboxes go on.
func (p *Provider) Close() error {
	p.stop(errors.New("the docker provider is closed"))
	p.wg.Wait()
	p.exits.Close()
	p.engine.close()
	return nil
}

// containerName is the name on the engine, which is shared with other daemons: a readable part
// and a hash of instance and id.
func (p *Provider) containerName(id string) string {
	return providers.EngineName(p.cfg.Instance, id)
}
