package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// labelImage says of what content a sandbox was made: media type and digest.
const labelImage = "agentix.dev/image"

// withImage adds of what content a sandbox is made; its name may mean something else later.
func withImage(labels map[string]string, image client.Image) map[string]string {
	labels = maps.Clone(labels)
	labels[labelImage] = image.Target().MediaType + " " + image.Target().Digest.String()
	return labels
}

// keepImage keeps the content of a sandbox's image as long as the sandbox: a snapshot needs it.
func (p *Provider) keepImage(ctx context.Context, cid string, image client.Image) error {
	resource := leases.Resource{ID: image.Target().Digest.String(), Type: "content"}
	if err := p.client.LeasesService().AddResource(ctx, leases.Lease{ID: cid}, resource); err != nil {
		return fmt.Errorf("keep image: %w", err)
	}
	return nil
}

// Snapshot makes an image of a sandbox's file system. See providers.Snapshotter.
func (p *Provider) Snapshot(ctx context.Context, id, name string) (_ providers.Image, err error) {
	if !providers.ValidID(id) {
		return providers.Image{}, errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", id)
	}
	if name == "" {
		return providers.Image{}, errs.Invalid("image", "is required")
	}
	ctx = namespaces.WithNamespace(ctx, Namespace)
	unlock, err := p.locks.Lock(ctx, id)
	if err != nil {
		return providers.Image{}, err
	}
	defer unlock()
	ctx, done, err := p.workLease(ctx)
	if err != nil {
		return providers.Image{}, fmt.Errorf("snapshot sandbox %s: %w", id, p.translate(err))
	}
	defer func() { done(err == nil) }()
	image, err := p.snapshot(ctx, id, name)
	if err != nil {
		return providers.Image{}, fmt.Errorf("snapshot sandbox %s: %w", id, p.translate(err))
	}
	return image, nil
}

func (p *Provider) snapshot(ctx context.Context, id, name string) (providers.Image, error) {
	cid := p.containerID(id)
	container, err := p.client.LoadContainer(ctx, cid)
	if errdefs.IsNotFound(err) {
		return providers.Image{}, errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", id)
	}
	if err != nil {
		return providers.Image{}, err
	}
	base, err := p.baseOf(ctx, container)
	if err != nil {
		return providers.Image{}, err
	}
	layer, err := p.frozenLayer(ctx, id, container)
	if err != nil {
		return providers.Image{}, err
	}
	manifest, err := p.writeChild(ctx, base, layer)
	if err != nil {
		return providers.Image{}, err
	}
	meta, err := p.putImage(ctx, images.Image{Name: name, Target: manifest})
	if err != nil {
		return providers.Image{}, err
	}
	image := client.NewImage(p.client, meta)
	if err := p.unpacked(ctx, image); err != nil {
		p.forgetImage(ctx, name)
		return providers.Image{}, err
	}
	return describe(ctx, image), nil
}

// base is the image that a sandbox was made of.
type base struct {
	manifest ocispec.Manifest
	config   ocispec.Image
}

func (p *Provider) baseOf(ctx context.Context, container client.Container) (b base, err error) {
	info, err := container.Info(ctx)
	if err != nil {
		return b, err
	}
	mediaType, text, ok := strings.Cut(info.Labels[labelImage], " ")
	target := ocispec.Descriptor{MediaType: mediaType, Digest: digest.Digest(text)}
	if !ok { // made by an earlier release
		image, err := p.findImage(ctx, info.Image)
		if err != nil {
			return b, err
		}
		target = image.Target()
	}
	store := p.client.ContentStore()
	manifest, err := platformManifest(ctx, store, target)
	if err == nil {
		err = readJSON(ctx, store, manifest, &b.manifest)
	}
	if err == nil {
		err = readJSON(ctx, store, b.manifest.Config, &b.config)
	}
	if errdefs.IsNotFound(err) {
		return b, errs.New(errs.FailedPrecondition, errs.Unsupported, "the image that the sandbox was made of is gone").WithCause(err)
	}
	return b, err
}

