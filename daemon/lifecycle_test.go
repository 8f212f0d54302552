package daemon_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	_ "github.com/agentixd/agentixd/providers/containerd" // For --provider auto.
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func open(t *testing.T, cfg daemon.Config) error {
	t.Helper()
	cfg, err := cfg.Complete()
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = d.Close()
	}
	return err
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q in it", err, part)
		}
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	e := daemontest.Start(t)
	sameState := e.Config
	sameState.Socket = filepath.Join(e.Dir, "other.sock")
	wantError(t, open(t, sameState), "open store", "in use by process")
	sameSocket := e.Config
	sameSocket.StateDir = filepath.Join(e.Dir, "other")
	wantError(t, open(t, sameSocket), "another process listens there")
	samePort := sameSocket
	samePort.Socket = filepath.Join(e.Dir, "other.sock")
	samePort.HTTP = e.Daemon.HTTPAddr()
	wantError(t, open(t, samePort), "address already in use")
	if exists(samePort.Socket) {
		t.Error("a daemon that could not be opened left its socket")
	}
	if _, err := e.Sandboxes.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{}); err != nil {
		t.Errorf("the first daemon is disturbed: %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSocketFile(t *testing.T) {
	e := daemontest.Start(t)
	info, err := os.Stat(e.Config.Socket)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	e.Stop(t)
	if exists(e.Config.Socket) {
		t.Error("the socket is still there")
	}
	// A socket that a killed daemon left is replaced.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: e.Config.Socket})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	e.Boot(t)
	if _, err := e.Sandboxes.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{}); err != nil {
		t.Error(err)
	}
	// Anything else is not.
	other := e.Config
	other.StateDir, other.Socket, other.HTTP = filepath.Join(e.Dir, "other"), filepath.Join(e.Dir, "file"), ""
	if err := os.WriteFile(other.Socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, open(t, other), "something that is no socket")
	if text, err := os.ReadFile(other.Socket); err != nil || string(text) != "precious" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	base := func() daemon.Config {
		return daemon.Config{
			StateDir: t.TempDir(), Provider: "process", Runtime: daemontest.Runtime(t), ContainerdAddress: filepath.Join(t.TempDir(), "containerd.sock"),
			InsecureProcessAsRoot: true, LogLevel: "info", LogFormat: "text",
		}
	}
	auto := base()
	auto.Provider = "auto"
	wantError(t, open(t, auto), "containers cannot run here", auto.ContainerdAddress, "--provider process")
	runtime := base()
	runtime.Runtime = "/does/not/exist"
	wantError(t, open(t, runtime), "/does/not/exist is no executable file", "make build")
	provider := base()
	provider.Provider = "podman"
	wantError(t, open(t, provider), `"podman" is none of`)
	public := base()
	public.HTTP = "0.0.0.0:0"
	wantError(t, open(t, public), "not a loopback address")
	if os.Geteuid() == 0 {
		root := base()
		root.InsecureProcessAsRoot = false
		wantError(t, open(t, root), "--insecure-process-as-root")
	}
	state := base()
	state.StateDir = "/proc/agentix"
	wantError(t, open(t, state), "make state directory")
	if err := open(t, base()); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestHealth(t *testing.T) {
	e := daemontest.Start(t)
	client := healthv1.NewHealthClient(e.TCP)
	for _, service := range []string{"", "agentix.v1.SandboxService", "agentix.v1.RemoteService", "agentix.v1.EventService", "agentix.v1.ImageService", "agentix.v1.BundleService"} {
		await.True(t, func() bool {
			response, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			return err == nil && response.GetStatus() == healthv1.HealthCheckResponse_SERVING
		}, "health of "+service)
	}
	watch, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		response := get(t, e, e.HTTP, e.URL+path, nil)
		if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d", path, response.StatusCode)
		}
	}
}

// The first signal lets running calls end and refuses new ones; the second cuts them off.
func TestTwoSpeedsOfShutdown(t *testing.T) {
	e := daemontest.Start(t, func(c *daemon.Config) { c.ShutdownGrace = time.Hour })
	e.WriteProject(t, map[string]string{"m.py": "import asyncio, pathlib\n" +
		"async def wait(d):\n    d = pathlib.Path(d)\n    (d / 'started').write_text('')\n" +
		"    while not (d / 'go').exists():\n        await asyncio.sleep(0.01)\n    return 'done'\n"})
	sandbox := e.Sandbox(t)
	call := func(dir string) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := e.Remote.Remote(context.WithoutCancel(t.Context()), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "m::wait", Args: `["` + dir + `"]`})
			ended <- err
		}()
		await.True(t, func() bool { return exists(filepath.Join(dir, "started")) }, "the function to run")
		return ended
	}
	first, second := t.TempDir(), t.TempDir()
	firstEnded, secondEnded := call(first), call(second)
	stopped := make(chan struct{})
	go func() { defer close(stopped); e.Stop(t) }()
	await.True(t, func() bool {
		_, err := e.Sandboxes.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{})
		return status.Code(err) == codes.Unavailable
	}, "new calls to be refused")
	if err := os.WriteFile(filepath.Join(first, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-firstEnded; err != nil {
		t.Errorf("the call that ended in time: %v", err)
	}
	select {
	case err := <-secondEnded:
		t.Errorf("the other call ended too: %v", err)
	case <-stopped:
		t.Error("the daemon did not wait")
	default:
	}
	e.Daemon.Abort()
	<-stopped
	if err := <-secondEnded; status.Code(err) != codes.Unavailable || reasonOf(t, status.Convert(err)) != "STOPPING" {
		t.Errorf("the call that was cut off: %v", err)
	}
	e.Boot(t)
}
