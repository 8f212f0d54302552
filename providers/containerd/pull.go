package containerd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

const (
	progressEvery  = 250 * time.Millisecond
	parallelLayers = 3
)

// PullImage fetches an image from a registry. See providers.Imager.
func (p *Provider) PullImage(ctx context.Context, pull providers.Pull, progress func(providers.PullProgress)) (_ providers.Image, err error) {
	full, host, err := completeReference("reference", pull.Reference)
	if err != nil {
		return providers.Image{}, err
	}
	if pull.PlainHTTP && !isLoopback(host) {
		return providers.Image{}, errs.Invalid("plain_http", "only a registry at a loopback address may be without TLS, not %s", host)
	}
	name := pull.Name
	if name == "" {
		name = full
	}
	creds, err := p.credentials(ctx, pull, host)
	if err != nil {
		return providers.Image{}, fmt.Errorf("pull %s: %w", full, err)
	}
	ctx, done, err := p.workLease(namespaces.WithNamespace(ctx, Namespace))
	if err != nil {
		return providers.Image{}, fmt.Errorf("pull %s: %w", full, p.translate(err))
	}
	defer func() { done(err == nil) }()
	progress(providers.PullProgress{Phase: providers.Resolving})
	resolver, transport := newResolver(host, pull, creds)
	defer transport.CloseIdleConnections()
	image, err := p.fetch(ctx, renamed{resolver, full, name}, progress)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return providers.Image{}, fmt.Errorf("pull %s: %w", full, cause)
		}
		return providers.Image{}, fmt.Errorf("pull %s: %w", full, p.translate(registryError(full, host, err)))
	}
	if err := p.unpacked(ctx, image); err != nil {
		p.forgetImage(ctx, name)
		return providers.Image{}, fmt.Errorf("pull %s: %w", full, badPull(ctx, p.translate(err)))
	}
	return describe(ctx, image), nil
}

// badPull tells of an image that came whole and cannot be unpacked.
func badPull(ctx context.Context, err error) error {
	if errs.Is(err, errs.Unavailable) || context.Cause(ctx) != nil {
		return err
	}
	return errs.Invalid("reference", "containerd cannot unpack the image: %s", shorten(err.Error())).WithCause(err)
}

// fetch gets all parts of an image and tells of progress.
func (p *Provider) fetch(ctx context.Context, from renamed, progress func(providers.PullProgress)) (client.Image, error) {
	t := &pullTracker{p: p, here: map[digest.Digest]bool{}}
	watching, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { t.tell(watching, progress) }) // ends with this function
	image, err := p.client.Pull(ctx, from.full,
		client.WithResolver(from), client.WithImageHandler(images.HandlerFunc(t.see)), client.WithMaxConcurrentDownloads(parallelLayers))
	stop(errors.New("the pull is over"))
	wg.Wait()
	if err != nil {
		return nil, err
	}
	last := t.progress(ctx)
	last.Phase = providers.Unpacking
	progress(last)
	return image, nil
}

// renamed is a resolver that gives the image another name here.
type renamed struct {
	remotes.Resolver
	full, name string
}

// Resolve asks for the reference.
func (r renamed) Resolve(ctx context.Context, ref string) (string, ocispec.Descriptor, error) {
	_, desc, err := r.Resolver.Resolve(ctx, ref)
	return r.name, desc, err //nolint:wrapcheck // registryError looks at it.
}

// Fetcher fetches by the reference.
func (r renamed) Fetcher(ctx context.Context, _ string) (remotes.Fetcher, error) {
	return r.Resolver.Fetcher(ctx, r.full) //nolint:wrapcheck // registryError looks at it.
}

// pullTracker knows the parts of an image that is being fetched.
type pullTracker struct {
	p *Provider

	mu    sync.Mutex
	parts []ocispec.Descriptor
	here  map[digest.Digest]bool // those that are complete; used by one goroutine at a time
}

// see is called with each part before it is fetched.
func (t *pullTracker) see(_ context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts = append(t.parts, desc)
	return nil, nil
}

func (t *pullTracker) tell(ctx context.Context, progress func(providers.PullProgress)) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			progress(t.progress(ctx))
		}
	}
}

// progress asks the content store how much of the parts is here.
func (t *pullTracker) progress(ctx context.Context) providers.PullProgress {
	t.mu.Lock()
	parts := t.parts
	t.mu.Unlock()
	if len(parts) == 0 {
		return providers.PullProgress{Phase: providers.Resolving}
	}
	store := t.p.client.ContentStore()
	coming := map[string]int64{}
	if active, err := store.ListStatuses(ctx, ""); err == nil { // without it, only whole parts count
		for _, status := range active {
			coming[status.Ref] = status.Offset
		}
	}
	got := providers.PullProgress{Phase: providers.Fetching}
	seen := map[digest.Digest]bool{}
	for _, part := range parts {
		if seen[part.Digest] {
			continue
		}
		seen[part.Digest] = true
		got.TotalBytes += part.Size
		if !t.here[part.Digest] {
			if offset, ok := coming[remotes.MakeRefKey(ctx, part)]; ok {
				got.DoneBytes += min(offset, part.Size)
				continue
			}
			_, err := store.Info(ctx, part.Digest)
			t.here[part.Digest] = err == nil
		}
		if t.here[part.Digest] {
			got.DoneBytes += part.Size
		}
	}
	return got
}
