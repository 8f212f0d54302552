package providertest

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// testOpenFiles: the limit of open files is each process's, and one that the engine cannot
// give is refused instead of being lowered.
func testOpenFiles(t *testing.T, s *suite) {
	spec := s.spec("files")
	spec.Limits = providers.Limits{OpenFiles: 128}
	if !s.Limits {
		s.refused(t, spec)
		return
	}
	h := s.create(t, spec)
	waitReady(t, h)
	opened, _ := strconv.Atoi(strings.Fields(mustGet(t, h, "/open", url.Values{"n": {"1000"}}))[0])
	if opened < 64 || opened > 128 {
		t.Errorf("%d files could be opened under a limit of 128", opened)
	}
	spec = s.spec("too-many-files")
	spec.Limits = providers.Limits{OpenFiles: 1 << 40}
	s.refused(t, spec)
}

// testDisk: all that a sandbox can write to is within its limit; when it is full the
// sandbox still answers, and it can write again once there is room.
func testDisk(t *testing.T, s *suite) {
	const limit = 64 << 20
	spec := s.spec("disk")
	spec.Limits = providers.Limits{DiskBytes: limit}
	if !s.Limits || s.NoDisk {
		s.refused(t, spec)
		return
	}
	h := s.create(t, spec)
	waitReady(t, h)
	total := int64(0)
	for _, path := range []string{"/fill", "/tmp/fill", "/dev/shm/fill", "/run/fill", "/dev/fill"} {
		fields := strings.Fields(mustGet(t, h, "/fill", url.Values{"path": {path}}))
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || len(fields) < 2 {
			t.Errorf("%s: not full after %v", path, fields)
		}
		total += n
	}
	if total > limit || total < limit/2 {
		t.Errorf("%d bytes could be written under a limit of %d", total, limit)
	}
	if p, ok := h.(providers.Presser); !ok {
		t.Error("the handle does not tell how its limits fare")
	} else if got, err := p.Pressure(t.Context()); err != nil || !got.DiskFull {
		t.Errorf("pressure = %+v, %v; want a full disk", got, err)
	}
	neighbour := s.create(t, s.spec("neighbour"))
	waitReady(t, neighbour)
	mustGet(t, neighbour, "/write", url.Values{"path": {"/new"}, "size": {"1000000"}})
	mustGet(t, h, "/remove", url.Values{"path": {"/fill"}})
	mustGet(t, h, "/write", url.Values{"path": {"/again"}, "size": {"1000000"}})
	if err := s.p.Delete(t.Context(), "disk"); err != nil {
		t.Fatal(err)
	}
	assertNoDisk(t, s.stateDir)
}

// assertNoDisk: no file system, loop device or file of a sandbox is left below dir.
func assertNoDisk(t *testing.T, dir string) {
	t.Helper()
	await.True(t, func() bool {
		files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return false
		}
		for _, file := range files {
			if name, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(name), dir) {
				return false
			}
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		return err == nil && !strings.Contains(string(mounts), dir+"/disk/")
	}, "the end of loop device and mounts")
}

// testReadOnly: a read-only root file system leaves /tmp, /run and /dev/shm.
func testReadOnly(t *testing.T, s *suite) {
	for id, limits := range map[string]providers.Limits{"read-only": {}, "read-only-disk": {DiskBytes: 64 << 20}} {
		spec := s.spec(id)
		spec.Security.ReadOnlyRootFS = true
		if !s.Isolated {
			s.refused(t, spec)
			continue
		}
		spec.Limits = limits
		if limits.DiskBytes > 0 && s.NoDisk {
			s.refused(t, spec)
			continue
		}
		h := s.create(t, spec)
		waitReady(t, h)
		for _, dir := range []string{"/", "/etc/", "/.agentix/"} {
			if _, err := get(t.Context(), h, "/write", url.Values{"path": {dir + "new"}, "size": {"1"}}); err == nil {
				t.Errorf("%s: %s can be written", id, dir)
			}
		}
		for _, dir := range []string{"/tmp/", "/run/", "/dev/shm/"} {
			mustGet(t, h, "/write", url.Values{"path": {dir + "new"}, "size": {"1000"}})
		}
	}
}

