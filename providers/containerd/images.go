package containerd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	ociarchive "github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// unpacked makes sure that an image's layers are snapshots; many at once do it once.
func (p *Provider) unpacked(ctx context.Context, image client.Image) error {
	if ok, err := image.IsUnpacked(ctx, snapshotter); err == nil && ok {
		return nil
	}
	_, err, _ := p.unpack.Do(image.Target().Digest.String(), func() (any, error) {
		return nil, image.Unpack(ctx, snapshotter)
	})
	if err != nil {
		return fmt.Errorf("unpack image %s: %w", image.Name(), err)
	}
	return nil
}

// imageConfig is how the image wants to be run.
func imageConfig(ctx context.Context, image client.Image) (ocispec.ImageConfig, error) {
	spec, err := image.Spec(ctx)
	if err != nil {
		return ocispec.ImageConfig{}, fmt.Errorf("read config of image %s: %w", image.Name(), err)
	}
	return spec.Config, nil
}

// ListImages returns all images in the order of their names.
func (p *Provider) ListImages(ctx context.Context) ([]providers.Image, error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	list, err := p.client.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", p.translate(err))
	}
	all := make([]providers.Image, 0, len(list))
	for _, i := range list {
		all = append(all, describe(ctx, i))
	}
	slices.SortFunc(all, func(a, b providers.Image) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func describe(ctx context.Context, i client.Image) providers.Image {
	size, err := i.Size(ctx)
	if err != nil {
		size = 0 // parts of it are missing
	}
	return providers.Image{Name: i.Name(), Digest: i.Target().Digest.String(), SizeBytes: size, Created: i.Metadata().CreatedAt}
}

// ImportArchive imports an OCI or docker archive, compressed or not.
func (p *Provider) ImportArchive(ctx context.Context, name string, archive io.Reader) (_ []providers.Image, err error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	ctx, done, err := p.workLease(ctx)
	if err != nil {
		return nil, fmt.Errorf("import image: %w", p.translate(err))
	}
	defer func() { done(err == nil) }()
	plain, err := compression.DecompressStream(archive)
	if err != nil {
		return nil, badArchive(err)
	}
	defer plain.Close()
	imported, err := p.importPlain(ctx, name, plain)
	if err != nil {
		if context.Cause(ctx) == nil && !errdefs.IsUnavailable(err) {
			return nil, badArchive(err)
		}
		return nil, fmt.Errorf("import image: %w", p.translate(err))
	}
	if len(imported) == 0 {
		return nil, errs.Invalid("name", "the archive names no image: give a name")
	}
	var all []providers.Image
	for _, meta := range imported {
		image := client.NewImage(p.client, meta)
		if err := p.unpacked(ctx, image); err != nil {
			p.forgetImage(ctx, meta.Name)
			return nil, badArchive(err)
		}
		all = append(all, describe(ctx, image))
	}
	return all, nil
}

// importPlain imports under the names inside the archive, or the one image in it under name.
func (p *Provider) importPlain(ctx context.Context, name string, archive io.Reader) ([]images.Image, error) {
	if name == "" {
		return p.client.Import(ctx, archive)
	}
	store := p.client.ContentStore()
	index, err := ociarchive.ImportIndex(ctx, store, archive)
	if err != nil {
		return nil, err
	}
	handler := images.SetChildrenLabels(store, images.ChildrenHandler(store)) // keeps the parts as long as the image
	handler = images.FilterPlatforms(handler, platforms.All)
	if err := images.WalkNotEmpty(ctx, handler, index); err != nil {
		return nil, err
	}
	inside, err := images.Children(ctx, store, index)
	if err != nil {
		return nil, err
	}
	target := index // one image for several platforms, if not
	if len(inside) == 1 {
		target = inside[0]
	}
	for _, other := range inside[min(1, len(inside)):] {
		if other.Annotations[images.AnnotationImageName] != inside[0].Annotations[images.AnnotationImageName] {
			return nil, errors.New("it holds several images: import it without a name")
		}
	}
	meta, err := p.putImage(ctx, images.Image{Name: name, Target: plainDescriptor(target)})
	return []images.Image{meta}, err
}

// plainDescriptor drops the annotations, which carry the old name.
func plainDescriptor(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Platform: d.Platform}
}

func badArchive(err error) error {
	return errs.Invalid("archive", "it is no image archive that containerd can use: %s", shorten(err.Error())).WithCause(err)
}

