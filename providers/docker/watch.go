package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/agentixd/agentixd/providers"
)

const (
	oomPatience = 500 * time.Millisecond // for the engine to hear why a process was killed
	oomPause    = 50 * time.Millisecond
)

// containerInfo is what matters of the engine's description of a container.
type containerInfo struct {
	ID     string `json:"Id"`
	Image  string // the image's id
	Config imageConfig
	State  struct {
		Status    string
		Running   bool
		Paused    bool
		OOMKilled bool
		ExitCode  int
	}
	HostConfig struct{ Memory int64 }
}

func (p *Provider) inspect(ctx context.Context, name string) (containerInfo, error) {
	var c containerInfo
	return c, p.engine.get(ctx, "/containers/"+name+"/json", nil, &c)
}

// List returns every sandbox of this daemon: whatever has a container or a directory.
func (p *Provider) List(ctx context.Context) ([]providers.Status, error) {
	all, err := p.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", translate(err))
	}
	list := make([]providers.Status, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[id])
	}
	return list, nil
}

func (p *Provider) list(ctx context.Context) (map[string]providers.Status, error) {
	dirs, err := os.ReadDir(p.cfg.StateDir) // before the containers: a directory is made first
	if err != nil {
		return nil, err
	}
	containers, err := p.containers(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]providers.Status{}
	for _, c := range containers {
		id := c.Labels[labelSandbox]
		switch c.State {
		case "running", "paused":
			all[id] = providers.Status{ID: id, Running: true, Paused: c.State == "paused"}
		default:
			if all[id], err = p.status(ctx, id, c.ID); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range dirs {
		if _, known := all[d.Name()]; !known && d.IsDir() && providers.ValidID(d.Name()) {
			all[d.Name()] = lost(d.Name())
		}
	}
	return all, nil
}

// listed is a container in the engine's list.
type listed struct {
	ID      string `json:"Id"`
	Names   []string
	ImageID string
	State   string
	Labels  map[string]string
}

// containers lists those of this daemon. The name says so besides the labels, which an image
// can bring to a container of somebody else's.
func (p *Provider) containers(ctx context.Context) ([]listed, error) {
	var all []listed
	err := p.engine.get(ctx, "/containers/json", url.Values{"all": {"1"}, "filters": {filters(map[string]string{"label": labelInstance + "=" + p.cfg.Instance})}}, &all)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c listed) bool {
		id := c.Labels[labelSandbox]
		return !providers.ValidID(id) || !slices.Contains(c.Names, "/"+p.containerName(id))
	}), nil
}

// filters is the engine's form of them.
func filters(pairs map[string]string) string {
	all := map[string][]string{}
	for name, value := range pairs {
		all[name] = []string{value}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return "" // strings can be encoded
	}
	return string(data)
}

func lost(id string) providers.Status {
	return providers.Status{ID: id, Exit: &providers.Exit{ID: id, Reason: providers.Lost}}
}

// status asks for one sandbox's container. Without one the sandbox is half-made, or gone.
func (p *Provider) status(ctx context.Context, id, container string) (providers.Status, error) {
	c, err := p.inspect(ctx, container)
	if answered(err, http.StatusNotFound) {
		return lost(id), nil
	}
	if err != nil {
		return providers.Status{}, err
	}
	return statusOf(id, c), nil
}

func statusOf(id string, c containerInfo) providers.Status {
	switch {
	case c.State.Running:
		return providers.Status{ID: id, Running: true, Paused: c.State.Paused}
	case c.State.Status == "exited", c.State.Status == "dead":
		exit := exitOf(id, c)
		return providers.Status{ID: id, Exit: &exit}
	}
	return lost(id) // half-made, or half-removed
}

// exitOf reads the engine's exit status, in which 128 + n is signal n.
func exitOf(id string, c containerInfo) providers.Exit {
	const signals, sigkill = 64, 9
	code := c.State.ExitCode
	if code <= 128 || code > 128+signals {
		return providers.Exit{ID: id, Reason: providers.Exited, Code: code}
	}
	exit := providers.Exit{ID: id, Reason: providers.Killed, Code: 128 - code}
	if exit.Code == -sigkill && c.State.OOMKilled {
		exit.Reason = providers.OOMKilled
	}
	return exit
}

// adopt watches what runs already.
func (p *Provider) adopt(ctx context.Context) error {
	containers, err := p.containers(ctx)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", translate(err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range containers {
		if c.State == "running" || c.State == "paused" {
			p.watched[c.Labels[labelSandbox]] = c.ID
		}
	}
	return nil
}

// watch tells of exits until Close. The engine's events are hints: each time they begin anew,
// all that is watched is looked at.
func (p *Provider) watch() {
	pause := 50 * time.Millisecond
	for {
		began := time.Now()
		err := p.follow(p.closing)
		if p.closing.Err() != nil {
			return
		}
		if time.Since(began) > 10*time.Second {
			pause = 50 * time.Millisecond
		}
		p.log.Debug("docker's events ended, will ask again", "err", err)
		select {
		case <-p.closing.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// event is one of the engine's.
type event struct {
	Actor struct {
		ID         string
		Attributes map[string]string
	}
}

func (p *Provider) follow(ctx context.Context) error {
	since := strconv.FormatInt(time.Now().Unix(), 10)
	resp, err := p.engine.do(ctx, http.MethodGet, "/events", url.Values{"since": {since}, "filters": {filters(map[string]string{
		"type": "container", "event": "die", "label": labelInstance + "=" + p.cfg.Instance,
	})}}, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it has no end
	p.mu.Lock()
	watched := maps.Clone(p.watched)
	p.mu.Unlock()
	for id, cid := range watched {
		p.wg.Go(func() { p.look(ctx, id, cid) }) // ends with the answer, or with Close
	}
	d := json.NewDecoder(resp.Body)
	for {
		var e event
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("read docker's events: %w", err)
		}
		p.wg.Go(func() { p.look(ctx, e.Actor.Attributes[labelSandbox], e.Actor.ID) }) // as above
	}
}

// look tells of the end of a watched container once, if it has ended.
func (p *Provider) look(ctx context.Context, id, cid string) {
	if !p.isWatched(id, cid) {
		return
	}
	st, err := p.ended(ctx, id, cid)
	if err != nil {
		p.log.Debug("sandbox not looked at", "sandbox", id, "err", err)
		return
	}
	if st.Exit == nil {
		return
	}
	p.mu.Lock()
	tell := p.watched[id] == cid
	if tell {
		delete(p.watched, id)
	}
	p.mu.Unlock()
	if tell {
		p.exits.Publish(*st.Exit)
	}
}

func (p *Provider) isWatched(id, cid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watched[id] == cid
}

// ended is the status of a container of which an event says that it has ended. That memory was
// the cause is noted by the engine on its own, at times a moment later.
func (p *Provider) ended(ctx context.Context, id, cid string) (providers.Status, error) {
	for deadline := time.Now().Add(oomPatience); ; {
		c, err := p.inspect(ctx, cid)
		if answered(err, http.StatusNotFound) {
			return lost(id), nil
		}
		if err != nil {
			return providers.Status{}, err
		}
		st := statusOf(id, c)
		if c.State.Status == "created" { // it was not started yet
			return providers.Status{ID: id}, nil
		}
		unsure := st.Exit != nil && st.Exit.Reason == providers.Killed && c.HostConfig.Memory > 0
		if !unsure || time.Now().After(deadline) {
			return st, nil
		}
		select {
		case <-ctx.Done():
			return providers.Status{}, errors.Join(context.Cause(ctx), ctx.Err())
		case <-time.After(oomPause):
		}
	}
}
