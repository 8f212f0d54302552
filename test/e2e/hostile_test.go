//go:build containerd

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// hostile makes a sandbox with these limits beside a neighbour, and asserts at the end that the
// neighbour and the daemon are unharmed.
func hostile(t *testing.T, limits *agentixv1.Resources) (e *daemontest.Env, sandbox string) {
	t.Helper()
	e, neighbour := start(t)
	e.Template.Resources = limits
	sandbox = e.Sandbox(t)
	t.Cleanup(func() {
		isValue("3")(t, grpcUnix(context.WithoutCancel(t.Context()), t, e, &agentixv1.RemoteRequest{Sandbox: neighbour, Callable: "app::add", Args: "[1,2]"}))
	})
	return e, sandbox
}

func call(t *testing.T, e *daemontest.Env, sandbox, callable, args string) answer {
	t.Helper()
	return grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: callable, Args: args})
}

func number(t *testing.T, a answer) int {
	t.Helper()
	n, err := strconv.Atoi(a.value)
	if err != nil {
		t.Fatalf("got %q, %v, %v; want a number", a.value, a.err, a.st)
	}
	return n
}

// awaitTold waits for a lifecycle event of a READY sandbox whose message contains text.
func awaitTold(t *testing.T, e *daemontest.Env, sandbox, text string) {
	t.Helper()
	await.True(t, func() bool {
		events, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, Kinds: []agentixv1.EventKind{agentixv1.EventKind_EVENT_KIND_LIFECYCLE}})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			l := event.GetLifecycle()
			if l.GetReason() == agentixv1.SandboxReason_SANDBOX_REASON_LIMIT_REACHED && strings.Contains(l.GetMessage(), text) {
				return l.GetState() == agentixv1.SandboxState_SANDBOX_STATE_READY
			}
		}
		return false
	}, "the event about "+text)
}

func assertReady(t *testing.T, e *daemontest.Env, sandbox string) {
	t.Helper()
	got, err := e.Sandboxes.GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: sandbox})
	if err != nil || got.GetState() != agentixv1.SandboxState_SANDBOX_STATE_READY {
		t.Errorf("got %v, %v; want READY", got, err)
	}
}

func TestHostileForkBomb(t *testing.T) {
	e, sandbox := hostile(t, &agentixv1.Resources{Pids: 64})
	if n := number(t, call(t, e, sandbox, "hostile::fork_bomb", "[]")); n < 8 || n > 64 {
		t.Errorf("%d processes under a limit of 64", n)
	}
	awaitTold(t, e, sandbox, "processes: the limit of 64 was reached")
	isValue("3")(t, call(t, e, sandbox, "app::add", "[1,2]"))
}

// TestHostileMemoryHog: 50 kills for want of memory in a row take the worker each time, and never
// the runtime.
func TestHostileMemoryHog(t *testing.T) {
	e, sandbox := hostile(t, &agentixv1.Resources{MemoryBytes: 128 << 20})
	for i := range 50 {
		isError("WorkerDied", "", func(e *agentixv1.RemoteError) bool {
			return e.GetReturncode() == -9 && e.GetCause() == "OOM_KILLED" && e.GetLimit() == 134217728
		})(t, call(t, e, sandbox, "hostile::hog", "[]"))
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
	isValue("3")(t, call(t, e, sandbox, "app::add", "[1,2]"))
	assertReady(t, e, sandbox)
	awaitTold(t, e, sandbox, "memory: the limit of 134217728 bytes was reached")
}

func TestHostileDiskFiller(t *testing.T) {
	const limit = 64 << 20
	e, sandbox := hostile(t, &agentixv1.Resources{DiskBytes: limit})
	total := 0
	for _, path := range []string{"/fill", "/tmp/fill", "/dev/shm/fill", "/run/fill"} {
		total += number(t, call(t, e, sandbox, "hostile::fill", `["`+path+`"]`))
	}
	if total > limit || total < limit/2 {
		t.Errorf("%d bytes went in under a limit of %d", total, limit)
	}
	awaitTold(t, e, sandbox, fmt.Sprintf("disk: the limit of %d bytes was reached", limit))
	if n := number(t, call(t, e, sandbox, "hostile::fill", `["/.agentix/socket/fill"]`)); n > 64<<10 {
		t.Errorf("%d bytes went into the socket directory", n)
	}
	awaitTold(t, e, sandbox, "socket directory")
	isValue("3")(t, call(t, e, sandbox, "app::add", "[1,2]"))
	assertReady(t, e, sandbox)
}

// TestHostileLogFlooder: 200 MiB of output come through or are counted, and a neighbour is answered.
func TestHostileLogFlooder(t *testing.T) {
	const size = 200 << 20
	e, sandbox := hostile(t, &agentixv1.Resources{})
	done := make(chan answer, 1)
	go func() { // ends with the call
		done <- call(t, e, sandbox, "hostile::flood", fmt.Sprintf("[%d]", size))
	}()
	neighbour := e.Sandbox(t)
	answered := 0
	for {
		select {
		case a := <-done:
			isValue("null")(t, a)
			if answered == 0 {
				t.Error("the neighbour was not answered during the flood")
			}
			return
		default:
			isValue("3")(t, call(t, e, neighbour, "app::add", "[1,2]"))
			answered++
		}
	}
}

// TestHostileSymlink: a symlink to containerd's socket in the place of the sandbox's leads nowhere.
func TestHostileSymlink(t *testing.T) {
	e, sandbox := hostile(t, &agentixv1.Resources{})
	isValue(strconv.Quote(engine.Address))(t, call(t, e, sandbox, "hostile::replace_socket", `["`+engine.Address+`"]`))
	isValue("3")(t, call(t, e, sandbox, "app::add", "[1,2]")) // by the connection that is there
	e.Stop(t)
	e.Boot(t) // it has to dial anew
	a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]", Timeout: after(2 * time.Second)})
	if a.value != "" {
		t.Errorf("got %q by a symlink", a.value)
	}
}

