// Package daemon is agentixd, the whole server in one value: New opens everything, Run
// serves until its context ends and closes it in reverse. Tests and the command start the
// very same value.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentixd/agentixd/daemon/api"
	"github.com/agentixd/agentixd/daemon/auth"
	"github.com/agentixd/agentixd/daemon/bundles"
	"github.com/agentixd/agentixd/daemon/config"
	"github.com/agentixd/agentixd/daemon/dispatch"
	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"golang.org/x/sync/errgroup"
)

// Config is the daemon's configuration.
type Config = config.Config

// Daemon is a server that is open and not yet, or now, running.
type Daemon struct {
	cfg        Config
	logger     *slog.Logger
	store      *store.Store
	provider   providers.Provider
	others     []providers.Provider
	journal    *events.Journal
	dispatcher *dispatch.Dispatcher
	bundles    *bundles.Store
	manager    *sandboxes.Manager
	servers    *servers
	unix       *splitter
	tcp        *splitter // nil without --http
	closers    closers

	beginStop context.CancelFunc // refuse new work, end streams
	cutOff    context.CancelFunc // end running calls
	abort     chan struct{}
	abortOnce sync.Once
}

// New opens the daemon; it listens, but serves only once Run is called. On error nothing
// stays open.
func New(ctx context.Context, cfg Config, logger *slog.Logger) (_ *Daemon, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check configuration: %w", err)
	}
	d := &Daemon{cfg: cfg, logger: logger, abort: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.closers.close())
		}
	}()
	if err := d.openDomain(ctx); err != nil {
		return nil, err
	}
	return d, d.openServers(ctx)
}