func readJSON(ctx context.Context, store content.Provider, desc ocispec.Descriptor, v any) error {
	data, err := content.ReadBlob(ctx, store, desc)
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.MediaType, err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", desc.MediaType, err)
	}
	return nil
}

// frozenLayer writes what the sandbox has changed as a layer. Its processes stand still
// meanwhile, so that nothing changes under the walk, and what they were writing is whole.
func (p *Provider) frozenLayer(ctx context.Context, id string, container client.Container) (_ ocispec.Descriptor, err error) {
	upper, shift, err := p.upperOf(ctx, id, container)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	status, err := p.status(ctx, id)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if status.Running && !status.Paused {
		f, err := freezerOf(p.containerID(id))
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		defer func() { // also after a freeze that got stuck half way
			if thawErr := f.thaw(); thawErr != nil && err == nil {
				p.log.Error("sandbox not thawed after its snapshot", "sandbox", id, "err", thawErr)
			}
		}()
		if err := f.freeze(ctx); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	reader, writer := io.Pipe()
	walked := make(chan struct{})
	go func() { // ends with the walk, or when the reader is closed
		defer close(walked)
		writer.CloseWithError(writeUpper(ctx, writer, upper, shift))
	}()
	layer, err := p.writeLayer(ctx, reader)
	_ = reader.CloseWithError(errors.New("the layer is not written any more"))
	<-walked
	return layer, err
}

// upperOf is the directory in which a sandbox's changes are, and by how much the owners in it
// are shifted.
func (p *Provider) upperOf(ctx context.Context, id string, container client.Container) (upper string, shift int, err error) {
	spec, err := container.Spec(ctx)
	if err != nil {
		return "", 0, err
	}
	if spec.Linux != nil && len(spec.Linux.UIDMappings) > 0 {
		shift = int(spec.Linux.UIDMappings[0].HostID)
	}
	if own := filepath.Join(p.hostDir(id).path(diskName), upperName); isDir(own) {
		return own, shift, nil
	}
	mounts, err := p.client.SnapshotService(snapshotter).Mounts(ctx, p.containerID(id))
	if err != nil {
		return "", 0, fmt.Errorf("find the upper layer: %w", err)
	}
	l, err := layersOf(mounts)
	if err != nil {
		return "", 0, err
	}
	if l.upper == "" {
		return "", 0, errors.New("its snapshot has no upper layer")
	}
	return l.upper, shift, nil
}

// writeChild writes config and manifest of an image that is base with one more layer.
func (p *Provider) writeChild(ctx context.Context, b base, layer ocispec.Descriptor) (ocispec.Descriptor, error) {
	now := time.Now().UTC()
	config := b.config
	config.Created = &now
	config.RootFS.DiffIDs = append(append([]digest.Digest{}, config.RootFS.DiffIDs...), layer.Digest)
	config.History = append(append([]ocispec.History{}, config.History...), ocispec.History{Created: &now, CreatedBy: "agentix snapshot"})
	configDesc, err := p.writeJSON(ctx, ocispec.MediaTypeImageConfig, config, nil)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: configDesc}
	labels := map[string]string{"containerd.io/gc.ref.content.config": configDesc.Digest.String()}
	for i, l := range append(append([]ocispec.Descriptor{}, b.manifest.Layers...), layer) {
		if oci, ok := ociLayers[l.MediaType]; ok {
			l.MediaType = oci
		}
		m.Layers = append(m.Layers, l)
		labels[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", i)] = l.Digest.String()
	}
	return p.writeJSON(ctx, ocispec.MediaTypeImageManifest, m, labels)
}

// ociLayers are OCI's names of docker's layers: a manifest has one kind.
var ociLayers = map[string]string{
	images.MediaTypeDockerSchema2Layer:     ocispec.MediaTypeImageLayer,
	images.MediaTypeDockerSchema2LayerGzip: ocispec.MediaTypeImageLayerGzip,
	images.MediaTypeDockerSchema2LayerZstd: ocispec.MediaTypeImageLayerZstd,
}
