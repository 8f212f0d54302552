package providertest

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// testToken: the token comes over standard input and is nowhere else (R11).
func testToken(t *testing.T, s *suite) {
	s.secret = "token-of-neighbours"
	h := s.create(t, s.spec("secret"))
	i := getInfo(t, h)
	if i.Token != "token-of-secret" || i.NeighbourSecret != "token-of-neighbours" {
		t.Errorf("token = %q, secret of neighbours = %q", i.Token, i.NeighbourSecret)
	}
	if all := strings.Join(append(i.Args, i.Env...), "\n"); strings.Contains(all, "token-of") {
		t.Errorf("token in arguments or environment:\n%s", all)
	}
	err := filepath.WalkDir(s.stateDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what vanishes meanwhile holds no token
		}
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), "token-of-") {
			t.Errorf("token in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testEnvironment(t *testing.T, s *suite) {
	t.Setenv("HOST_SECRET", "of the host")
	spec := s.spec("env")
	spec.Env = map[string]string{"GREETING": "hello = world\n2nd line", "EMPTY": ""}
	env := getInfo(t, s.create(t, spec)).Env
	for _, want := range []string{"GREETING=hello = world\n2nd line", "EMPTY="} {
		if !slices.Contains(env, want) {
			t.Errorf("no %q in %q", want, env)
		}
	}
	for _, v := range env {
		if strings.Contains(v, "HOST_SECRET") {
			t.Errorf("the host's environment came along: %q", v)
		}
	}
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "PATH=") && len(v) > len("PATH=") }) {
		t.Errorf("no PATH in %q", env)
	}
}

// testProject: the open directory is what the sandbox gets, also when its name is swapped.
func testProject(t *testing.T, s *suite) {
	root := t.TempDir()
	for _, name := range []string{"good", "evil"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "who"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := openDir(t, filepath.Join(root, "good"))
	if err := os.Rename(filepath.Join(root, "good"), filepath.Join(root, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("evil", filepath.Join(root, "good")); err != nil {
		t.Fatal(err)
	}
	spec := s.spec("project")
	spec.Project = dir
	h := s.create(t, spec)
	i := getInfo(t, h)
	if got := mustGet(t, h, "/read", url.Values{"path": {i.Project + "/who"}}); got != "good" {
		t.Errorf("project holds %q, want good", got)
	}
	if !s.Isolated {
		return
	}
	for _, path := range []string{i.Project + "/new", i.Project + "/who", "/.agentix/agentix-runtime", "/.agentix/new"} {
		_, err := get(t.Context(), h, "/write", url.Values{"path": {path}, "size": {"1"}})
		if err == nil {
			t.Errorf("%s could be written", path)
		}
	}
}

// testSocketReplaced: a symlink in the place of the socket leads nowhere (R10).
func testSocketReplaced(t *testing.T, s *suite) {
	neighbour := s.create(t, s.spec("neighbour"))
	waitReady(t, neighbour)
	h := s.create(t, s.spec("forger"))
	waitReady(t, h)
	sockets, err := filepath.Glob(filepath.Join(s.stateDir, "neighbour", "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob(filepath.Join(s.stateDir, "neighbour", "*", "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	sockets = append(sockets, deeper...)
	if len(sockets) != 1 {
		t.Fatalf("sockets of the neighbour: %v", sockets)
	}
	mustGet(t, h, "/replace", url.Values{"target": {sockets[0]}})
	if conn, err := h.Dial(t.Context()); err == nil {
		t.Errorf("dialled %s through a symlink", conn.RemoteAddr())
	}
	waitReady(t, neighbour)
}

// testLimits: a limit is enforced, or refused with the reason UNSUPPORTED.
func testLimits(t *testing.T, s *suite) {
	if !s.Limits {
		for name, limits := range map[string]providers.Limits{
			"cpus": {CPUs: 1}, "memory": {MemoryBytes: 1 << 30}, "pids": {PIDs: 100},
		} {
			spec := s.spec("limited")
			spec.Limits = limits
			if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.FailedPrecondition) {
				t.Errorf("%s: %v, want FailedPrecondition", name, err)
			}
		}
		return
	}
	exits := s.watch(t)
	spec := s.spec("limited")
	spec.Limits = providers.Limits{CPUs: 0.5, PIDs: 30}
	h := s.create(t, spec)
	waitReady(t, h)
	got := strings.Fields(mustGet(t, h, "/spawn", url.Values{"n": {"100"}}))
	if len(got) < 2 { // a bare number: all were started
		t.Errorf("100 processes under a limit of 30: %v", got)
	}
	spec = s.spec("hog") // of its own: a Go program without threads left would die of that
	spec.Limits = providers.Limits{MemoryBytes: 64 << 20}
	h = s.create(t, spec)
	waitReady(t, h)
	if _, err := get(t.Context(), h, "/hog", nil); err == nil {
		t.Error("memory over the limit could be taken")
	}
	if got := nextExit(t, exits, "hog"); got.Reason != providers.OOMKilled {
		t.Errorf("exit = %+v, want OOM_KILLED", got)
	}
}

// testInsideView: what the code in an isolated sandbox can see and do.
func testInsideView(t *testing.T, s *suite) {
	other := s.create(t, s.spec("other"))
	waitReady(t, other)
	h := s.create(t, s.spec("inside"))
	i := getInfo(t, h)
	if !s.Isolated {
		if i.PID == 1 {
			t.Error("PID 1 without isolation")
		}
		return
	}
	if i.PID != 1 || i.Hostname != "inside" {
		t.Errorf("pid %d, host name %q; want 1, inside", i.PID, i.Hostname)
	}
	for field, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "Seccomp": "2", "NoNewPrivs": "1",
	} {
		if got := statusField(i.Status, field); got != want {
			t.Errorf("%s = %q, want %q", field, got, want)
		}
	}
	if !slices.Equal(i.Interfaces, []string{"lo"}) {
		t.Errorf("interfaces = %v, want lo alone", i.Interfaces)
	}
	listing := mustGet(t, h, "/list", url.Values{"path": {"/.agentix"}})
	want := "/.agentix\n/.agentix/agentix-runtime\n/.agentix/socket\n/.agentix/socket/rpc.sock\n"
	if listing != want {
		t.Errorf("/.agentix holds\n%swant\n%s", listing, want)
	}
	mounts := mustGet(t, h, "/read", url.Values{"path": {"/proc/self/mounts"}})
	if strings.Contains(mounts, "containerd.sock") || strings.Contains(mounts, "/other/") {
		t.Errorf("foreign mounts:\n%s", mounts)
	}
	for _, path := range []string{"/proc/kcore", "/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper", "/proc/sysrq-trigger"} {
		if _, err := get(t.Context(), h, "/write", url.Values{"path": {path}, "size": {"1"}}); err == nil {
			t.Errorf("%s could be written", path)
		}
	}
	// The socket directory is small, so filling it harms nobody.
	if _, err := get(t.Context(), h, "/write", url.Values{"path": {"/.agentix/socket/big"}, "size": {"1000000"}}); err == nil {
		t.Error("1 MB fits into the socket directory")
	}
	await.True(t, func() bool { _, err := get(t.Context(), h, "/health", nil); return err == nil }, "health after filling")
}

func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
