package census_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/census"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func take(t testing.TB, containerd ...string) census.Census {
	t.Helper()
	c, err := census.Take(t.Context(), containerd...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// has tells whether an item of kind that contains text is there.
func has(c census.Census, kind, text string) bool {
	return slices.ContainsFunc(c[kind], func(item string) bool { return strings.Contains(item, text) })
}

// assertCaught asserts that a planted leak is seen, and gone once it was removed.
func assertCaught(t *testing.T, kind, text string, plant, remove func(), containerd ...string) {
	t.Helper()
	if has(take(t, containerd...), kind, text) {
		t.Fatalf("%s %q is there before it was planted", kind, text)
	}
	before := take(t, containerd...)
	plant()
	await.True(t, func() bool {
		diff := take(t, containerd...).Diff(before)
		return slices.ContainsFunc(diff, func(line string) bool {
			return strings.HasPrefix(line, "+ "+kind+" ") && strings.Contains(line, text)
		})
	}, "the planted "+kind+" in the difference")
	remove()
	await.True(t, func() bool { return !has(take(t, containerd...), kind, text) }, "the end of the planted "+kind)
}

func TestPlantedLeaks(t *testing.T) {
	dir := t.TempDir()
	t.Run("socket", func(t *testing.T) {
		path := filepath.Join(dir, "rpc.sock")
		var l net.Listener
		assertCaught(t, census.Sockets, path, func() {
			var err error
			if l, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", path); err != nil {
				t.Fatal(err)
			}
		}, func() { _ = l.Close() })
	})
	t.Run("directory", func(t *testing.T) {
		var leak string
		name := filepath.Join(os.TempDir(), "agentix-planted")
		assertCaught(t, census.Directories, name, func() {
			var err error
			if leak, err = os.MkdirTemp("", "agentix-planted"); err != nil {
				t.Fatal(err)
			}
		}, func() { _ = os.Remove(leak) })
	})
	for name, args := range map[string][]string{
		"runtime process": {"agentix-runtime", "planted"},
		"worker process":  {"python3", "_agentix_worker planted"},
		"marked process":  {"innocent", "planted"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestSleeper$")
			cmd.Args = slices.Insert(args, 1, "-test.run=^TestSleeper$") // the first is the name it shows
			cmd.Env = append(os.Environ(), "CENSUS_SLEEPER=1")
			if args[0] == "innocent" {
				cmd.Env = append(cmd.Env, "AGENTIX_SANDBOX_DIR=/nowhere")
			}
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			assertCaught(t, census.PIDs, "planted", func() {
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
			}, func() {
				_ = stdin.Close()
				if err := cmd.Wait(); err != nil {
					t.Errorf("sleeper: %v", err)
				}
			})
		})
	}
}

// TestSleeper is the body of planted processes: it waits for the end of its standard input.
func TestSleeper(t *testing.T) {
	if os.Getenv("CENSUS_SLEEPER") == "" {
		if os.Getenv("AGENTIX_SANDBOX_DIR") != "" {
			t.Error("the tests run inside a sandbox")
		}
		return
	}
	buf := make([]byte, 1)
	_, _ = os.Stdin.Read(buf)
}

func TestDiff(t *testing.T) {
	before := census.Census{census.Mounts: {"ext4 /", "tmpfs /a", "tmpfs /a"}, census.PIDs: {"1 x"}}
	after := census.Census{census.Mounts: {"ext4 /", "tmpfs /a", "tmpfs /b"}, census.PIDs: {"1 x"}}
	want := []string{"- mounts tmpfs /a", "+ mounts tmpfs /b"}
	if got := after.Diff(before); !slices.Equal(got, want) {
		t.Errorf("diff = %q, want %q", got, want)
	}
	if got := before.Diff(before); len(got) != 0 {
		t.Errorf("diff with itself = %q", got)
	}
	if got := before.Counts(); got[census.Mounts] != 3 || got[census.PIDs] != 1 || got[census.Leases] != 0 || len(got) != len(census.Kinds) {
		t.Errorf("counts = %v", got)
	}
}

// TestMissingEngine: where no containerd is there is nothing to count.
func TestMissingEngine(t *testing.T) {
	c := take(t, filepath.Join(t.TempDir(), "no.sock"))
	if len(c[census.Containers]) != 0 || len(c[census.Mounts]) == 0 {
		t.Errorf("census = %v", c.Counts())
	}
}
