package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/runtime/wire"
)

var (
	errCallersLeft = errors.New("every caller that waited for the sandbox has left")
	errDeletedToo  = errors.New("it was deleted while it was being created")
)

// Create makes a sandbox and returns it READY. A create that fails, whose callers all
// left, or that was cut by Delete leaves nothing; with a request id it goes on without
// callers, so that the same request finds it.
func (m *Manager) Create(ctx context.Context, req CreateRequest) (Sandbox, error) {
	if err := req.validate(); err != nil {
		return Sandbox{}, err
	}
	if err := req.validateExpiry(m.opts.Clock.Now()); err != nil {
		return Sandbox{}, err
	}
	if err := m.checkEngine(req); err != nil {
		return Sandbox{}, err
	}
	hash, err := req.hash()
	if err != nil {
		return Sandbox{}, err
	}
	base, err := m.waitReady(ctx)
	if err != nil {
		return Sandbox{}, err
	}
	for {
		e, err := m.find(base, req, hash)
		if err != nil {
			return Sandbox{}, err
		}
		made, err := m.awaitCreated(ctx, e)
		if errors.Is(err, errTaking) && ctx.Err() == nil { // that one is broken; the next one may be good
			m.log.Warn("waiting sandbox not taken", "template", req.Template, "err", err)
			continue
		}
		return made, err
	}
}

// find returns the entry that a request makes, joins or takes; the caller is counted in.
func (m *Manager) find(base context.Context, req CreateRequest, hash string) (*entry, error) {
	if e, err := m.join(req, hash); e != nil || err != nil {
		return e, err
	}
	if req.Template != "" {
		m.mu.Lock()
		p := m.pools[req.Template]
		var err error
		if p == nil || !p.kept {
			err = templateNotFound(req.Template)
		} else {
			req, err = p.request(req)
		}
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	if e, err := m.take(req, hash); e != nil || err != nil {
		return e, err
	}
	dir, err := m.openProject(req.Project, req.Peer)
	if err != nil {
		return nil, err
	}
	e, existing, err := m.reserve(base, req, hash, dir)
	if err != nil || existing {
		closeDir(dir)
	}
	return e, err
}

// take takes a waiting sandbox, or joins the same request.
func (m *Manager) take(req CreateRequest, hash string) (*entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, err := m.joinLocked(req, hash); e != nil || err != nil || req.Template == "" || m.stopped {
		return e, err
	}
	return m.takeLocked(req, hash), nil
}

// join finds the sandbox that an earlier request with the same request id makes or made.
func (m *Manager) join(req CreateRequest, hash string) (*entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joinLocked(req, hash)
}

func (m *Manager) joinLocked(req CreateRequest, hash string) (*entry, error) {
	if req.RequestID == "" {
		return nil, nil
	}
	e, ok := m.byRequest[req.RequestID]
	if !ok {
		return nil, nil
	}
	if e.rec.RequestHash != hash {
		return nil, errs.New(errs.AlreadyExists, errs.SandboxExists,
			"request_id: it made sandbox %s from a different request", e.rec.Sandbox.ID).WithMeta("sandbox", e.rec.Sandbox.ID)
	}
	e.waiters++
	return e, nil
}

// reserve takes the id and starts the create, or joins one that came first. The create owns dir.
func (m *Manager) reserve(base context.Context, req CreateRequest, hash string, dir *providers.Dir) (_ *entry, existing bool, err error) {
	id := req.ID
	if id == "" {
		id = newID()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, err := m.joinLocked(req, hash); e != nil || err != nil {
		return e, true, err
	}
	if taken, ok := m.entries[id]; ok {
		return nil, false, errs.New(errs.AlreadyExists, errs.SandboxExists, "sandbox %s exists and is %s", id, taken.rec.Sandbox.State).
			WithMeta("sandbox", id).WithMeta("state", string(taken.rec.Sandbox.State))
	}
	if m.stopped {
		return nil, false, stopping()
	}
	if queued := m.starts.waiting(); queued >= maxQueuedStarts {
		return nil, false, errs.OverLimit("queued_starts", maxQueuedStarts, int64(queued)+1).WithRetry(time.Second)
	}
	e := m.newCreate(req, id, hash, false)
	m.launch(base, e, func(ctx context.Context, turn *turn) error { return m.create(ctx, e, dir, turn) })
	return e, false, nil
}

// newCreate is the entry of a sandbox to be made, for a client or for its template's pool;
// m.mu is held.
func (m *Manager) newCreate(req CreateRequest, id, hash string, pooled bool) *entry {
	m.seq++
	engine := m.opts.Provider
	if req.Provider != "" {
		engine = m.engine(req.Provider)
	}
	now := m.opts.Clock.Now()
	rec := record{
		Sandbox: Sandbox{
			ID: id, State: Creating, Image: req.Image, Bundle: req.Bundle, Project: req.Project, Provider: engine.Name(), Expose: req.Expose, Workers: req.Workers,
			Labels: req.Labels, Env: req.Env, Resources: m.effective(engine, req.Resources), CreateTime: now,
			ExpireTime: req.expiry(now), IdleTimeout: req.IdleTimeout, Template: req.Template,
			Network: req.Network, Security: req.Security,
		}.clone(),
		Seq: m.seq, Nonce: newID(), RequestID: req.RequestID, RequestHash: hash, Preload: req.preload,
	}
	if pooled {
		rec.Pool, rec.Sandbox.ExpireTime = req.Template, time.Time{}
	}
	e := newEntry(rec)
	e.hidden, e.runtimeURL, e.waiters = pooled, req.RuntimeURL, 1
	m.entries[id] = e
	if req.RequestID != "" {
		m.byRequest[req.RequestID] = e
	}
	return e
}

// launch runs create in the background, with its turn in the queue; m.mu is held.
func (m *Manager) launch(base context.Context, e *entry, create func(ctx context.Context, turn *turn) error) {
	ctx, cancel := context.WithCancelCause(base)
	e.cancelCreate = cancel
	e.op.Lock() // nobody else has seen the entry yet
	turn, created := m.starts.enter(e.hidden), e.created
	m.changedLocked(e)
	m.wg.Go(func() {
		defer cancel(nil)
		defer e.op.Unlock()
		defer turn.end()
		err := create(ctx, turn)
		m.mu.Lock()
		e.createErr = err
		m.mu.Unlock()
		close(created)
	})
}

func newEntry(rec record) *entry {
	return &entry{rec: rec, op: newOneAtATime(), created: make(chan struct{}), ended: make(chan struct{})}
}

// awaitCreated waits for a create that the caller was counted in for.
func (m *Manager) awaitCreated(ctx context.Context, e *entry) (Sandbox, error) {
	select {
	case <-e.created:
		m.mu.Lock()
		defer m.mu.Unlock()
		e.waiters--
		return m.shown(e), e.createErr
	case <-ctx.Done():
	}
	m.mu.Lock()
	e.waiters--
	abandoned := e.waiters == 0 && e.rec.RequestID == ""
	m.mu.Unlock()
	if abandoned {
		e.cancelCreate(errCallersLeft)
		<-e.created // so that nothing is left when the caller learns of it
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Sandbox{}, errs.New(errs.DeadlineExceeded, errs.Deadline, "the caller's deadline passed before the sandbox was ready")
	}
	return Sandbox{}, errs.New(errs.Cancelled, errs.CallerLeft, "the caller left before the sandbox was ready")
}

// create runs one create to its end, once its turn has come; e.op is held. On error nothing
// of it is left.
func (m *Manager) create(ctx context.Context, e *entry, dir *providers.Dir, turn *turn) error {
	id := e.rec.Sandbox.ID
	defer closeDir(dir)
	// Intent first: whatever happens from here on is found again. A cancel in the middle would
	// leave open whether it was written.
	if err := m.put(context.WithoutCancel(ctx), e); err != nil {
		m.drop(e)
		return err
	}
	m.set(e, Creating, NoReason, "")
	err := turn.wait(ctx)
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, m.opts.StartTimeout, fmt.Errorf("it was not ready within %s", m.opts.StartTimeout))
		defer cancel()
		err = m.bringUp(ctx, e, dir)
	}
	if err == nil {
		return nil
	}
	err = m.startError(ctx, e, err)
	m.log.Warn("sandbox not started", "sandbox", id, "err", err)
	m.set(e, Failed, StartFailed, messageOf(err))
	if rmErr := m.remove(ctx, e); rmErr != nil {
		m.log.Error("sandbox not removed", "sandbox", id, "err", rmErr)
	}
	return err
}

