package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
)

const (
	tokenTimeout   = 10 * time.Second // for the shim to take the token
	cleanupTimeout = 30 * time.Second // for removing what a failed create made
)

// Create starts the container of one sandbox. See providers.Provider.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
	switch {
	case !providers.ValidID(spec.ID):
		return nil, providers.InvalidID()
	case spec.Image == "":
		return nil, errs.Invalid("sandbox.image", "the containerd provider needs the name of an imported image")
	case spec.RuntimeURL != "":
		return nil, errs.New(errs.FailedPrecondition, errs.Unsupported, "the containerd provider starts runtimes and cannot join sandbox.runtime.url; leave it unset")
	}
	if err := p.check(ctx, spec); err != nil {
		return nil, err
	}
	unlock, err := p.locks.Lock(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, clock := withSteps(namespaces.WithNamespace(ctx, Namespace))
	image, release, err := p.useImage(ctx, spec.Image)
	if err != nil {
		return nil, p.translate(err)
	}
	defer release()
	if err := p.unpacked(ctx, image); err != nil {
		return nil, p.translate(err)
	}
	config, err := imageConfig(ctx, image)
	if err != nil {
		return nil, p.translate(err)
	}
	user, err := p.accountOf(ctx, image, config.User)
	if err != nil {
		return nil, fmt.Errorf("start sandbox %s: %w", spec.ID, p.translate(err))
	}
	done(ctx, "image")
	cid := p.containerID(spec.ID)
	_, err = p.client.LeasesService().Create(ctx, leases.WithID(cid), leases.WithLabels(p.labels(spec.ID)))
	if errdefs.IsAlreadyExists(err) {
		return nil, errs.New(errs.AlreadyExists, errs.SandboxExists, "sandbox %s exists", spec.ID)
	}
	if err == nil {
		err = p.build(leases.WithLease(ctx, cid), spec, image, config, user)
	}
	if err != nil {
		err = fmt.Errorf("start sandbox %s: %w", spec.ID, p.translate(err))
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTimeout, errors.New("clean-up took too long"))
		defer cancel()
		if rmErr := p.destroy(ctx, spec.ID); rmErr != nil {
			err = errors.Join(err, rmErr)
		}
		return nil, err
	}
	p.log.LogAttrs(ctx, slog.LevelDebug, "sandbox started", append(clock.attrs, slog.String("sandbox", spec.ID))...)
	p.monitor(spec.ID)
	return handle{p: p, id: spec.ID}, nil
}

// check refuses what this host cannot do, before anything is made.
func (p *Provider) check(ctx context.Context, spec providers.Spec) error {
	if err := p.checkLimits(ctx, spec.Limits); err != nil {
		return err
	}
	if err := checkBundle(spec); err != nil {
		return err
	}
	if err := p.checkSecurity(spec); err != nil {
		return err
	}
	return p.checkNetwork(spec)
}

// build makes everything of a sandbox but its lease.
func (p *Provider) build(ctx context.Context, spec providers.Spec, image client.Image, config ocispec.ImageConfig, user account) error {
	cid, dir := p.containerID(spec.ID), p.hostDir(spec.ID)
	if err := p.keepImage(ctx, cid, image); err != nil {
		return err
	}
	done(ctx, "lease")
	owner := 0
	if spec.Security.UserNamespace {
		owner = hostUID(cid)
	}
	if err := dir.make(spec, owner, user); err != nil {
		return err
	}
	if err := dir.noteNetwork(spec.Network); err != nil {
		return err
	}
	done(ctx, "directory")
	runtime, err := p.runtime(spec.Security.RuntimeHandler)
	if err != nil {
		return err
	}
	labels := p.labels(spec.ID)
	opts := []client.NewContainerOpts{
		client.WithContainerLabels(withImage(labels, image)),
		client.WithImageName(image.Name()),
		runtime,
		client.WithNewSpec(p.specOpts(spec, config, user)...),
	}
	var taskOpts []client.NewTaskOpts
	if ownRootFS(spec) {
		mounts, err := p.makeRootFS(ctx, spec, image)
		if err != nil {
			return err
		}
		taskOpts = append(taskOpts, client.WithRootFS(mounts))
	} else {
		opts = append(opts, client.WithSnapshotter(snapshotter), client.WithNewSnapshot(cid, image, snapshots.WithLabels(labels)))
	}
	container, err := p.client.NewContainer(ctx, cid, opts...)
	if err != nil {
		return fmt.Errorf("make container: %w", err)
	}
	if err := failpoint.Inject("create/afterContainer"); err != nil {
		return err
	}
	done(ctx, "container")
	token, err := newTokenPipe(dir, spec)
	if err != nil {
		return err
	}
	defer token.close()
	task, err := container.NewTask(ctx, func(id string) (cio.IO, error) {
		// Plain paths, not file: URLs: with those the shim gives both streams one file and
		// closes it at the end of the first, so that last words are lost.
		return &taskIO{cio.Config{Stdin: token.path, Stdout: os.DevNull, Stderr: dir.path(logName)}}, nil
	}, taskOpts...)
	if err != nil {
		return fmt.Errorf("make task: %w", err)
	}
	if err := failpoint.Inject("create/afterTask"); err != nil {
		return err
	}
	done(ctx, "task")
	if err := p.attach(ctx, spec, task.Pid()); err != nil {
		return err
	}
	done(ctx, "network")
	if err := task.Start(ctx); err != nil {
		return fmt.Errorf("start task: %w", err)
	}
	done(ctx, "start")
	ctx, cancel := context.WithTimeoutCause(ctx, tokenTimeout, errors.New("nobody took the token"))
	defer cancel()
	if err := token.taken(ctx.Done()); err != nil {
		return err
	}
	if _, err := p.client.TaskService().CloseIO(ctx, &tasks.CloseIORequest{ContainerID: cid, Stdin: true}); err != nil && !notFound(err) {
		return fmt.Errorf("close standard input: %w", err)
	}
	done(ctx, "token")
	providers.AwaitSocket(ctx, dir.socket())
	done(ctx, "socket")
	return nil
}