func shorten(s string) string {
	const maxBytes = 300
	if len(s) > maxBytes {
		return s[:maxBytes] + "…"
	}
	return s
}

func (p *Provider) forgetImage(ctx context.Context, name string) {
	if err := p.client.ImageService().Delete(context.WithoutCancel(ctx), name); err != nil && !errdefs.IsNotFound(err) {
		p.log.Warn("useless image kept", "image", name, "err", err)
	}
}

// ImportRootFS makes an image of one layer from a tar of a root file system, compressed or not.
func (p *Provider) ImportRootFS(ctx context.Context, name string, rootfs io.Reader) (_ providers.Image, err error) {
	if name == "" {
		return providers.Image{}, errs.Invalid("name", "an image made from a root file system needs one")
	}
	ctx = namespaces.WithNamespace(ctx, Namespace)
	ctx, done, err := p.workLease(ctx) // keeps the parts until the image holds them
	if err != nil {
		return providers.Image{}, fmt.Errorf("import image: %w", p.translate(err))
	}
	defer func() { done(err == nil) }()
	plain, err := compression.DecompressStream(rootfs)
	if err != nil {
		return providers.Image{}, badArchive(err)
	}
	defer plain.Close()
	manifest, err := p.writeImage(ctx, plain)
	if err != nil {
		return providers.Image{}, fmt.Errorf("import image: %w", p.translate(err))
	}
	meta, err := p.putImage(ctx, images.Image{Name: name, Target: manifest})
	if err != nil {
		return providers.Image{}, fmt.Errorf("import image: %w", p.translate(err))
	}
	image := client.NewImage(p.client, meta)
	if err := p.unpacked(ctx, image); err != nil {
		p.forgetImage(ctx, name)
		return providers.Image{}, badArchive(err)
	}
	return describe(ctx, image), nil
}

func (p *Provider) putImage(ctx context.Context, image images.Image) (images.Image, error) {
	service := p.client.ImageService()
	meta, err := service.Create(ctx, image)
	if errdefs.IsAlreadyExists(err) {
		meta, err = service.Update(ctx, image)
	}
	return meta, err
}

// writeImage puts layer, config and manifest into the content store.
func (p *Provider) writeImage(ctx context.Context, rootfs io.Reader) (ocispec.Descriptor, error) {
	layer, err := p.writeLayer(ctx, rootfs)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	now := time.Now().UTC()
	config, err := p.writeJSON(ctx, ocispec.MediaTypeImageConfig, ocispec.Image{
		Created:  &now,
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: runtime.GOOS},
		Config:   ocispec.ImageConfig{Env: []string{"PATH=" + defaultPath}},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
	}, nil)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return p.writeJSON(ctx, ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    config,
		Layers:    []ocispec.Descriptor{layer},
	}, map[string]string{
		"containerd.io/gc.ref.content.config": config.Digest.String(),
		"containerd.io/gc.ref.content.l.0":    layer.Digest.String(),
	})
}

// writeLayer stores the tar as it is: its digest is known at its end only.
func (p *Provider) writeLayer(ctx context.Context, rootfs io.Reader) (ocispec.Descriptor, error) {
	store := p.client.ContentStore()
	w, err := content.OpenWriter(ctx, store, content.WithRef(fmt.Sprintf("agentix-rootfs-%d", time.Now().UnixNano())))
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("write layer: %w", err)
	}
	defer w.Close()
	size, err := io.Copy(w, rootfs)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("write layer: %w", err)
	}
	dgst := w.Digest()
	if err := w.Commit(ctx, size, dgst); err != nil && !errdefs.IsAlreadyExists(err) {
		return ocispec.Descriptor{}, fmt.Errorf("write layer: %w", err)
	}
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: dgst, Size: size}, nil
}

func (p *Provider) writeJSON(ctx context.Context, mediaType string, v any, labels map[string]string) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("encode %s: %w", mediaType, err)
	}
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	err = content.WriteBlob(ctx, p.client.ContentStore(), "agentix-"+desc.Digest.String(), bytes.NewReader(data), desc, content.WithLabels(labels))
	if err != nil && !errors.Is(err, errdefs.ErrAlreadyExists) {
		return ocispec.Descriptor{}, fmt.Errorf("write %s: %w", mediaType, err)
	}
	return desc, nil
}
