package containerd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/agentixd/agentixd/providers"
)

// List returns every sandbox of this daemon: whatever has a container, a lease or a directory.
func (p *Provider) List(ctx context.Context) ([]providers.Status, error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	if err := p.restoreRules(ctx); err != nil { // a look at all is a look at these, too
		p.log.Error("network rules not restored", "err", err)
	}
	statuses, err := p.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", p.translate(err))
	}
	all := make([]providers.Status, 0, len(statuses))
	for _, id := range slices.Sorted(maps.Keys(statuses)) {
		all = append(all, statuses[id])
	}
	return all, nil
}

func (p *Provider) list(ctx context.Context) (map[string]providers.Status, error) {
	filter := fmt.Sprintf("labels.%q==%q", labelInstance, p.cfg.Instance)
	leased, err := p.client.LeasesService().List(ctx, filter)
	if err != nil {
		return nil, err
	}
	containers, err := p.client.ContainerService().List(ctx, filter)
	if err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(p.cfg.StateDir)
	if err != nil {
		return nil, err
	}
	running, err := p.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, err
	}
	byContainer := map[string]*task.Process{}
	for _, t := range running.Tasks {
		byContainer[t.ID] = t
	}
	all := map[string]providers.Status{}
	add := func(id string) {
		if _, known := all[id]; !known && providers.ValidID(id) {
			all[id] = p.statusOf(id, byContainer[p.containerID(id)])
		}
	}
	for _, l := range leased {
		add(l.Labels[labelSandbox])
	}
	for _, c := range containers {
		add(c.Labels[labelSandbox])
	}
	for _, d := range dirs {
		if d.IsDir() {
			add(d.Name())
		}
	}
	return all, nil
}

// status asks for one sandbox.
func (p *Provider) status(ctx context.Context, id string) (providers.Status, error) {
	resp, err := p.client.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: p.containerID(id)})
	if notFound(err) {
		return p.statusOf(id, nil), nil
	}
	if err != nil {
		return providers.Status{}, fmt.Errorf("ask for sandbox %s: %w", id, p.translate(err))
	}
	return p.statusOf(id, resp.Process), nil
}

// statusOf translates; without a task the sandbox was half-made, or its shim has died.
func (p *Provider) statusOf(id string, t *task.Process) providers.Status {
	st := providers.Status{ID: id}
	switch {
	case t == nil:
		st.Exit = &providers.Exit{ID: id, Reason: providers.Lost}
	case t.Status == task.Status_STOPPED:
		exit := p.exitOf(id, t.ExitStatus)
		st.Exit = &exit
	case t.Status != task.Status_CREATED:
		st.Running = true
		st.Paused = t.Status == task.Status_PAUSED || t.Status == task.Status_PAUSING || frozen(p.containerID(id))
	}
	return st
}

// exitOf reads containerd's exit status, in which 128 + n is signal n.
func (p *Provider) exitOf(id string, status uint32) providers.Exit {
	const signals, sigkill = 64, 9
	if status <= 128 || status > 128+signals {
		return providers.Exit{ID: id, Reason: providers.Exited, Code: int(status)}
	}
	exit := providers.Exit{ID: id, Reason: providers.Killed, Code: 128 - int(status)}
	if status == 128+sigkill && oomKills(p.containerID(id)) > 0 {
		exit.Reason = providers.OOMKilled
	}
	return exit
}

// adopt watches what runs already.
func (p *Provider) adopt(ctx context.Context) error {
	list, err := p.List(ctx)
	if err != nil {
		return err
	}
	for _, st := range list {
		if st.Running {
			p.monitor(st.ID)
		}
	}
	return nil
}

// monitor waits for the end of a sandbox in a goroutine that ends with it or with Close.
// containerd may restart meanwhile: its list is asked then.
func (p *Provider) monitor(id string) {
	p.wg.Go(func() {
		pause := 50 * time.Millisecond
		for {
			exit, over, err := p.waitExit(p.closing, id)
			if over {
				p.exits.Publish(exit)
				return
			}
			if p.closing.Err() != nil {
				return
			}
			p.log.Debug("sandbox not watched, will try again", "sandbox", id, "err", err)
			select {
			case <-p.closing.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, 2*time.Second)
		}
	})
}

func (p *Provider) waitExit(ctx context.Context, id string) (exit providers.Exit, over bool, err error) {
	resp, err := p.client.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: p.containerID(id)})
	if err == nil {
		return p.exitOf(id, resp.ExitStatus), true, nil
	}
	st, statusErr := p.status(ctx, id)
	if statusErr != nil {
		return providers.Exit{}, false, statusErr
	}
	if st.Exit != nil {
		return *st.Exit, true, nil
	}
	return providers.Exit{}, false, err
}