// bringUp goes from the record to READY.
func (m *Manager) bringUp(ctx context.Context, e *entry, dir *providers.Dir) error {
	if err := failpoint.Inject("create/afterRecord"); err != nil {
		return err
	}
	s := e.rec.Sandbox // only this operation changes it
	spec := providers.Spec{
		ID: s.ID, Image: s.Image, Project: dir, Env: s.Env, Limits: s.Resources, Workers: s.Workers, Network: s.Network, Security: s.Security, Token: m.opts.Store.RuntimeToken(s.ID), RuntimeURL: e.runtimeURL,
	}
	if s.Template != "" { // also without modules: it then imports what a first call needs
		spec.Env = maps.Clone(s.Env)
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env["AGENTIX_PRELOAD"] = preloadEnv(e.rec.Preload)
	}
	if s.Expose {
		spec.NeighbourSecret = string(m.secret(e))
	}
	bundle, err := m.openBundle(e)
	if err != nil {
		return err
	}
	if bundle != nil {
		defer func() { _ = unix.Close(bundle.Dir.FD) }()
		spec.Bundle = bundle
	}
	handle, err := m.engine(s.Provider).Create(ctx, spec)
	if err != nil {
		return err
	}
	_, foreign := handle.(providers.Foreigner)
	m.connect(e, handle, !foreign, false)
	if exit, known := m.ended(ctx, handle); known && exit != nil { // hints before now were not taken
		m.startFail(e, *exit)
	}
	if err := failpoint.Inject("create/beforeReady"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.wg.Go(func() { // ends with this function
		select {
		case <-e.ended:
			m.mu.Lock()
			exit := *e.exit
			m.mu.Unlock()
			cancel(exitError{exit})
		case <-ctx.Done():
		}
	})
	health, told, err := m.awaitReady(ctx, e, handle)
	if err != nil {
		return err
	}
	if err := m.expose(ctx, e); err != nil {
		return err
	}
	m.mu.Lock()
	if !e.hidden {
		e.rec.Sandbox.State = Ready
	}
	e.rec.Active = m.opts.Clock.Now()
	e.written = e.rec.Active
	e.rec.Sandbox.Runtime = runtimeOf(health, told)
	e.rec.Sandbox.Runtime.URL = withoutUser(e.runtimeURL)
	e.runtimeURL = ""
	m.mu.Unlock()
	if e.hidden {
		if err := m.keep(e, handle); err != nil {
			return err
		}
		return context.Cause(ctx)
	}
	if err := m.put(ctx, e); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.set(e, Ready, NoReason, "")
	// Who is told that the sandbox is READY finds that event in its journal.
	if err := m.opts.Journal.Flush(ctx, e.rec.Sandbox.ID); err != nil {
		m.log.Warn("event of a READY sandbox not committed yet", "sandbox", e.rec.Sandbox.ID, "err", err)
	}
	return nil
}

// awaitReady waits for the runtime and its worker, and asks the runtime about itself. One
// that someone else runs is there already, or it is the wrong address.
func (m *Manager) awaitReady(ctx context.Context, e *entry, handle providers.Handle) (health, told wire.Health, err error) {
	if e.rec.Fronted { // started here, so it has all the time of a start
		health, err = e.link.WaitReady(ctx)
		return health, health, err
	}
	if _, foreign := handle.(providers.Foreigner); !foreign {
		if health, err = e.link.WaitReady(ctx); err == nil {
			told = m.askHealth(ctx, handle)
		}
		return health, told, err
	}
	soon, cancel := context.WithTimeoutCause(ctx, joinTimeout, fmt.Errorf("it could not be reached within %s", joinTimeout))
	defer cancel()
	if err := e.link.WaitConnected(soon); err != nil {
		if errs.Is(err, errs.Unavailable) && ctx.Err() == nil {
			err = errs.New(errs.FailedPrecondition, errs.StartFailed, "%s; %s", context.Cause(soon), messageOf(err)).WithCause(err)
		}
		return health, told, err
	}
	health, err = e.link.WaitReady(ctx)
	return health, health, err // the link has asked already
}

// exitError is the end of a sandbox as an error.
type exitError struct{ providers.Exit }

func (e exitError) Error() string { return exitMessage(e.Exit) }

// startError makes the client's error: why the sandbox did not start, with the last words
// of its runtime, and without the engine's innards.
func (m *Manager) startError(ctx context.Context, e *entry, err error) error {
	id := e.rec.Sandbox.ID
	cause := context.Cause(ctx)
	m.mu.Lock()
	over := m.base.Err() != nil
	m.mu.Unlock()
	if over {
		return stopping()
	}
	for _, c := range []error{errDeletedToo, errCallersLeft} {
		if errors.Is(cause, c) {
			return errs.New(errs.FailedPrecondition, errs.StartFailed, "sandbox %s was not started: %s", id, c).WithCause(err)
		}
	}
	var why string
	var known *errs.Error
	var exit exitError
	switch {
	case errors.As(err, &exit), errors.As(cause, &exit):
		why = exitMessage(exit.Exit)
	case cause != nil:
		why = cause.Error()
		if errors.As(err, &known) {
			why += "; " + known.Message
		}
	case errors.As(err, &known) && known.Kind != errs.Internal && known.Reason != errs.RuntimeUnavailable:
		if known.Reason != errs.StartFailed {
			return err
		}
		why = known.Message
	default:
		why = "the engine failed; the daemon's log tells more"
	}
	text := fmt.Sprintf("sandbox %s was not started: %s", id, why)
	if tail := lastWords(e.handle); tail != "" {
		text += "; its runtime said: " + tail
	}
	return errs.New(errs.FailedPrecondition, errs.StartFailed, "%s", text).WithCause(err).WithMeta("sandbox", id)
}

// lastWords is the end of what a runtime wrote to its standard error, made safe to show. An
// engine may bring it a moment after the exit.
func lastWords(handle providers.Handle) string {
	logger, ok := handle.(providers.RuntimeLogger)
	if !ok {
		return ""
	}
	const tries, pause = 10, 20 * time.Millisecond
	for range tries {
		if text := logger.RuntimeLog(); text != "" {
			return quoteTail(text)
		}
		<-time.After(pause)
	}
	return ""
}

// quoteTail keeps a text's last lines, control characters escaped.
func quoteTail(text string) string {
	const maxBytes = 600
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[len(text)-maxBytes:], "")
	}
	return fmt.Sprintf("%q", text)
}

func messageOf(err error) string {
	var known *errs.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return "internal error"
}
