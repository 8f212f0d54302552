// Package containerd runs each sandbox as a container: an overlayfs snapshot of an image,
// namespaces of its own, no capabilities, the default seccomp profile, no network, limits
// by cgroup. It works with containerd from 1.6 on.
//
// Everything of a sandbox carries the instance of its daemon as a label, so that two
// daemons on one containerd never touch each other's. A lease is made before anything
// else and removed after everything else: what has a lease, a container or a directory
// under StateDir is a sandbox, whole or half.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/services/introspection/v1"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sync/singleflight"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Name is the provider's registered name.
const Name = "containerd"

// Namespace is the containerd namespace of images and sandboxes.
const Namespace = "agentix"

const (
	defaultAddress = "/run/containerd/containerd.sock"
	runtimeName    = "io.containerd.runc.v2"
	snapshotter    = "overlayfs"

	labelInstance = "agentix.dev/instance"
	labelSandbox  = "agentix.dev/sandbox"

	probeTimeout = 10 * time.Second
)

func init() {
	providers.Register(Name, func(ctx context.Context, cfg providers.Config) (providers.Provider, error) {
		return New(ctx, cfg)
	})
}

// Provider makes containers on one containerd.
type Provider struct {
	cfg    providers.Config
	log    *slog.Logger
	client *client.Client
	exits  providers.Exits
	unpack singleflight.Group
	pool   pool
	rules  rules

	locks      providers.IDLocks
	imageMu    sync.Mutex     // held while an image is looked up to be used, or deleted
	accounts   sync.Map       // account by image and user
	views      atomic.Int64   // looks into images
	imageUsers map[string]int // operations under way, by image

	closing context.Context //nolint:containedctx // the life of the Provider
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Imager   = (*Provider)(nil)
	_ providers.Limiter  = (*Provider)(nil)

	_ providers.Snapshotter = (*Provider)(nil)
)

// New connects to containerd. It fails, naming what is missing, if sandboxes cannot run there.
func New(ctx context.Context, cfg providers.Config) (*Provider, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the containerd provider needs root: it mounts file systems")
	}
	if cfg.ContainerdAddress == "" {
		cfg.ContainerdAddress = defaultAddress
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
	c, err := client.New(cfg.ContainerdAddress,
		client.WithDefaultNamespace(Namespace), client.WithDefaultRuntime(runtimeName), client.WithTimeout(2*time.Second))
	if err != nil {
		return nil, fmt.Errorf("open containerd at %s: %w", cfg.ContainerdAddress, err)
	}
	p := &Provider{
		cfg: cfg, log: cfg.Logger.With("provider", Name), client: c,
		imageUsers: map[string]int{},
	}
	if p.pool, err = newPool(cfg.Instance, cfg.BridgePool); err != nil {
		_ = c.Close()
		return nil, err
	}
	p.rules.table, p.rules.pool = p.networkID(), p.pool
	p.closing, p.stop = context.WithCancelCause(namespaces.WithNamespace(context.Background(), Namespace))
	err = p.probe(ctx)
	if err == nil {
		err = p.clearWork(ctx)
	}
	if err == nil {
		err = p.adopt(ctx)
	}
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	p.wg.Go(p.trimLogs) // ends with Close
	return p, nil
}

// probe tells what is missing on this host.
func (p *Provider) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errors.New("containerd does not answer"))
	defer cancel()
	address := p.cfg.ContainerdAddress
	if _, err := os.Stat(address); err != nil {
		return fmt.Errorf("no containerd at %s (is it installed and running? --containerd-address names another): %w", address, err)
	}
	resp, err := p.client.IntrospectionService().Plugins(ctx, `type~=io.containerd.(snapshotter|runtime).*`)
	if err != nil {
		return fmt.Errorf("containerd at %s does not answer: %w", address, err)
	}
	if err := checkPlugins(resp); err != nil {
		return fmt.Errorf("containerd at %s: %w", address, err)
	}
	return nil
}

func checkPlugins(resp *introspection.PluginsResponse) error {
	for _, plugin := range resp.Plugins {
		if plugin.ID != snapshotter || !strings.HasPrefix(plugin.Type, "io.containerd.snapshotter") {
			continue
		}
		if plugin.InitErr != nil {
			return fmt.Errorf("its %s snapshotter does not work here: %s", snapshotter, plugin.InitErr.Message)
		}
		return nil
	}
	return fmt.Errorf("it has no %s snapshotter", snapshotter)
}

// Name is "containerd".
func (p *Provider) Name() string { return Name }

// EnforcesLimits marks the provider.
func (p *Provider) EnforcesLimits() {}

// Watch tells of exits. See providers.Provider.
func (p *Provider) Watch(ctx context.Context) (<-chan providers.Exit, error) {
	return p.exits.Watch(ctx), nil
}

// Close ends the connection to containerd; the sandboxes go on.
func (p *Provider) Close() error {
	p.stop(errors.New("the containerd provider is closed"))
	p.wg.Wait()
	p.exits.Close()
	if err := p.client.Close(); err != nil {
		return fmt.Errorf("close containerd client: %w", err)
	}
	return nil
}

// containerID is the id on containerd, which wants other ids than ours and is shared with
// other daemons: a readable part and a hash of both.
func (p *Provider) containerID(id string) string {
	return providers.EngineName(p.cfg.Instance, id)
}

// translate gives containerd's errors our kinds.
func (p *Provider) translate(err error) error {
	var known *errs.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errdefs.IsUnavailable(err), errdefs.IsUnavailable(errgrpc.ToNative(err)):
		return errs.New(errs.Unavailable, errs.ProviderUnavailable, "containerd does not answer").WithCause(err).WithRetry(time.Second)
	}
	return err
}

func (p *Provider) trimLogs() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-p.closing.Done():
			return
		case <-tick.C:
		}
		logs, err := filepath.Glob(filepath.Join(p.cfg.StateDir, "*", logName))
		if err != nil {
			continue
		}
		for _, log := range logs {
			providers.TrimLog(log)
		}
	}
}
