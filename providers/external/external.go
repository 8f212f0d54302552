// Package external joins runtimes that someone else started: our own on other machines, and
// those of the public protocol. Nothing of them is made or ended here; a sandbox is a record
// of where its runtime listens.
//
// Where a client says "connect to this", a daemon can be led to what only it can reach. So
// all is refused that the operator did not allow by address, the address is looked up and
// checked before every connection, and the connection goes to the very address that was
// checked. What answers there is hostile, as everything in a sandbox is.
package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Name is the provider's registered name.
const Name = "external"

func init() {
	providers.Register(Name, func(_ context.Context, cfg providers.Config) (providers.Provider, error) {
		return New(cfg)
	})
}

// Provider keeps where runtimes listen.
type Provider struct {
	dir    string
	log    *slog.Logger
	allow  Allow
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	exits  providers.Exits

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	closed    bool
}

// sandbox is one runtime that was joined.
type sandbox struct {
	p        *Provider
	id       string
	endpoint endpoint
}

// record is a sandbox on disk. The URL holds the secret that the runtime asks for, so the
// file is readable by the daemon alone.
type record struct {
	URL string `json:"url"`
}

// New opens the provider on cfg.StateDir with the addresses of cfg.ExternalAllow. Without
// any it refuses every create.
func New(cfg providers.Config) (*Provider, error) {
	allow, err := ParseAllow(cfg.ExternalAllow)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{
		dir: cfg.StateDir, log: cfg.Logger.With("provider", Name), allow: allow,
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		sandboxes: map[string]*sandbox{},
	}
	return p, p.load()
}

// load takes over the sandboxes of the daemon before.
func (p *Provider) load() error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("read state directory: %w", err)
	}
	for _, e := range entries {
		id, isRecord := strings.CutSuffix(e.Name(), ".json")
		if !isRecord || !providers.ValidID(id) {
			if strings.HasSuffix(e.Name(), ".new") { // of a daemon that died over it
				_ = os.Remove(filepath.Join(p.dir, e.Name()))
			}
			continue
		}
		var rec record
		data, err := os.ReadFile(filepath.Join(p.dir, e.Name()))
		if err == nil {
			err = json.Unmarshal(data, &rec)
		}
		s := &sandbox{p: p, id: id}
		if err == nil {
			s.endpoint, err = parseURL(rec.URL)
		}
		if err != nil { // listed all the same, so that it can be deleted
			p.log.Error("record of external runtime unreadable", "sandbox", id, "err", err)
		}
		p.sandboxes[id] = s
	}
	return nil
}

// Name is "external".
func (p *Provider) Name() string { return Name }

// Create notes where the runtime of a sandbox listens, if that is allowed. Whether anything
// answers there is for the caller to find out.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
	if err := p.refuse(spec); err != nil {
		return nil, err
	}
	e, err := parseURL(spec.RuntimeURL)
	if err != nil {
		return nil, err
	}
	if _, err := p.resolve(ctx, e); err != nil {
		return nil, err
	}
	s := &sandbox{p: p, id: spec.ID, endpoint: e}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errs.New(errs.Unavailable, errs.ProviderUnavailable, "the external provider is closed")
	case p.sandboxes[s.id] != nil:
		return nil, errs.New(errs.AlreadyExists, errs.SandboxExists, "sandbox %s exists", s.id)
	}
	if err := s.write(spec.RuntimeURL); err != nil {
		return nil, err
	}
	p.sandboxes[s.id] = s
	return s, nil
}

// refuse tells what cannot be done to a runtime that runs already.
func (p *Provider) refuse(spec providers.Spec) error {
	unsupported := func(what string) error {
		return errs.New(errs.FailedPrecondition, errs.Unsupported,
			"the external provider joins a runtime that someone else runs and cannot %s; leave it unset", what)
	}
	switch {
	case !providers.ValidID(spec.ID):
		return providers.InvalidID()
	case p.allow.empty():
		return errs.New(errs.FailedPrecondition, errs.Unsupported,
			"external runtimes are off; agentixd's --external-allow names the addresses that may be joined")
	case spec.Image != "":
		return unsupported("use sandbox.image")
	case spec.Bundle != nil:
		return unsupported("mount sandbox.bundle")
	case spec.Project != nil:
		return unsupported("mount sandbox.project")
	case len(spec.Env) > 0:
		return unsupported("set sandbox.env")
	case spec.Limits != providers.Limits{}:
		return unsupported("enforce sandbox.resources")
	case spec.Workers != 0:
		return unsupported("set sandbox.workers")
	case spec.Security != providers.Security{}:
		return unsupported("do what sandbox.security asks for")
	case !spec.Network.IsZero():
		return unsupported("do what sandbox.network asks for")
	case spec.NeighbourSecret != "":
		return unsupported("expose_runtime")
	}
	return nil
}

func (p *Provider) path(id string) string { return filepath.Join(p.dir, id+".json") }

// write makes the record, whole or not at all.
func (s *sandbox) write(url string) error {
	data, err := json.Marshal(record{URL: url})
	if err != nil {
		return fmt.Errorf("encode record of sandbox %s: %w", s.id, err)
	}
	path := s.p.path(s.id)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write record of sandbox %s: %w", s.id, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write record of sandbox %s: %w", s.id, err)
	}
	return nil
}

// Get returns the handle of a sandbox that was joined; NotFound else.
func (p *Provider) Get(_ context.Context, id string) (providers.Handle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sandboxes[id]
	if s == nil {
		return nil, errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", id)
	}
	return s, nil
}

// List returns all that were joined. They count as running: what becomes of a runtime of
// someone else shows by its connection only.
func (p *Provider) List(context.Context) ([]providers.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []providers.Status
	for _, id := range slices.Sorted(maps.Keys(p.sandboxes)) {
		list = append(list, providers.Status{ID: id, Running: true})
	}
	return list, nil
}

// Delete forgets a sandbox; its runtime goes on.
func (p *Provider) Delete(_ context.Context, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sandboxes[id] == nil {
		return nil
	}
	if err := os.Remove(p.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget sandbox %s: %w", id, err)
	}
	delete(p.sandboxes, id)
	return nil
}

// Watch never tells anything: nobody here knows when a runtime of someone else ends.
func (p *Provider) Watch(ctx context.Context) (<-chan providers.Exit, error) {
	return p.exits.Watch(ctx), nil
}

// Close ends watching; the records stay.
func (p *Provider) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.exits.Close()
	return nil
}

// ID is the sandbox id.
func (s *sandbox) ID() string { return s.id }

// Status tells whether the sandbox is still joined.
func (s *sandbox) Status(context.Context) (providers.Status, error) {
	return providers.Status{ID: s.id, Running: s.joined()}, nil
}

func (s *sandbox) joined() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.sandboxes[s.id] == s
}

// Foreign is what a request to the runtime carries.
func (s *sandbox) Foreign() providers.Foreign {
	return providers.Foreign{Host: s.endpoint.host(), Authorization: s.endpoint.authorization()}
}

// Dial connects to the runtime. The address is looked up and checked each time.
func (s *sandbox) Dial(ctx context.Context) (net.Conn, error) {
	if !s.joined() {
		return nil, errs.New(errs.NotFound, errs.SandboxNotFound, "sandbox %s was deleted", s.id)
	}
	conn, err := s.p.dial(ctx, s.endpoint)
	if err != nil {
		return nil, fmt.Errorf("dial sandbox %s: %w", s.id, err)
	}
	return conn, nil
}