// openDomain opens what knows no client: store, provider, journal, calls, sandboxes.
func (d *Daemon) openDomain(ctx context.Context) error {
	var err error
	if err := os.MkdirAll(d.cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if d.store, err = store.Open(ctx, d.cfg.StateDir); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	d.closers.add("close store", d.store.Close)
	if d.provider, err = openProvider(ctx, d.cfg, d.store.Instance(), d.logger); err != nil {
		return err
	}
	d.closers.add("close provider", d.provider.Close)
	if err := d.openOthers(ctx); err != nil {
		return err
	}
	d.journal = events.New(d.store, eventOptions(d.cfg, d.logger))
	d.closers.add("close journal", d.journal.Close)
	d.dispatcher, err = dispatch.New(ctx, dispatch.Options{
		Store: d.store, Journal: d.journal, Links: dispatch.LinksFunc(d.link), Clock: clock.System{}, Logger: d.logger,
	})
	if err != nil {
		return fmt.Errorf("open calls: %w", err)
	}
	d.closers.add("close calls", d.dispatcher.Close)
	if d.bundles, err = bundles.Open(filepath.Join(d.cfg.StateDir, "bundles")); err != nil {
		return err //nolint:wrapcheck // It names the directory.
	}
	d.manager = sandboxes.New(sandboxes.Options{
		Store: d.store, Provider: d.provider, Others: d.others, Journal: d.journal, Bundles: d.bundles,
		Handler: d.dispatcher.Handler,
		OnLost:  d.dispatcher.SandboxLost,
		Activity: func(id string) (a sandboxes.Activity) {
			a.Open, a.Last = d.dispatcher.Activity(id)
			return a
		},
		ParallelStarts: d.cfg.ParallelStarts,
		Limits:         defaultLimits,
		AllowHostPath:  d.cfg.AllowHostPath,
		Clock:          clock.System{},
		Logger:         d.logger,
	})
	return nil
}

func eventOptions(cfg Config, logger *slog.Logger) events.Options {
	return events.Options{
		MaxAge: cfg.Events.MaxAge, MaxBytes: cfg.Events.MaxBytes, KeepAfterDelete: cfg.Events.KeepDeleted,
		LogDir: cfg.LogDir, LogMaxBytes: cfg.Events.LogMaxBytes, LogBackups: cfg.Events.LogBackups, LogKeep: cfg.Events.LogKeep,
		Logger: logger,
	}
}

// openServers opens what clients talk to.
func (d *Daemon) openServers(ctx context.Context) error {
	token, err := auth.LoadToken(d.cfg.TokenFile())
	if err != nil {
		return fmt.Errorf("load token: %w", err)
	}
	authenticator := auth.New(token, 0, uint32(os.Geteuid()))
	stopping, beginStop := context.WithCancelCause(context.WithoutCancel(ctx))
	stopped, cutOff := context.WithCancelCause(context.WithoutCancel(ctx))
	d.beginStop = func() { beginStop(errServing) }
	d.cutOff = func() { cutOff(errServing) }
	d.closers.add("end contexts", func() error { d.beginStop(); d.cutOff(); return nil })
	chain := api.NewChain(stopping, stopped, d.logger, authenticator)
	services := api.Services{Sandboxes: d.manager, Dispatcher: d.dispatcher, Journal: d.journal, Bundles: d.bundles}
	if d.servers, err = newServers(ctx, d.cfg, chain, services, authenticator, newMetrics(d.manager, d.dispatcher, d.logger), d.ready, d.logger); err != nil {
		return err
	}
	d.closers.add("stop servers", d.servers.stop)
	unix, err := listenUnix(ctx, d.cfg.Socket)
	if err != nil {
		return err
	}
	d.closers.add("close socket", closeOnce(unix))
	d.unix = newSplitter(unix, d.logger)
	if d.cfg.HTTP == "" {
		return nil
	}
	tcp, err := listenTCP(ctx, d.cfg.HTTP)
	if err != nil {
		return err
	}
	d.closers.add("close port", closeOnce(tcp))
	d.tcp = newSplitter(tcp, d.logger)
	return nil
}

var errServing = errors.New("the daemon ended serving")

// Run serves until ctx ends, or until a part fails, whose error it returns. Then it lets
// running calls end for the grace period, and closes everything. Sandboxes go on.
func (d *Daemon) Run(ctx context.Context) error {
	d.logger.LogAttrs(ctx, slog.LevelInfo, "daemon starts", slog.Any("config", d.cfg), slog.String("http-address", d.HTTPAddr()))
	domain, endDomain := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endDomain(nil)
	domainGroup, domain := errgroup.WithContext(domain)
	domainGroup.Go(func() error { return wrap("keep the journal", d.journal.Run(domain)) })
	domainGroup.Go(func() error { return wrap("manage sandboxes", d.manager.Run(domain)) })

	serving, endServing := context.WithCancelCause(ctx)
	defer endServing(nil)
	serveGroup, serving := errgroup.WithContext(serving)
	d.serve(serveGroup, serving)
	serveGroup.Go(func() error { // a failed domain ends serving
		select {
		case <-domain.Done():
			return errServing
		case <-serving.Done():
			return nil
		}
	})
	serveGroup.Go(func() error { d.announceReady(serving); return nil })
	serveGroup.Go(func() error { <-serving.Done(); d.shutdown(ctx); return nil })

	serveErr := serveGroup.Wait()
	endDomain(errServing)
	domainErr := domainGroup.Wait()
	if errors.Is(serveErr, errServing) || errors.Is(serveErr, context.Canceled) {
		serveErr = nil
	}
	if errors.Is(domainErr, context.Canceled) {
		domainErr = nil
	}
	err := errors.Join(domainErr, serveErr, d.closers.close())
	d.logger.LogAttrs(ctx, slog.LevelInfo, "daemon ended", slog.Any("err", err))
	return err
}

func (d *Daemon) serve(group *errgroup.Group, ctx context.Context) { //nolint:revive // The group is the receiver in spirit.
	group.Go(func() error { return serveGRPC(d.servers.local, insideListener{d.servers.inside}) })
	group.Go(func() error { return d.unix.run(ctx) })
	group.Go(func() error { return serveGRPC(d.servers.local, d.unix.grpc) })
	group.Go(func() error { return d.servers.serveHTTP(d.unix.http) })
	if d.tcp != nil {
		group.Go(func() error { return d.tcp.run(ctx) })
		group.Go(func() error { return serveGRPC(d.servers.tcp, d.tcp.grpc) })
		group.Go(func() error { return d.servers.serveHTTP(d.tcp.http) })
	}
}

// announceReady turns the health service on once sandboxes were taken over.
func (d *Daemon) announceReady(ctx context.Context) {
	d.servers.setServing(false)
	select {
	case <-d.manager.Ready():
		d.servers.setServing(true)
		d.logger.LogAttrs(ctx, slog.LevelInfo, "daemon is ready")
	case <-ctx.Done():
	}
}

func (d *Daemon) ready() error {
	select {
	case <-d.manager.Ready():
		return nil
	default:
		return notReady()
	}
}

// shutdown has two speeds: first running calls may end, until the grace period is over or
// Abort is called; then they are cut off.
func (d *Daemon) shutdown(ctx context.Context) {
	d.dispatcher.Stop()
	d.beginStop()
	ctx = context.WithoutCancel(ctx)
	grace, cancel := context.WithTimeoutCause(ctx, d.cfg.ShutdownGrace, errServing)
	defer cancel()
	release := make(chan struct{})
	defer close(release)
	go func() { // ends with this function
		select {
		case <-d.abort:
			cancel()
		case <-release:
		}
	}()
	d.servers.drain(grace)
	d.cutOff()
	last, cancelLast := context.WithTimeoutCause(ctx, 500*time.Millisecond, errServing)
	defer cancelLast()
	d.servers.drain(last) // time to say UNAVAILABLE to those that were cut off
	if err := d.servers.stop(); err != nil {
		d.logger.LogAttrs(ctx, slog.LevelDebug, "servers stopped", slog.Any("err", err))
	}
}

// Abort ends the grace period of a Run whose context ended.
func (d *Daemon) Abort() { d.abortOnce.Do(func() { close(d.abort) }) }

// Close closes a daemon that was never run.
func (d *Daemon) Close() error { return d.closers.close() }

// HTTPAddr is the address of the TCP listener; empty without one.
func (d *Daemon) HTTPAddr() string {
	if d.tcp == nil {
		return ""
	}
	return d.tcp.listener.Addr().String()
}

// SocketPath is the path of the Unix socket.
func (d *Daemon) SocketPath() string { return d.cfg.Socket }

// defaultLimits are the limits of sandboxes that ask for none: 1 GiB and 1024 processes.
var defaultLimits = providers.Limits{MemoryBytes: 1 << 30, PIDs: 1024}

// link is the manager's, which is made after the dispatcher.
func (d *Daemon) link(id string) (dispatch.Link, error) {
	link, err := d.manager.Link(id)
	if err != nil {
		return nil, err //nolint:wrapcheck // Of package errs, for clients.
	}
	return link, nil
}

// external is the provider of runtimes that someone else runs. It is always there, and
// refuses everything that no --external-allow names: what was joined before is to be deleted.
const external = "external"

// openOthers opens the providers that sandboxes can ask for, where this build has them.
func (d *Daemon) openOthers(ctx context.Context) error {
	if !providers.Known(external) {
		return nil
	}
	dir := filepath.Join(d.cfg.StateDir, external)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of provider %s: %w", external, err)
	}
	p, err := providers.Open(ctx, external, providers.Config{
		StateDir: dir, Instance: d.store.Instance(), ExternalAllow: d.cfg.ExternalAllow, Logger: d.logger,
	})
	if err != nil {
		return fmt.Errorf("open provider %s: %w", external, err)
	}
	d.closers.add("close provider", p.Close)
	d.others = append(d.others, p)
	return nil
}

