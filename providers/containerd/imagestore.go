package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// findImage returns the image of this name, else of the name that docker makes of it;
// NotFound (IMAGE_NOT_FOUND).
func (p *Provider) findImage(ctx context.Context, name string) (client.Image, error) {
	names := []string{name}
	if full, _, err := completeReference("image", name); err == nil && full != name {
		names = append(names, full)
	}
	for _, n := range names {
		image, err := p.client.GetImage(ctx, n)
		if err == nil {
			return image, nil
		}
		if !errdefs.IsNotFound(err) {
			return nil, fmt.Errorf("get image %s: %w", name, err)
		}
	}
	return nil, errs.New(errs.NotFound, errs.ImageNotFound, "no image %s; import or pull it first", name).WithMeta("image", name)
}

// useImage finds an image and keeps its name from being deleted until release.
func (p *Provider) useImage(ctx context.Context, name string) (_ client.Image, release func(), err error) {
	p.imageMu.Lock()
	defer p.imageMu.Unlock()
	image, err := p.findImage(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	used := image.Name()
	p.imageUsers[used]++
	return image, func() {
		p.imageMu.Lock()
		defer p.imageMu.Unlock()
		if p.imageUsers[used]--; p.imageUsers[used] == 0 {
			delete(p.imageUsers, used)
		}
	}, nil
}

// GetImage returns one image. See providers.Imager.
func (p *Provider) GetImage(ctx context.Context, name string) (providers.Image, error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	image, err := p.findImage(ctx, name)
	if err != nil {
		return providers.Image{}, p.translate(err)
	}
	return describe(ctx, image), nil
}

// DeleteImage removes a name and what nothing else needs. See providers.Imager.
func (p *Provider) DeleteImage(ctx context.Context, name string) error {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	p.imageMu.Lock()
	defer p.imageMu.Unlock()
	image, err := p.findImage(ctx, name)
	if err != nil {
		return p.translate(err)
	}
	inUse := errs.New(errs.FailedPrecondition, errs.ImageInUse, "image %s is in use; delete the sandboxes made of it first", image.Name()).
		WithMeta("image", image.Name())
	users, err := p.client.ContainerService().List(ctx, fmt.Sprintf("image==%q", image.Name()))
	if err != nil {
		return fmt.Errorf("delete image %s: %w", image.Name(), p.translate(err))
	}
	for _, user := range users {
		if user.Labels[labelInstance] == p.cfg.Instance { // the names of other daemons' sandboxes are none of the caller's business
			inUse = inUse.WithMeta("sandbox", user.Labels[labelSandbox])
		}
	}
	if len(users) > 0 || p.imageUsers[image.Name()] > 0 {
		return inUse
	}
	// Synchronous: the content and the snapshots are gone on return.
	err = p.client.ImageService().Delete(ctx, image.Name(), images.SynchronousDelete())
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete image %s: %w", image.Name(), p.translate(err))
	}
	return nil
}

// ExportImage writes an image as an archive. See providers.Imager.
func (p *Provider) ExportImage(ctx context.Context, name string, w io.Writer) error {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	image, release, err := p.useImage(ctx, name)
	if err != nil {
		return p.translate(err)
	}
	defer release()
	manifest, err := platformManifest(ctx, p.client.ContentStore(), image.Target())
	if err == nil {
		err = p.client.Export(ctx, w, archive.WithManifest(manifest, image.Name()))
	}
	if err != nil {
		return fmt.Errorf("export image %s: %w", image.Name(), p.translate(err))
	}
	return nil
}

// platformManifest is the manifest for this host: an index also names those of other
// platforms, whose parts are not here.
func platformManifest(ctx context.Context, store content.Provider, target ocispec.Descriptor) (ocispec.Descriptor, error) {
	if images.IsManifestType(target.MediaType) {
		return target, nil
	}
	here := platforms.Default()
	inside, err := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(store), here), here, 1).Handle(ctx, target)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	for _, m := range inside {
		if images.IsManifestType(m.MediaType) {
			return plainDescriptor(m), nil
		}
	}
	return ocispec.Descriptor{}, errors.New("it has no manifest for this platform")
}
