package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
)

const (
	stepTimeout    = time.Minute      // for the engine to make or start a container
	cleanupTimeout = 30 * time.Second // for removing what a failed create made
)

// Create starts the container of one sandbox. See providers.Provider.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
	if err := p.check(spec); err != nil {
		return nil, err
	}
	unlock, err := p.locks.Lock(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := p.hostDir(spec.ID)
	if err := os.Mkdir(string(dir), 0o700); errors.Is(err, fs.ErrExist) {
		return nil, exists(spec.ID)
	} else if err != nil {
		return nil, fmt.Errorf("start sandbox %s: make directory: %w", spec.ID, err)
	}
	cid, err := p.make(ctx, spec)
	if errs.Is(err, errs.AlreadyExists) { // the container is not ours to remove
		return nil, errors.Join(err, dir.remove())
	}
	if err == nil {
		err = p.start(ctx, spec, cid)
	}
	if err != nil {
		err = fmt.Errorf("start sandbox %s: %w", spec.ID, translate(err))
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTimeout, errors.New("clean-up took too long"))
		defer cancel()
		if rmErr := p.destroy(ctx, spec.ID); rmErr != nil {
			err = errors.Join(err, rmErr)
		}
		return nil, err
	}
	providers.AwaitSocket(ctx, dir.socket())
	return handle{p: p, id: spec.ID}, nil
}

func exists(id string) error {
	return errs.New(errs.AlreadyExists, errs.SandboxExists, "sandbox %s exists", id)
}

// make makes the directory's content and the container, and returns the engine's id of it. A
// request that makes something is not given up half way: it could still be done afterwards.
func (p *Provider) make(ctx context.Context, spec providers.Spec) (cid string, err error) {
	p.imageMu.RLock() // until the container holds the image
	defer p.imageMu.RUnlock()
	image, err := p.findImage(ctx, spec.Image)
	if err != nil {
		return "", err
	}
	if err := checkImage(spec, image); err != nil {
		return "", err
	}
	if err := p.hostDir(spec.ID).fill(spec); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTimeout, errors.New("docker makes no container"))
	defer cancel()
	var made struct {
		ID       string `json:"Id"`
		Warnings []string
	}
	err = p.engine.post(ctx, "/containers/create", url.Values{"name": {p.containerName(spec.ID)}}, p.container(spec, image), &made)
	switch {
	case answered(err, http.StatusConflict):
		return "", exists(spec.ID)
	case answered(err, http.StatusNotFound):
		return "", noImage(spec.Image)
	case err != nil:
		return "", fmt.Errorf("make container: %w", err)
	}
	for _, warning := range made.Warnings { // what it cannot enforce was refused before
		p.log.Warn("docker warns of a container", "sandbox", spec.ID, "warning", shorten(warning))
	}
	return made.ID, failpoint.Inject("create/afterContainer")
}

// start starts the container and hands the token over by its standard input.
func (p *Provider) start(ctx context.Context, spec providers.Spec, cid string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stepTimeout, errors.New("docker starts no container"))
	defer cancel()
	line, err := spec.StdinLine()
	if err != nil {
		return err
	}
	stdin, err := p.engine.attachStdin(ctx, cid)
	if err != nil {
		return err
	}
	defer stdin.Close() //nolint:errcheck // a second time after success
	if _, err := stdin.Write(line); err != nil {
		return fmt.Errorf("hand over token: %w", err)
	}
	p.mu.Lock()
	p.watched[spec.ID] = cid
	p.mu.Unlock()
	if err := p.engine.post(ctx, "/containers/"+cid+"/start", nil, nil, nil); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	if err := failpoint.Inject("create/afterTask"); err != nil {
		return err
	}
	// The engine reads what was written, and then its end. It closes its own side when the
	// container stops, so there is nothing to wait for.
	if err := stdin.Close(); err != nil {
		return fmt.Errorf("hand over token: %w", err)
	}
	return nil
}

// Delete kills the sandbox's processes and removes its container and directory, whatever of
// them is there.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !providers.ValidID(id) {
		return nil
	}
	unlock, err := p.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.destroy(ctx, id); err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, translate(err))
	}
	return nil
}

// destroy removes in the reverse order of Create. The caller holds the id's lock.
func (p *Provider) destroy(ctx context.Context, id string) error {
	name := p.containerName(id)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := p.engine.call(ctx, http.MethodDelete, "/containers/"+name, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
		if err == nil || answered(err, http.StatusNotFound) {
			break
		}
		// A removal may be under way already (409), or the engine be busy with the container (500).
		if !answered(err, http.StatusConflict) && !answered(err, http.StatusInternalServerError) {
			return fmt.Errorf("remove container: %w", err)
		}
		p.log.Debug("container not removed yet", "sandbox", id, "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove container: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(wait):
		}
	}
	p.mu.Lock()
	delete(p.watched, id)
	p.mu.Unlock()
	if err := failpoint.Inject("delete/afterContainer"); err != nil {
		return err
	}
	return p.hostDir(id).remove()
}
