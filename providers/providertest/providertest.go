// Package providertest is the contract that every provider passes: the promises in the
// comments of providers.Provider, one case each. A provider's own tests call Run. Inside
// the sandboxes runs a stub in the place of the runtime, so the cases need no Python.
package providertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

// Features tells what a provider can do. What it cannot do it must refuse; that is a case too.
type Features struct {
	// New opens the provider on a state directory with the given runtime binary. A second
	// one on the same directory is the daemon after a restart.
	New func(t testing.TB, stateDir, runtime string) providers.Provider
	// Image is what sandboxes are made from; empty for engines without images.
	Image string
	// Limits: the provider enforces limits, else it refuses them.
	Limits bool
	// Bundles: the provider mounts bundles at /nix, else it refuses them.
	Bundles bool
	// Isolated: a sandbox sees neither host nor neighbours.
	Isolated bool
	// NoDisk, NoUserNamespace, NoBridge: what an isolating provider cannot do besides, and refuses.
	NoDisk, NoUserNamespace, NoBridge bool
	// Foreign, for an engine that joins runtimes which someone else started, makes one that
	// runs the stub until the test ends, and returns its URL. What such an engine cannot do it
	// refuses, and cases about what it does not have do not run.
	Foreign func(t testing.TB, stub string) (url string)
	// Kill kills the main process of a sandbox from outside with SIGKILL.
	Kill func(t testing.TB, p providers.Provider, id string)
}

// Run runs the whole contract.
func Run(t *testing.T, f Features) {
	stub := Stub(t)
	cases := map[string]func(*testing.T, *suite){
		"CreateDialDelete":      testCreateDialDelete,
		"Token":                 testToken,
		"Environment":           testEnvironment,
		"Project":               testProject,
		"DuplicateID":           testDuplicateID,
		"DeleteTwice":           testDeleteTwice,
		"DeleteDuringCreate":    testDeleteDuringCreate,
		"DeleteKillsEverything": testDeleteKillsEverything,
		"ExitReasons":           testExitReasons,
		"KilledByHand":          testKilledByHand,
		"FailedStart":           testFailedStart,
		"Restart":               testRestart,
		"ExitWhileClosed":       testExitWhileClosed,
		"SocketReplaced":        testSocketReplaced,
		"Limits":                testLimits,
		"ParallelCreates":       testParallelCreates,
		"InsideView":            testInsideView,
		"WatchEnds":             testWatchEnds,
		"RuntimeURL":            testRuntimeURL,
		"Pause":                 testPause,
		"PauseManyProcesses":    testPauseManyProcesses,
		"DeletePaused":          testDeletePaused,
		"PauseOverRestart":      testPauseOverRestart,
		"Images":                testImages,
		"Bundle":                testBundle,
		"Snapshot":              testSnapshot,
		"OpenFiles":             testOpenFiles,
		"Disk":                  testDisk,
		"ReadOnly":              testReadOnly,
		"UserNamespace":         testUserNamespace,
		"RuntimeHandler":        testRuntimeHandler,
		"Network":               testNetwork,
	}
	if f.Foreign != nil {
		for _, name := range []string{
			"Token", "Environment", "Project", "DeleteKillsEverything", "ExitReasons", "KilledByHand", "FailedStart", "Restart",
			"ExitWhileClosed", "SocketReplaced", "InsideView", "PauseManyProcesses", "DeletePaused", "PauseOverRestart",
		} {
			delete(cases, name)
		}
		cases["Joined"], cases["Unsupported"] = testJoined, testUnsupported
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := &suite{Features: f, t: t, stub: stub, stateDir: shortTempDir(t)}
			s.p = f.New(t, s.stateDir, stub)
			t.Cleanup(func() {
				s.deleteAll(t)
				if err := s.p.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			test(t, s)
		})
	}
}

type suite struct {
	Features
	t              *testing.T
	stub, stateDir string
	secret         string // for neighbours, of the next spec
	p              providers.Provider
}

// spec is a sandbox that every provider can make.
func (s *suite) spec(id string) providers.Spec {
	spec := providers.Spec{ID: id, Image: s.Image, Token: "token-of-" + id, NeighbourSecret: s.secret}
	if s.Foreign != nil {
		spec.RuntimeURL = s.Foreign(s.t, s.stub)
	}
	return spec
}

func (s *suite) create(t testing.TB, spec providers.Spec) providers.Handle {
	t.Helper()
	h, err := s.p.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create %s: %v", spec.ID, err)
	}
	return h
}

// deleteAll removes all sandboxes and asserts that List then is empty.
func (s *suite) deleteAll(t testing.TB) {
	ctx := context.WithoutCancel(t.Context())
	list, err := s.p.List(ctx)
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, st := range list {
		if err := s.p.Delete(ctx, st.ID); err != nil {
			t.Errorf("delete %s: %v", st.ID, err)
		}
	}
	if list, err = s.p.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("after deleting all: list = %v, %v", list, err)
	}
}

// status returns what List says of one sandbox.
func (s *suite) status(t testing.TB, id string) (providers.Status, bool) {
	t.Helper()
	list, err := s.p.List(t.Context())
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, st := range list {
		if st.ID == id {
			return st, true
		}
	}
	return providers.Status{}, false
}

// openDir opens a directory as daemon/sandboxes does for a project.
func openDir(t testing.TB, path string) *providers.Dir {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &providers.Dir{Path: path, FD: fd}
}

// shortTempDir leaves room for a socket address below it, which t.TempDir does not.
func shortTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return dir
}

var stub struct {
	once sync.Once
	path string
	err  error
}

// Stub builds the stub runtime once per test process and returns its path.
func Stub(t testing.TB) string {
	t.Helper()
	stub.once.Do(func() {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = os.TempDir()
		}
		dir := filepath.Join(cache, "agentix-test")
		if stub.err = os.MkdirAll(dir, 0o700); stub.err != nil {
			return
		}
		stub.path = filepath.Join(dir, "stub")
		made := fmt.Sprintf("%s.%d", stub.path, os.Getpid()) // other test processes build it, too
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", made,
			"github.com/agentixd/agentixd/providers/providertest/stub")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		if stub.err = cmd.Run(); stub.err == nil {
			stub.err = os.Rename(made, stub.path)
		}
	})
	if stub.err != nil {
		t.Fatalf("build stub runtime: %v", stub.err)
	}
	return stub.path
}
