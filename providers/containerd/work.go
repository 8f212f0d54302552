package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

const (
	labelWork  = "agentix.dev/work" // marks the leases of pieces of work
	viewPrefix = ".view-"           // of directories in which an image is looked at; no sandbox id begins so
	workExpiry = 24 * time.Hour     // of a lease whose daemon never came back
)

// workLease keeps what a piece of work makes until something else holds it. done ends it,
// whatever became of the context; after a failure it waits until the leftovers are gone.
func (p *Provider) workLease(ctx context.Context) (_ context.Context, done func(ok bool), err error) {
	service := p.client.LeasesService()
	lease, err := service.Create(ctx, leases.WithRandomID(), leases.WithExpiration(workExpiry),
		leases.WithLabels(map[string]string{labelInstance: p.cfg.Instance, labelWork: "1"}))
	if err != nil {
		return ctx, nil, err
	}
	return leases.WithLease(ctx, lease.ID), func(ok bool) {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTimeout, errors.New("clean-up took too long"))
		defer cancel()
		var opts []leases.DeleteOpt
		if !ok {
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := service.Delete(ctx, lease, opts...); err != nil {
			p.log.Warn("lease left to expire", "lease", lease.ID, "err", err)
		}
	}, nil
}

// clearWork removes what a daemon before was in the middle of when it was killed.
func (p *Provider) clearWork(ctx context.Context) error {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	service := p.client.LeasesService()
	left, err := service.List(ctx, fmt.Sprintf("labels.%q==%q,labels.%q==1", labelInstance, p.cfg.Instance, labelWork))
	if err != nil {
		return fmt.Errorf("list leases of work: %w", p.translate(err))
	}
	for i, lease := range left {
		var opts []leases.DeleteOpt
		if i == len(left)-1 { // one collection of garbage for all
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := service.Delete(ctx, lease, opts...); err != nil && !notFound(err) {
			return fmt.Errorf("delete lease of work: %w", p.translate(err))
		}
	}
	entries, err := os.ReadDir(p.cfg.StateDir)
	if err != nil {
		return fmt.Errorf("read state directory: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), viewPrefix) {
			continue
		}
		if err := p.removeView(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// removeView unmounts an image that was looked at. It removes no more than the mount point.
func (p *Provider) removeView(name string) error {
	path := filepath.Join(p.cfg.StateDir, name)
	if err := providers.UnmountAll(path); err != nil {
		return err
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