// openProvider opens the engine. auto is containerd or nothing: never less isolation than asked for.
func openProvider(ctx context.Context, cfg Config, instance string, logger *slog.Logger) (providers.Provider, error) {
	if info, err := os.Stat(cfg.Runtime); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("find the runtime: %s is no executable file; build it with `make build` or name it with --runtime", cfg.Runtime)
	}
	name := cfg.Provider
	if name == "auto" {
		name = "containerd"
	}
	dir := filepath.Join(cfg.StateDir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of provider %s: %w", name, err)
	}
	provider, err := providers.Open(ctx, name, providers.Config{
		StateDir: dir, Instance: instance, RuntimePath: cfg.Runtime,
		ContainerdAddress: cfg.ContainerdAddress, DockerHost: cfg.DockerHost, InsecureProcessAsRoot: cfg.InsecureProcessAsRoot,
		RegistryConfig: cfg.RegistryConfig, AllowHostNetwork: cfg.AllowHostNetwork, BridgePool: cfg.BridgePool, Logger: logger,
	})
	if err != nil && cfg.Provider == "auto" {
		return nil, fmt.Errorf("open provider auto: containers cannot run here: %w (--provider process runs sandboxes as plain processes, without isolation)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open provider %s: %w", name, err)
	}
	return provider, nil
}

func wrap(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errs.Is(err, errs.Cancelled) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func closeOnce(listener net.Listener) func() error {
	return func() error {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err //nolint:wrapcheck // net's errors name the address.
		}
		return nil
	}
}