// labels mark what belongs to a sandbox of this daemon.
func (p *Provider) labels(id string) map[string]string {
	return map[string]string{labelInstance: p.cfg.Instance, labelSandbox: id}
}

// taskIO only names the files of a task: the shim opens them, nothing is copied here.
type taskIO struct{ config cio.Config }

// Config names the files.
func (t *taskIO) Config() cio.Config { return t.config }

// Cancel has nothing to cancel.
func (t *taskIO) Cancel() {}

// Wait has nothing to wait for.
func (t *taskIO) Wait() {}

// Close has nothing to close.
func (t *taskIO) Close() error { return nil }

func sortedEnv(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// handle is one sandbox.
type handle struct {
	p  *Provider
	id string
}

// ID is the sandbox id.
func (h handle) ID() string { return h.id }

// Dial connects to the runtime's socket in the sandbox's small file system.
func (h handle) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := providers.DialSocket(ctx, h.p.hostDir(h.id).socket())
	if err != nil {
		return nil, fmt.Errorf("dial sandbox %s: %w", h.id, err)
	}
	return conn, nil
}

// Status asks containerd.
func (h handle) Status(ctx context.Context) (providers.Status, error) {
	return h.p.status(namespaces.WithNamespace(ctx, Namespace), h.id)
}

// RuntimeLog returns the end of what the runtime itself wrote to its standard error.
func (h handle) RuntimeLog() string { return providers.LogTail(h.p.hostDir(h.id).path(logName)) }

// Get returns the handle of a sandbox that exists, running or not.
func (p *Provider) Get(ctx context.Context, id string) (providers.Handle, error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	_, err := p.client.ContainerService().Get(ctx, p.containerID(id))
	if errdefs.IsNotFound(err) {
		return nil, errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", id)
	}
	if err != nil {
		return nil, fmt.Errorf("get sandbox %s: %w", id, p.translate(err))
	}
	return handle{p: p, id: id}, nil
}

// Delete kills the sandbox's processes and removes its task, container, snapshot, mounts,
// directory and lease, whatever of them is there.
func (p *Provider) Delete(ctx context.Context, id string) error {
	if !providers.ValidID(id) {
		return nil
	}
	unlock, err := p.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.destroy(namespaces.WithNamespace(ctx, Namespace), id); err != nil {
		return fmt.Errorf("delete sandbox %s: %w", id, p.translate(err))
	}
	return nil
}

// destroy removes in the reverse order of Create; the lease, by which a half-removed
// sandbox is found again, comes last. The caller holds the id's lock.
func (p *Provider) destroy(ctx context.Context, id string) error {
	cid := p.containerID(id)
	if err := p.endTask(ctx, cid); err != nil {
		return err
	}
	if err := failpoint.Inject("delete/afterTask"); err != nil {
		return err
	}
	if err := p.sweep(ctx, cid); err != nil {
		return err
	}
	if err := p.detach(ctx, id); err != nil {
		return err
	}
	if err := p.client.ContainerService().Delete(ctx, cid); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	if err := failpoint.Inject("delete/afterContainer"); err != nil {
		return err
	}
	if err := p.client.SnapshotService(snapshotter).Remove(ctx, cid); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	if err := failpoint.Inject("delete/afterSnapshot"); err != nil {
		return err
	}
	if err := p.hostDir(id).remove(); err != nil {
		return err
	}
	if err := p.client.LeasesService().Delete(ctx, leases.Lease{ID: cid}, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove lease: %w", err)
	}
	return nil
}

// notFound is for the task service, whose errors come as they were on the wire.
func notFound(err error) bool { return errdefs.IsNotFound(errgrpc.ToNative(err)) }

// endTask kills all processes of a container and removes its task.
func (p *Provider) endTask(ctx context.Context, cid string) error {
	service := p.client.TaskService()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		known, err := service.Get(ctx, &tasks.GetRequest{ContainerID: cid})
		if notFound(err) {
			return nil
		}
		// runsc refuses to kill what has ended.
		if err == nil && known.Process.Status != task.Status_STOPPED {
			_, err = service.Kill(ctx, &tasks.KillRequest{ContainerID: cid, Signal: 9, All: true})
		}
		thaw(cid)                         // what is frozen does not die
		if err != nil && !notFound(err) { // what cannot be asked to be killed is killed all the same
			for _, dir := range cgroupsOf(cid) {
				killCgroup(dir)
			}
		}
		if err == nil || notFound(err) { // NotFound: its main process has ended already
			_, err = service.Wait(ctx, &tasks.WaitRequest{ContainerID: cid})
		}
		if err == nil || notFound(err) {
			_, err = service.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: cid})
		}
		if err == nil || notFound(err) {
			return nil
		}
		p.log.Debug("task not removed yet", "container", cid, "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("end task: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(wait):
		}
	}
}