// testUserNamespace: root in the sandbox is nobody on the host, owns what is its, and can
// use project and disk.
func testUserNamespace(t *testing.T, s *suite) {
	for id, limits := range map[string]providers.Limits{"mapped": {}, "mapped-disk": {DiskBytes: 64 << 20}} {
		spec := s.spec(id)
		spec.Security.UserNamespace = true
		if !s.Isolated || s.NoUserNamespace {
			s.refused(t, spec)
			continue
		}
		project := t.TempDir()
		if err := os.WriteFile(filepath.Join(project, "who"), []byte("me"), 0o600); err != nil {
			t.Fatal(err)
		}
		spec.Project, spec.Limits = openDir(t, project), limits
		h := s.create(t, spec)
		i := getInfo(t, h)
		ids := strings.Fields(mustGet(t, h, "/read", url.Values{"path": {"/proc/self/uid_map"}}))
		if len(ids) != 3 || ids[0] != "0" || ids[2] != "65536" {
			t.Fatalf("%s: uid map = %v", id, ids)
		}
		if host, err := strconv.Atoi(ids[1]); err != nil || host < 1<<26 {
			t.Errorf("%s: root is %s on the host", id, ids[1])
		}
		if got := statusField(i.Status, "Uid"); !strings.HasPrefix(got, "0\t0") {
			t.Errorf("%s: uid = %q, want 0", id, got)
		}
		if got := mustGet(t, h, "/read", url.Values{"path": {i.Project + "/who"}}); got != "me" {
			t.Errorf("%s: project holds %q", id, got)
		}
		mustGet(t, h, "/write", url.Values{"path": {"/etc/new"}, "size": {"1000"}})
		mustGet(t, h, "/write", url.Values{"path": {"/tmp/new"}, "size": {"1000"}})
	}
}

// testRuntimeHandler: one that nobody knows is refused by name.
func testRuntimeHandler(t *testing.T, s *suite) {
	spec := s.spec("odd")
	spec.Security.RuntimeHandler = "crun --privileged"
	want := errs.FailedPrecondition
	if s.Isolated {
		want = errs.InvalidArgument
	}
	if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, want) {
		t.Errorf("%v, want kind %d", err, want)
	}
}

// refused asserts that a provider says that it cannot do something.
func (s *suite) refused(t *testing.T, spec providers.Spec) {
	t.Helper()
	if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("create %s: %v, want FailedPrecondition", spec.ID, err)
	}
}

// testNetwork: what a provider cannot filter it refuses, and the host's network is refused
// unless the daemon allows it.
func testNetwork(t *testing.T, s *suite) {
	for id, n := range map[string]providers.Network{
		"host-network": {Mode: providers.NetworkHost},
		"bridged":      {Mode: providers.NetworkBridge, AllowCIDRs: []string{"192.0.2.0/24"}},
	} {
		spec := s.spec(id)
		spec.Network = n
		if !s.Isolated || s.NoBridge || n.Mode == providers.NetworkHost {
			s.refused(t, spec)
		}
	}
	if !s.Isolated {
		return
	}
	for id, n := range map[string]providers.Network{
		"metadata": {Mode: providers.NetworkBridge, AllowCIDRs: []string{"169.254.169.254/32"}},
		"no-range": {Mode: providers.NetworkBridge, AllowCIDRs: []string{"example.com"}},
		"no-mode":  {AllowCIDRs: []string{"192.0.2.0/24"}},
	} {
		spec := s.spec(id)
		spec.Network = n
		if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%s: %v, want InvalidArgument", id, err)
		}
	}
}