// TestOrphansLeaveNoZombies: 500 orphaned grandchildren are buried, and the exit codes of children
// are their parents'.
func TestOrphansLeaveNoZombies(t *testing.T) {
	e, sandbox := hostile(t, &agentixv1.Resources{Pids: 2048})
	isValue("500")(t, call(t, e, sandbox, "hostile::orphans", "[500]"))
	if a := call(t, e, sandbox, "hostile::exit_codes", "[100]"); strings.Trim(a.value, "[0,]") != "" || a.value == "" {
		t.Errorf("exit codes differ: %q, %v", a.value, a.err)
	}
	await.True(t, func() bool { return number(t, call(t, e, sandbox, "hostile::zombies", "[]")) == 0 }, "the burial of all")
}

// TestDeleteKillsSurvivors: double-forked children in sessions of their own end with the sandbox.
func TestDeleteKillsSurvivors(t *testing.T) {
	e, sandbox := hostile(t, &agentixv1.Resources{})
	const marker = "agentix-survivor-4711"
	isValue("20")(t, call(t, e, sandbox, "hostile::survivors", `[20, "`+marker+`"]`))
	await.True(t, func() bool { return countMarked(t, marker) == 20 }, "the survivors")
	if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: sandbox}); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return countMarked(t, marker) == 0 }, "the end of the survivors")
}

// countMarked counts the processes whose command line ends with marker.
func countMarked(t *testing.T, marker string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.HasSuffix(string(line), "\x00"+marker+"\x00") {
			n++
		}
	}
	return n
}

// TestIsolatedSandboxesCall: the real runtime and worker live with every kind of isolation.
func TestIsolatedSandboxesCall(t *testing.T) {
	e, _ := start(t)
	for name, sandbox := range map[string]*agentixv1.Sandbox{
		"read-only":      {Security: &agentixv1.Security{ReadOnlyRootfs: true}},
		"user namespace": {Security: &agentixv1.Security{UserNamespace: true}},
		"all": {
			Security:  &agentixv1.Security{ReadOnlyRootfs: true, UserNamespace: true, RuntimeHandler: "runc"},
			Resources: &agentixv1.Resources{DiskBytes: 64 << 20, OpenFiles: 256, MemoryBytes: 256 << 20, Pids: 128, Cpus: 1},
		},
	} {
		sandbox.Image, sandbox.Project = e.Template.GetImage(), e.Project
		made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: sandbox})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		isValue("3")(t, call(t, e, made.GetName(), "app::add", "[1,2]"))
		if made.GetSecurity().GetReadOnlyRootfs() != sandbox.GetSecurity().GetReadOnlyRootfs() || made.GetResources().GetDiskBytes() != sandbox.GetResources().GetDiskBytes() {
			t.Errorf("%s: shown as %v", name, made)
		}
	}
}
