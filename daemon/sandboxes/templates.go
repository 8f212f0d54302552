package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
)

// Limits of templates.
const (
	maxTemplates   = 1000
	maxPoolSize    = 256
	maxPreload     = 64 // modules
	maxModuleBytes = 255
)

var modulePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// Template is what the sandboxes of a pool are started from, and how it goes with that.
type Template struct {
	ID         string        `json:"id"`
	Sandbox    CreateRequest `json:"sandbox"` // Peer is who asked for it
	Preload    []string      `json:"preload,omitempty"`
	Size       int           `json:"size"`
	CreateTime time.Time     `json:"create_time"`

	Ready, Starting int       `json:"-"`
	Hits, Misses    uint64    `json:"-"`
	Message         string    `json:"-"`
	RetryTime       time.Time `json:"-"`
}

func (t *Template) validate() error {
	want := t.Sandbox
	switch {
	case t.ID != "" && !idPattern.MatchString(t.ID):
		return errs.Invalid("template_id", "must match %s", idPattern)
	case want.ID != "" || want.Template != "":
		return errs.Invalid("template.sandbox.template", "a template is not made from another; leave it unset")
	case want.RuntimeURL != "" || want.Provider == "external":
		return errs.Invalid("template.sandbox.provider", "runtimes that someone else runs are not started ahead")
	case want.Expose:
		return errs.Invalid("template.sandbox.expose_runtime", "is not for templates: its port and secret are those of one sandbox")
	case !want.ExpireTime.IsZero():
		return errs.Invalid("template.sandbox.expire_time", "is not for templates; ttl counts from when a sandbox is taken")
	}
	if err := want.validate(); err != nil {
		return err
	}
	if err := want.validateExpiry(time.Time{}); err != nil {
		return err
	}
	if len(t.Preload) > maxPreload {
		return errs.Invalid("template.preload", "%d modules; at most %d are allowed", len(t.Preload), maxPreload)
	}
	for _, module := range t.Preload {
		if len(module) > maxModuleBytes || !modulePattern.MatchString(module) {
			return errs.Invalid("template.preload", "%.80q is no name of a module like package.module", module)
		}
	}
	return validateSize(t.Size)
}

func validateSize(size int) error {
	if size < 0 || size > maxPoolSize {
		return errs.Invalid("template.size", "must be from 0 to %d", maxPoolSize)
	}
	return nil
}

func templateNotFound(id string) error {
	return errs.New(errs.NotFound, errs.TemplateNotFound, "template %.80q does not exist", id).WithMeta("template", clip(id, 80))
}

// CreateTemplate keeps a template and begins to fill its pool.
func (m *Manager) CreateTemplate(ctx context.Context, t Template) (Template, error) {
	if err := t.validate(); err != nil {
		return Template{}, err
	}
	if err := m.checkEngine(t.Sandbox); err != nil {
		return Template{}, err
	}
	if _, err := m.waitReady(ctx); err != nil {
		return Template{}, err
	}
	// Whether the caller may name the directory is found out now, not in the background.
	dir, err := m.openProject(t.Sandbox.Project, t.Sandbox.Peer)
	if err != nil {
		return Template{}, err
	}
	if dir != nil {
		_ = unix.Close(dir.FD)
	}
	if t.ID == "" {
		t.ID = newID()
	}
	t.CreateTime = m.opts.Clock.Now()
	p := &pool{Template: t, members: map[*entry]bool{}}
	p.op.Lock() // nobody works on it before it is written
	defer p.op.Unlock()
	m.mu.Lock()
	_, taken := m.pools[t.ID]
	full := len(m.pools) >= maxTemplates
	if !taken && !full {
		m.pools[t.ID] = p
	}
	m.mu.Unlock()
	switch {
	case taken:
		return Template{}, errs.New(errs.AlreadyExists, errs.TemplateExists, "template %s exists", t.ID).WithMeta("template", t.ID)
	case full:
		return Template{}, errs.OverLimit("templates", maxTemplates, maxTemplates+1)
	}
	if err := m.putTemplate(ctx, t); err != nil {
		m.mu.Lock()
		delete(m.pools, t.ID)
		m.mu.Unlock()
		return Template{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.kept = true
	m.fill(p)
	return p.shown(), nil
}

func (m *Manager) putTemplate(ctx context.Context, t Template) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode template %s: %w", t.ID, err)
	}
	return m.opts.Store.PutTemplate(context.WithoutCancel(ctx), t.ID, data)
}

