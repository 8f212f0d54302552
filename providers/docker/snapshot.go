package docker

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Snapshot makes an image of a sandbox's file system: the engine's commit, during which all
// processes stand still. See providers.Snapshotter.
func (p *Provider) Snapshot(ctx context.Context, id, image string) (providers.Image, error) {
	if !providers.ValidID(id) {
		return providers.Image{}, noSandbox(id)
	}
	_, repo, tag, err := repoAndTag("image", image)
	if err != nil {
		return providers.Image{}, err
	}
	unlock, err := p.locks.Lock(ctx, id)
	if err != nil {
		return providers.Image{}, err
	}
	defer unlock()
	p.imageMu.Lock()
	defer p.imageMu.Unlock()
	old, err := p.findImage(ctx, image)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return providers.Image{}, err
	}
	container, err := p.inspect(ctx, p.containerName(id))
	if answered(err, http.StatusNotFound) {
		return providers.Image{}, noSandbox(id)
	}
	var base imageInfo
	if err == nil {
		err = p.engine.get(ctx, "/images/"+container.Image+"/json", nil, &base)
	}
	if err == nil {
		err = p.engine.post(ctx, "/commit", url.Values{"container": {container.ID}, "repo": {repo}, "tag": {tag}, "pause": {"1"}, "comment": {"agentix snapshot"}},
			commitConfig(base.Config, container.Config), nil)
	}
	if err != nil {
		return providers.Image{}, fmt.Errorf("snapshot sandbox %s: %w", id, translate(err))
	}
	made, err := p.findImage(ctx, image)
	if err != nil {
		return providers.Image{}, err
	}
	if old.ID != "" && old.ID != made.ID && len(old.RepoTags) == 1 {
		p.drop(ctx, []string{old.ID}) // it has no name any more
	}
	return made.describe(), nil
}

// commitConfig is the config of the image that a sandbox was made of. The engine adds to it
// whatever of the container's it does not name: so it names the variables of the sandbox, without
// their values, and the labels.
func commitConfig(base, container imageConfig) imageConfig {
	named := map[string]bool{}
	for _, v := range base.Env {
		name, _, _ := strings.Cut(v, "=")
		named[name] = true
	}
	base.Env = append([]string{}, base.Env...)
	for _, v := range container.Env {
		if name, _, _ := strings.Cut(v, "="); !named[name] {
			named[name] = true
			base.Env = append(base.Env, name)
		}
	}
	labels := map[string]string{labelInstance: "", labelSandbox: "", labelImage: ""}
	for name, value := range base.Labels {
		if _, ours := labels[name]; !ours {
			labels[name] = value
		}
	}
	base.Labels = labels
	return base
}
