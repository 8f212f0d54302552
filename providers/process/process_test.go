package process_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/process"
	"github.com/agentixd/agentixd/providers/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, stateDir, runtime string) providers.Provider {
	t.Helper()
	p, err := process.New(providers.Config{StateDir: stateDir, RuntimePath: runtime, InsecureProcessAsRoot: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestContract(t *testing.T) {
	var state string
	providertest.Run(t, providertest.Features{
		New: func(t testing.TB, stateDir, runtime string) providers.Provider {
			state = stateDir
			return open(t, stateDir, runtime)
		},
		Kill: func(t testing.TB, _ providers.Provider, id string) {
			data, err := os.ReadFile(filepath.Join(state, id, "record.json"))
			if err != nil {
				t.Fatal(err)
			}
			var rec struct{ PID int }
			if err := json.Unmarshal(data, &rec); err != nil || rec.PID == 0 {
				t.Fatalf("record %s: %v", data, err)
			}
			if err := unix.Kill(rec.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// TestRefusesRoot: without the explicit flag, root is refused with what to do.
func TestRefusesRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		p, err := process.New(providers.Config{StateDir: t.TempDir(), RuntimePath: "/proc/self/exe"})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Close()
		return
	}
	_, err := process.New(providers.Config{StateDir: t.TempDir(), RuntimePath: "/proc/self/exe"})
	if err == nil || !strings.Contains(err.Error(), "--insecure-process-as-root") {
		t.Errorf("as root: %v", err)
	}
}

// TestHalfMade: a directory left by a daemon that died in Create is listed and can be deleted.
func TestHalfMade(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"empty", "torn"} {
		if err := os.Mkdir(filepath.Join(dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "torn", "record.json"), []byte(`{"pid": 1`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, dir, "/proc/self/exe")
	defer p.Close() //nolint:errcheck // nothing runs
	list, err := p.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Running || list[1].Running {
		t.Fatalf("list = %+v, %v", list, err)
	}
	for _, st := range list {
		if err := p.Delete(t.Context(), st.ID); err != nil {
			t.Errorf("delete %s: %v", st.ID, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestForeignPID: a record whose pid now names another process never harms that one.
func TestForeignPID(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := json.Marshal(map[string]any{"pid": os.Getppid(), "start_time": 1, "boot": strings.TrimSpace(string(boot))})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "old", "record.json"), rec, 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, dir, "/proc/self/exe")
	defer p.Close() //nolint:errcheck // nothing runs
	if list, err := p.List(t.Context()); err != nil || len(list) != 1 || list[0].Running {
		t.Errorf("list = %+v, %v", list, err)
	}
	if err := p.Delete(t.Context(), "old"); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(os.Getppid(), 0); err != nil {
		t.Errorf("our parent: %v", err)
	}
}
