//go:build containerd

package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/daemontest"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/containerd"
)

// containerRig is a Manager on real containers with the real runtime and Debian's Python.
func containerRig(t *testing.T, d *containerdtest.Daemon, dir string) (m *sandboxes.Manager, lost *sync.Map, stop func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	st, err := store.Open(ctx, filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := containerd.New(ctx, providers.Config{
		StateDir: filepath.Join(dir, "c"), Instance: st.Instance(), RuntimePath: daemontest.Runtime(t), ContainerdAddress: d.Address,
	})
	if err != nil {
		t.Fatal(err)
	}
	journal := events.New(st, events.Options{})
	lost = &sync.Map{}
	m = sandboxes.New(sandboxes.Options{
		Store: st, Provider: p, Journal: journal,
		Handler:       func(string) link.Handler { return receiver{} },
		OnLost:        func(id, reason, _ string) { lost.Store(id, reason) },
		Limits:        providers.Limits{MemoryBytes: 256 << 20, PIDs: 256},
		AllowHostPath: []string{dir},
	})
	runCtx, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Run(runCtx) }()
	return m, lost, sync.OnceFunc(func() {
		cancel(errors.New("the rig stops"))
		for name, err := range map[string]error{"run": <-done, "provider": p.Close(), "journal": journal.Close(), "store": st.Close()} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestContainers: the whole life on real containers: image, project, 32 at once, a kill by
// hand, a restart of the daemon.
func TestContainers(t *testing.T) {
	d := containerdtest.Start(t)
	dir, err := os.MkdirTemp("", "agm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // its content is asserted below
	m, lost, stop := containerRig(t, d, dir)
	defer func() { stop() }()
	ctx := t.Context()

	imager, err := m.Images()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := imager.ImportRootFS(ctx, "python", containerdtest.Image(t)); err != nil {
		t.Fatal(err)
	}
	project := filepath.Join(dir, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := m.Create(ctx, sandboxes.CreateRequest{ID: "first", Image: "python", Project: project, Peer: &sandboxes.Peer{}})
	if err != nil {
		t.Fatal(err)
	}
	if first.Runtime == nil || !strings.HasPrefix(first.Runtime.Python, "3.") || first.Resources.MemoryBytes != 256<<20 {
		t.Errorf("sandbox = %+v", first)
	}
	_, err = m.Create(ctx, sandboxes.CreateRequest{Image: "missing"})
	wantReason(t, err, errs.NotFound, errs.ImageNotFound)

	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			id := fmt.Sprintf("par-%d", i)
			if s, err := m.Create(ctx, sandboxes.CreateRequest{ID: id, Image: "python"}); err != nil || s.State != sandboxes.Ready {
				t.Errorf("create %s: %+v, %v", id, s, err)
			}
		})
	}
	wg.Wait()

	began := time.Now()
	killContainer(t, d, "par-0")
	await.True(t, func() bool { _, told := lost.Load("par-0"); return told }, "word of the loss")
	if took := time.Since(began); took > time.Second {
		t.Errorf("told after %s", took)
	}
	await.True(t, func() bool {
		s, err := m.Get(ctx, "par-0")
		return err == nil && s.State == sandboxes.Failed && s.Reason == "KILLED"
	}, "FAILED")

	stop()
	m, _, stop = containerRig(t, d, dir)
	await.True(t, func() bool { l, err := m.Link("first"); return err == nil && l.Connected() }, "the link after a restart")
	page, _, err := m.List(ctx, nil, 0, "")
	if err != nil || len(page) != 33 || page[0].ID != "first" {
		t.Errorf("list has %d, %v", len(page), err)
	}
	for _, s := range page {
		wg.Go(func() {
			if err := m.Delete(ctx, s.ID, false); err != nil {
				t.Errorf("delete %s: %v", s.ID, err)
			}
		})
	}
	wg.Wait()
	if entries, err := os.ReadDir(filepath.Join(dir, "c")); err != nil || len(entries) != 0 {
		t.Errorf("left in the state directory: %v, %v", entries, err)
	}
}

func killContainer(t *testing.T, d *containerdtest.Daemon, id string) {
	t.Helper()
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	ctx := namespaces.WithNamespace(t.Context(), containerd.Namespace)
	list, err := c.Containers(ctx, `labels."agentix.dev/sandbox"==`+id)
	if err != nil || len(list) != 1 {
		t.Fatalf("containers of %s: %v, %v", id, list, err)
	}
	task, err := list[0].Task(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
}