// GetTemplate returns one template; NotFound (TEMPLATE_NOT_FOUND).
func (m *Manager) GetTemplate(ctx context.Context, id string) (Template, error) {
	if _, err := m.waitReady(ctx); err != nil {
		return Template{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.pools[id]
	if !ok || !p.kept {
		return Template{}, templateNotFound(id)
	}
	return p.shown(), nil
}

// Templates returns all templates in the order of their ids.
func (m *Manager) Templates(ctx context.Context) ([]Template, error) {
	if _, err := m.waitReady(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Template
	for _, id := range slices.Sorted(maps.Keys(m.pools)) {
		if p := m.pools[id]; p.kept {
			all = append(all, p.shown())
		}
	}
	return all, nil
}

// holdPool waits for its turn at a pool; the caller unlocks its op.
func (m *Manager) holdPool(ctx context.Context, id string) (*pool, error) {
	if _, err := m.waitReady(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	p, ok := m.pools[id]
	m.mu.Unlock()
	if !ok {
		return nil, templateNotFound(id)
	}
	p.op.Lock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools[id] != p {
		p.op.Unlock()
		return nil, templateNotFound(id)
	}
	return p, nil
}

// ResizeTemplate changes how many sandboxes wait, and ends the pause after failures.
func (m *Manager) ResizeTemplate(ctx context.Context, id string, size int) (Template, error) {
	if err := validateSize(size); err != nil {
		return Template{}, err
	}
	p, err := m.holdPool(ctx, id)
	if err != nil {
		return Template{}, err
	}
	defer p.op.Unlock()
	changed := p.Template
	changed.Size = size
	if err := m.putTemplate(ctx, changed); err != nil {
		return Template{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.Size, p.failures, p.RetryTime = size, 0, time.Time{}
	m.fill(p)
	return p.shown(), nil
}

// DeleteTemplate deletes a template and what waits in its pool.
func (m *Manager) DeleteTemplate(ctx context.Context, id string, allowMissing bool) error {
	p, err := m.holdPool(ctx, id)
	if errs.Is(err, errs.NotFound) && allowMissing {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.op.Unlock()
	// Sandboxes of a template that there is not are removed by whoever finds them.
	if err := m.opts.Store.DeleteTemplate(context.WithoutCancel(ctx), id); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.pools, id)
	p.gone, p.ready = true, nil
	var waits []*deletion
	for e := range p.members {
		waits = append(waits, m.startDeleteLocked(e, Deleted))
	}
	m.mu.Unlock()
	var failed []error
	for _, d := range waits {
		<-d.done
		failed = append(failed, d.err)
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("delete sandboxes of template %s: %w", id, err)
	}
	return nil
}

// adoptTemplates reads what the daemon before kept.
func (m *Manager) adoptTemplates(ctx context.Context) error {
	rows, err := m.opts.Store.Templates(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, data := range rows {
		p := &pool{members: map[*entry]bool{}, kept: true}
		if err := json.Unmarshal(data, &p.Template); err != nil || p.ID != id {
			m.log.Error("template unreadable", "template", id, "err", err)
			continue
		}
		m.pools[id] = p
	}
	return nil
}

// request is the request for one of a template's sandboxes. What the caller set counts
// over what the template says; labels are joined.
func (t *Template) request(req CreateRequest) (CreateRequest, error) {
	for field, set := range map[string]bool{
		"image": req.Image != "", "bundle": req.Bundle != "", "project": req.Project != "", "env": len(req.Env) > 0, "provider": req.Provider != "",
		"runtime": req.RuntimeURL != "", "workers": req.Workers != 0, "expose_runtime": req.Expose, "resources": req.Resources != zero.Resources,
		"network": !isZero(req.Network), "security": !isZero(req.Security),
	} {
		if set {
			return CreateRequest{}, errs.Invalid("sandbox."+field, "is that of the template; leave it unset")
		}
	}
	made := t.Sandbox
	made.ID, made.RequestID, made.Template, made.preload = req.ID, req.RequestID, t.ID, t.Preload
	made.Labels = maps.Clone(t.Sandbox.Labels)
	if made.Labels == nil {
		made.Labels = map[string]string{}
	}
	maps.Copy(made.Labels, req.Labels)
	if req.TTL != 0 || !req.ExpireTime.IsZero() {
		made.TTL, made.ExpireTime = req.TTL, req.ExpireTime
	}
	if req.IdleTimeout != 0 {
		made.IdleTimeout = req.IdleTimeout
	}
	return made, validateLabels(made.Labels)
}

var zero CreateRequest

func isZero(v any) bool { return reflect.ValueOf(v).IsZero() }

// preloadEnv is the variable by which a worker learns what to import before it is ready.
func preloadEnv(modules []string) string { return strings.Join(modules, ",") }
