//go:build containerd

package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/containerd"
	"github.com/agentixd/agentixd/providers/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testInstance = "test-instance"

func open(t testing.TB, d *containerdtest.Daemon, instance, stateDir, runtime string) *containerd.Provider {
	t.Helper()
	p, err := containerd.New(t.Context(), providers.Config{
		StateDir: stateDir, Instance: instance, RuntimePath: runtime, ContainerdAddress: d.Address,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// emptyRootFS is a root file system with nothing but the directories that runc wants: the
// stub is static, so it needs no more.
func emptyRootFS(t testing.TB) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"proc/", "sys/", "dev/", "tmp/", "etc/", "run/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func importEmpty(t testing.TB, p *containerd.Provider) {
	t.Helper()
	if _, err := p.ImportRootFS(t.Context(), "empty", emptyRootFS(t)); err != nil {
		t.Fatal(err)
	}
}

// killTask kills a sandbox's main process as `ctr task kill` would.
func killTask(t testing.TB, d *containerdtest.Daemon, id string) {
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

func TestContract(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), "/proc/self/exe")
	importEmpty(t, p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	providertest.Run(t, providertest.Features{
		New: func(t testing.TB, stateDir, runtime string) providers.Provider {
			return open(t, d, testInstance, stateDir, runtime)
		},
		Image:    "empty",
		Limits:   true,
		Isolated: true,
		Bundles:  true,
		Kill:     func(t testing.TB, _ providers.Provider, id string) { killTask(t, d, id) },
	})
}

// TestTwoDaemons: two daemons on one containerd never see or touch each other's sandboxes.
func TestTwoDaemons(t *testing.T) {
	d := containerdtest.Start(t)
	stub := providertest.Stub(t)
	a, b := open(t, d, "instance-a", t.TempDir(), stub), open(t, d, "instance-b", t.TempDir(), stub)
	defer a.Close() //nolint:errcheck // checked by goleak
	defer b.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, a)
	for _, p := range []*containerd.Provider{a, b} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: "same", Image: "empty"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Delete(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
	if list, err := a.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("list of a = %v, %v", list, err)
	}
	if list, err := b.List(t.Context()); err != nil || len(list) != 1 || !list[0].Running {
		t.Errorf("list of b = %v, %v", list, err)
	}
	if err := b.Delete(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
}

// TestIDsThatContainerdRefuses: every valid sandbox id has a container id.
func TestIDsThatContainerdRefuses(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	for _, id := range []string{"a--b", "a-", strings.Repeat("x", 63), strings.Repeat("y-", 31) + "-"} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: "empty"}); err != nil {
			t.Errorf("create %s: %v", id, err)
		}
		if err := p.Delete(t.Context(), id); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
}

func waitRunning(t testing.TB, h providers.Handle) {
	t.Helper()
	await.True(t, func() bool {
		conn, err := h.Dial(t.Context())
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}, "the runtime of "+h.ID())
}

func awaitExit(t testing.TB, exits <-chan providers.Exit, id string) providers.Exit {
	t.Helper()
	var got providers.Exit
	await.True(t, func() bool {
		select {
		case got = <-exits:
			return got.ID == id
		default:
			return false
		}
	}, "the exit of "+id)
	return got
}

// mainPID is the host's pid of a sandbox's main process, and of its shim.
func mainPID(t testing.TB, d *containerdtest.Daemon, id string) (pid, shim int) {
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
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", task.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if _, err := fmt.Sscanf(rest, "%1s %d", new(string), &shim); err != nil {
		t.Fatal(err)
	}
	return int(task.Pid()), shim
}

// TestContainerdRestarts: sandboxes go on while containerd is away, and exits are told
// afterwards, also those that it did not see (F8, F11).
func TestContainerdRestarts(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	exits, err := p.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	handles := map[string]providers.Handle{}
	for _, id := range []string{"stays", "dies-meanwhile", "dies-later"} {
		h, err := p.Create(t.Context(), providers.Spec{ID: id, Image: "empty"})
		if err != nil {
			t.Fatal(err)
		}
		waitRunning(t, h)
		handles[id] = h
	}
	pid, _ := mainPID(t, d, "dies-meanwhile")
	d.Kill()
	waitRunning(t, handles["stays"])
	if _, err := p.List(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("list without containerd: %v, want Unavailable", err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := awaitExit(t, exits, "dies-meanwhile"); got.Reason != providers.Killed {
		t.Errorf("exit = %+v, want KILLED", got)
	}
	await.True(t, func() bool { list, err := p.List(t.Context()); return err == nil && len(list) == 3 }, "the list")
	killTask(t, d, "dies-later")
	if got := awaitExit(t, exits, "dies-later"); got.Reason != providers.Killed {
		t.Errorf("exit = %+v, want KILLED", got)
	}
	waitRunning(t, handles["stays"])
	for id := range handles {
		if err := p.Delete(t.Context(), id); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
}

// TestShimKilled: a sandbox whose shim dies is told as ended and can be removed (F9).
func TestShimKilled(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	exits, err := p.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.Create(t.Context(), providers.Spec{ID: "orphan", Image: "empty"})
	if err != nil {
		t.Fatal(err)
	}
	waitRunning(t, h)
	_, shim := mainPID(t, d, "orphan")
	if err := unix.Kill(shim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitExit(t, exits, "orphan")
	if err := p.Delete(t.Context(), "orphan"); err != nil {
		t.Fatal(err)
	}
	if list, err := p.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("list = %v, %v", list, err)
	}
}

// TestR9_HalfMade: whatever a daemon that died in Create or Delete left is listed and removed.
func TestR9_HalfMade(t *testing.T) {
	d := containerdtest.Start(t)
	state := t.TempDir()
	p := open(t, d, testInstance, state, providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it is about the rest
	ctx := namespaces.WithNamespace(t.Context(), containerd.Namespace)
	for _, id := range []string{"no-task", "no-dir", "no-lease", "lease-only", "dir-only"} {
		if _, err := p.Create(ctx, providers.Spec{ID: id, Image: "empty"}); err != nil {
			t.Fatal(err)
		}
		list, err := c.Containers(ctx, `labels."agentix.dev/sandbox"==`+id)
		if err != nil || len(list) != 1 {
			t.Fatalf("container: %v, %v", list, err)
		}
		cid := list[0].ID()
		if id != "no-lease" && id != "no-dir" {
			task, err := list[0].Task(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := task.Delete(ctx, client.WithProcessKill); err != nil {
				t.Fatal(err)
			}
		}
		if id == "lease-only" || id == "dir-only" {
			if err := list[0].Delete(ctx, client.WithSnapshotCleanup); err != nil {
				t.Fatal(err)
			}
		}
		if id == "no-dir" || id == "lease-only" {
			dir := filepath.Join(state, id)
			if err := unix.Unmount(filepath.Join(dir, "socket"), unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		if id == "dir-only" || id == "no-lease" {
			if err := c.LeasesService().Delete(ctx, leases.Lease{ID: cid}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := p.List(ctx)
	if err != nil || len(list) != 5 {
		t.Errorf("list = %+v, %v; want 5", list, err)
	}
	for _, st := range list {
		if err := p.Delete(ctx, st.ID); err != nil {
			t.Errorf("delete %s: %v", st.ID, err)
		}
	}
	left, err := c.LeasesService().List(ctx)
	if err != nil || len(left) != 0 {
		t.Errorf("leases left: %v, %v", left, err)
	}
	err = c.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind != snapshots.KindCommitted {
			t.Errorf("snapshot left: %+v", info)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
