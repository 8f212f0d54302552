//go:build containerd

package census_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/census"
	"github.com/agentixd/agentixd/internal/containerdtest"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPlantedLeaksOfTheHost(t *testing.T) {
	t.Run("mount", func(t *testing.T) {
		dir := t.TempDir()
		assertCaught(t, census.Mounts, dir,
			func() { check(t, unix.Mount("planted", dir, "tmpfs", 0, "size=4k")) },
			func() { check(t, unix.Unmount(dir, 0)) })
	})
	t.Run("cgroup", func(t *testing.T) {
		root := "/sys/fs/cgroup"
		if _, err := os.Stat(root + "/pids"); err == nil {
			root += "/pids" // cgroup v1
		}
		path := fmt.Sprintf("%s/agx-planted-%d", root, os.Getpid())
		assertCaught(t, census.CGroups, path,
			func() { check(t, os.Mkdir(path, 0o755)) },
			func() { check(t, unix.Rmdir(path)) })
	})
	t.Run("network namespace", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestSleeper$")
		cmd.Env = append(os.Environ(), "CENSUS_SLEEPER=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
		stdin, err := cmd.StdinPipe()
		check(t, err)
		before := take(t)
		check(t, cmd.Start())
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
		check(t, err)
		if has(before, census.NetNS, ns) || !has(take(t), census.NetNS, ns) {
			t.Errorf("%s was not caught", ns)
		}
		check(t, stdin.Close())
		check(t, cmd.Wait())
		if has(take(t), census.NetNS, ns) {
			t.Errorf("%s is still there", ns)
		}
	})
	t.Run("loop device", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "planted.img")
		check(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
		var device string
		assertCaught(t, census.LoopDevices, file, func() {
			out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).Output()
			check(t, err)
			device = string(out[:len(out)-1])
		}, func() { check(t, exec.CommandContext(t.Context(), "losetup", "--detach", device).Run()) })
	})
}

func TestPlantedLeaksOfTheEngine(t *testing.T) {
	d := containerdtest.Start(t)
	c, err := client.New(d.Address)
	check(t, err)
	defer func() {
		if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}()
	ctx := namespaces.WithNamespace(t.Context(), "agentix")
	check(t, c.NamespaceService().Create(ctx, "agentix", nil))
	assertCaught(t, census.Leases, "planted-lease", func() {
		_, err := c.LeasesService().Create(ctx, leases.WithID("planted-lease"))
		check(t, err)
	}, func() { check(t, c.LeasesService().Delete(ctx, leases.Lease{ID: "planted-lease"})) }, d.Address)
	assertCaught(t, census.Snapshots, "planted-snapshot", func() {
		// A root of garbage collection, or the collection after the lease's end may take it away.
		root := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "planted"})
		_, err := c.SnapshotService("overlayfs").Prepare(ctx, "planted-snapshot", "", root)
		check(t, err)
	}, func() { check(t, c.SnapshotService("overlayfs").Remove(ctx, "planted-snapshot")) }, d.Address)
	assertCaught(t, census.Containers, "planted-container", func() {
		_, err := c.NewContainer(ctx, "planted-container", client.WithNewSpec(oci.WithHostname("planted")))
		check(t, err)
	}, func() { check(t, c.ContainerService().Delete(ctx, "planted-container")) }, d.Address)
}
