package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

const (
	maxReferenceBytes = 512
	defaultPath       = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// imageInfo is what matters of the engine's description of an image.
type imageInfo struct {
	ID          string `json:"Id"`
	RepoTags    []string
	RepoDigests []string
	Created     time.Time
	Size        int64
	Config      imageConfig

	name string // by which it was found
}

// imageConfig is how an image wants to be run.
type imageConfig struct {
	Env         []string       `json:",omitempty"`
	Cmd         []string       `json:",omitempty"`
	Entrypoint  []string       `json:",omitempty"`
	Volumes     map[string]any `json:",omitempty"`
	Healthcheck any            `json:",omitempty"`
	Labels      map[string]string
}

func (i imageInfo) describe() providers.Image {
	return providers.Image{Name: i.name, Digest: i.ID, SizeBytes: i.Size, Created: i.Created}
}

func noImage(name string) error {
	return errs.New(errs.NotFound, errs.ImageNotFound, "no image %s", shorten(name))
}

// completeReference is a name as docker completes it, in its short form.
func completeReference(field, text string) (string, error) {
	if text == "" || len(text) > maxReferenceBytes {
		return "", errs.Invalid(field, "must have from 1 to %d bytes", maxReferenceBytes)
	}
	named, err := reference.ParseDockerRef(text)
	if err != nil {
		return "", errs.Invalid(field, "must be like [HOST[:PORT]/]PATH[:TAG][@DIGEST]: %s", err).WithCause(err)
	}
	return reference.FamiliarString(named), nil
}

// repoAndTag are the two parts in which the engine wants a name that is to be given.
func repoAndTag(field, text string) (name, repo, tag string, err error) {
	name, err = completeReference(field, text)
	if err != nil {
		return "", "", "", err
	}
	if strings.Contains(name, "@") {
		return "", "", "", errs.Invalid(field, "must be without a digest")
	}
	colon := strings.LastIndexByte(name, ':')
	return name, name[:colon], name[colon+1:], nil
}

// findImage asks for an image by its name. The engine also takes the beginning of an id for a
// name, so what it finds must have the name.
func (p *Provider) findImage(ctx context.Context, text string) (imageInfo, error) {
	name, err := completeReference("image", text)
	if err != nil {
		return imageInfo{}, noImage(text)
	}
	var image imageInfo
	err = p.engine.get(ctx, "/images/"+name+"/json", nil, &image)
	if answered(err, http.StatusNotFound) {
		return imageInfo{}, noImage(text)
	}
	if err != nil {
		return imageInfo{}, fmt.Errorf("get image %s: %w", name, translate(err))
	}
	if !slices.Contains(image.RepoTags, name) && !slices.Contains(image.RepoDigests, name) {
		return imageInfo{}, noImage(text)
	}
	image.name = name
	return image, nil
}

// GetImage returns one image by its name.
func (p *Provider) GetImage(ctx context.Context, name string) (providers.Image, error) {
	image, err := p.findImage(ctx, name)
	if err != nil {
		return providers.Image{}, err
	}
	return image.describe(), nil
}

// ListImages returns all images in the order of their names: each once for each of its names.
func (p *Provider) ListImages(ctx context.Context) ([]providers.Image, error) {
	names, err := p.names(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", translate(err))
	}
	all := make([]providers.Image, 0, len(names))
	for _, image := range names {
		all = append(all, image)
	}
	slices.SortFunc(all, func(a, b providers.Image) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// names are all images by name.
func (p *Provider) names(ctx context.Context) (map[string]providers.Image, error) {
	var list []struct {
		ID            string `json:"Id"`
		RepoTags      []string
		Created, Size int64
	}
	if err := p.engine.get(ctx, "/images/json", nil, &list); err != nil {
		return nil, err
	}
	all := map[string]providers.Image{}
	for _, i := range list {
		for _, tag := range i.RepoTags {
			if tag != "<none>:<none>" {
				all[tag] = providers.Image{Name: tag, Digest: i.ID, SizeBytes: i.Size, Created: time.Unix(i.Created, 0)}
			}
		}
	}
	return all, nil
}

// ImportArchive imports an archive as `docker save` writes it; OCI's where the engine can (from
// version 25 on).
func (p *Provider) ImportArchive(ctx context.Context, name string, archive io.Reader) ([]providers.Image, error) {
	if name != "" {
		if _, _, _, err := repoAndTag("name", name); err != nil {
			return nil, err
		}
	}
	p.imageMu.Lock()
	defer p.imageMu.Unlock()
	before, err := p.names(ctx)
	if err != nil {
		return nil, fmt.Errorf("import image: %w", translate(err))
	}
	loaded, err := p.load(ctx, archive)
	if err != nil {
		return nil, importError(err)
	}
	if name == "" {
		return p.namesLoaded(ctx, loaded)
	}
	image, err := p.rename(ctx, name, loaded, before)
	if err != nil {
		return nil, err
	}
	return []providers.Image{image}, nil
}

func importError(err error) error {
	var s *statusError
	if errors.As(err, &s) && s.code != http.StatusConflict {
		return errs.Invalid("archive", "it is no image archive that this Docker Engine can use: %s", s.message).WithCause(err)
	}
	return fmt.Errorf("import image: %w", translate(err))
}

// load returns the names of the images that an archive had, or their ids.
func (p *Provider) load(ctx context.Context, archive io.Reader) (loaded []string, err error) {
	err = p.engine.upload(ctx, "/images/load", url.Values{"quiet": {"1"}}, archive, func(m message) {
		for _, prefix := range []string{"Loaded image: ", "Loaded image ID: "} {
			if name, ok := strings.CutPrefix(strings.TrimSpace(m.Stream), prefix); ok {
				loaded = append(loaded, name)
			}
		}
	})
	return loaded, err
}

func (p *Provider) namesLoaded(ctx context.Context, loaded []string) ([]providers.Image, error) {
	var all []providers.Image
	for _, name := range loaded {
		if strings.HasPrefix(name, "sha256:") {
			continue
		}
		image, err := p.findImage(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, image.describe())
	}
	if len(all) == 0 {
		p.drop(ctx, loaded)
		return nil, errs.Invalid("name", "the archive names no image: give a name")
	}
	return all, nil
}

// rename gives the one image of an archive its name, and the names inside back to those who had
// them before.
func (p *Provider) rename(ctx context.Context, name string, loaded []string, before map[string]providers.Image) (providers.Image, error) {
	ids := map[string]bool{}
	for _, l := range loaded {
		var image imageInfo
		if err := p.engine.get(ctx, "/images/"+l+"/json", nil, &image); err != nil {
			return providers.Image{}, fmt.Errorf("import image: %w", translate(err))
		}
		ids[image.ID] = true
	}
	wanted, _, _, err := repoAndTag("name", name)
	if err != nil {
		return providers.Image{}, err
	}
	if len(ids) == 1 {
		for id := range ids {
			if err := p.tag(ctx, id, name); err != nil {
				return providers.Image{}, fmt.Errorf("import image: %w", translate(err))
			}
		}
	}
	var unwanted []string
	for _, l := range loaded {
		old, was := before[l]
		switch {
		case l == wanted && len(ids) == 1:
		case was:
			if err := p.tag(ctx, old.Digest, l); err != nil {
				p.log.Warn("name of an image not given back", "image", l, "err", err)
			}
		default:
			unwanted = append(unwanted, l)
		}
	}
	if len(ids) != 1 {
		p.drop(ctx, unwanted)
		return providers.Image{}, errs.Invalid("archive", "it holds %d images: import it without a name", len(ids))
	}
	p.drop(ctx, slices.DeleteFunc(unwanted, func(l string) bool { return strings.HasPrefix(l, "sha256:") }))
	image, err := p.findImage(ctx, name)
	if err != nil {
		return providers.Image{}, err
	}
	return image.describe(), nil
}

func (p *Provider) tag(ctx context.Context, image, name string) error {
	_, repo, tag, err := repoAndTag("name", name)
	if err != nil {
		return err
	}
	return p.engine.post(ctx, "/images/"+image+"/tag", url.Values{"repo": {repo}, "tag": {tag}}, nil, nil)
}

// drop removes names, or images without one, that nobody asked for.
func (p *Provider) drop(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTimeout, errors.New("clean-up took too long"))
	defer cancel()
	for _, name := range names {
		err := p.engine.call(ctx, http.MethodDelete, "/images/"+name, nil, nil, nil)
		if err != nil && !answered(err, http.StatusNotFound) && !answered(err, http.StatusConflict) {
			p.log.Warn("useless image kept", "image", name, "err", err)
		}
	}
}

// ImportRootFS makes an image of one layer from a tar of a root file system, compressed or not.
func (p *Provider) ImportRootFS(ctx context.Context, name string, rootfs io.Reader) (providers.Image, error) {
	_, repo, tag, err := repoAndTag("name", name)
	if err != nil {
		return providers.Image{}, err
	}
	p.imageMu.Lock()
	defer p.imageMu.Unlock()
	err = p.engine.upload(ctx, "/images/create", url.Values{
		"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}, "changes": {"ENV PATH=" + defaultPath},
	}, rootfs, func(message) {})
	if err != nil {
		return providers.Image{}, importError(err)
	}
	image, err := p.findImage(ctx, name)
	if err != nil {
		return providers.Image{}, err
	}
	return image.describe(), nil
}

// PullImage is refused: the engine fetches as it is set up itself, also without TLS where it
// was not asked for, and its credentials would go by other rules than ours.
func (p *Provider) PullImage(_ context.Context, pull providers.Pull, _ func(providers.PullProgress)) (providers.Image, error) {
	name, err := completeReference("reference", pull.Reference)
	if err != nil {
		return providers.Image{}, err
	}
	return providers.Image{}, unsupported("the docker provider pulls no images: run `docker pull %s` on the engine, or import an archive", name)
}

// ExportImage writes the engine's archive: docker's, and OCI's at once where the engine can.
func (p *Provider) ExportImage(ctx context.Context, name string, w io.Writer) error {
	image, err := p.findImage(ctx, name)
	if err != nil {
		return err
	}
	resp, err := p.engine.do(ctx, http.MethodGet, "/images/"+image.name+"/get", nil, nil, nil)
	if err != nil {
		return fmt.Errorf("export image %s: %w", image.name, translate(err))
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("export image %s: %w", image.name, err)
	}
	return nil
}

// DeleteImage removes a name, and the image with its last one.
func (p *Provider) DeleteImage(ctx context.Context, name string) error {
	p.imageMu.Lock()
	defer p.imageMu.Unlock()
	image, err := p.findImage(ctx, name)
	if err != nil {
		return err
	}
	containers, err := p.containers(ctx)
	if err != nil {
		return fmt.Errorf("delete image %s: %w", image.name, translate(err))
	}
	inUse := errs.New(errs.FailedPrecondition, errs.ImageInUse, "a sandbox was made of image %s; delete it first", image.name)
	for _, c := range containers {
		if c.ImageID == image.ID && c.Labels[labelImage] == image.name {
			return inUse
		}
	}
	err = p.engine.call(ctx, http.MethodDelete, "/images/"+image.name, nil, nil, nil)
	switch {
	case answered(err, http.StatusNotFound):
		return noImage(name)
	case answered(err, http.StatusConflict):
		return inUse.WithCause(err)
	case err != nil:
		return fmt.Errorf("delete image %s: %w", image.name, translate(err))
	}
	return nil
}
