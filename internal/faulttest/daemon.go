package faulttest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

//go:embed project/fault.py
var project embed.FS

// Daemon is a real agentixd process in a directory of its own, which can be killed and
// started again. Its clients stay connected across that.
type Daemon struct {
	Dir      string
	StateDir string
	Binaries Binaries
	Provider []string // flags that name it
	Args     []string // further flags
	Env      []string // besides the test's own
	Wrap     []string // a command that runs it
	Template *agentixv1.Sandbox
	Forget   bool // no evidence of a failure is kept
	AfterEnd []func()
	// Locate finds the runtime of a sandbox in a container, which has the directory for gates
	// and runs at /tmp. Nil for processes.
	Locate func(*Sandbox) (pid int)

	t      testing.TB
	cmd    *exec.Cmd
	exited chan struct{}
	conns  []*grpc.ClientConn
}

const clientConns = 3

// NewDaemon prepares a daemon; Start starts it. When the test ends its sandboxes are
// deleted and it has to end without an error.
func NewDaemon(t testing.TB, b Binaries) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "agf") // short: Unix sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Dir: dir, StateDir: filepath.Join(dir, "state"), Binaries: b, t: t}
	d.Provider = []string{"--provider", "process", "--insecure-process-as-root"}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	files, err := fs.Sub(project, "project")
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "project"), files)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Template = &agentixv1.Sandbox{Project: filepath.Join(dir, "project")}
	for range clientConns {
		d.conns = append(d.conns, Dial(t, d.Socket()))
	}
	t.Cleanup(d.end)
	return d
}

// Dial connects to a daemon's socket, again and again.
func Dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.2, MaxDelay: 30 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Socket is the daemon's socket.
func (d *Daemon) Socket() string { return filepath.Join(d.Dir, "d.sock") }

// LogFile is where the daemon's own log goes.
func (d *Daemon) LogFile() string { return filepath.Join(d.Dir, "daemon.log") }

// Conn is one of several connections; n is any number.
func (d *Daemon) Conn(n int) *grpc.ClientConn { return d.conns[n%len(d.conns)] }

// Remote is the service of calls, over one of several connections.
func (d *Daemon) Remote(n int) agentixv1.RemoteServiceClient {
	return agentixv1.NewRemoteServiceClient(d.Conn(n))
}

// Sandboxes is the service of sandboxes.
func (d *Daemon) Sandboxes() agentixv1.SandboxServiceClient {
	return agentixv1.NewSandboxServiceClient(d.Conn(0))
}

// Events is the service of events.
func (d *Daemon) Events() agentixv1.EventServiceClient {
	return agentixv1.NewEventServiceClient(d.Conn(1))
}

// Exec starts the process and does not wait for it.
func (d *Daemon) Exec() {
	d.t.Helper()
	log, err := os.OpenFile(d.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{
		d.Binaries.Daemon, "--state-dir", d.StateDir, "--socket", d.Socket(), "--runtime", d.Binaries.Runtime,
		"--allow-host-path", d.Dir, "--shutdown-grace", "1s",
	}, append(append([]string(nil), d.Provider...), d.Args...)...)
	args = append(append([]string(nil), d.Wrap...), args...)
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // ended by Kill and at the end of the test
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), d.Env...)
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { // ends with the process
		defer close(exited)
		_ = cmd.Wait()
	}()
	d.cmd, d.exited = cmd, exited
}

// Start starts the process and waits until it is ready, which it tells how long it took.
func (d *Daemon) Start() time.Duration {
	d.t.Helper()
	began := time.Now()
	d.Exec()
	d.WaitReady()
	return time.Since(began)
}

// WaitReady waits until the daemon has taken over what was there before.
func (d *Daemon) WaitReady() {
	d.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(d.t.Context()), time.Minute, errors.New("the daemon is not ready"))
	defer cancel()
	health := healthv1.NewHealthClient(d.conns[0])
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := health.Check(ctx, &healthv1.HealthCheckRequest{})
		if err == nil && answer.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return
		}
		select {
		case <-tick.C:
		case <-d.exited:
			d.t.Fatalf("the daemon ended: %s", d.LogTail(3000))
		case <-ctx.Done():
			d.t.Fatalf("the daemon is not ready: %v; %s", err, d.LogTail(3000))
		}
	}
}

// PID is the process id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Exited is closed once the process has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// ExitCode is that of the ended process; -1 after a signal.
func (d *Daemon) ExitCode() int { return d.cmd.ProcessState.ExitCode() }

// Kill ends the process with SIGKILL and waits until it is gone.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// Running tells whether it runs.
func (d *Daemon) Running() bool {
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// LogTail is the end of the daemon's log.
func (d *Daemon) LogTail(n int) string {
	data, err := os.ReadFile(d.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-n):])
}

// end deletes all sandboxes and stops the daemon.
func (d *Daemon) end() {
	defer func() {
		for _, f := range d.AfterEnd {
			f()
		}
	}()
	if d.cmd == nil {
		return
	}
	d.keep()
	if !d.Running() {
		d.Start()
	}
	d.DeleteAll()
	_ = d.cmd.Process.Signal(os.Interrupt)
	select {
	case <-d.exited:
		if code := d.ExitCode(); code != 0 {
			d.t.Errorf("the daemon ended with code %d: %s", code, d.LogTail(2000))
		}
	case <-time.After(30 * time.Second):
		d.t.Errorf("the daemon does not stop: %s", d.LogTail(2000))
		d.Kill()
	}
	if log := d.LogTail(1 << 30); strings.Contains(log, "panic:") || strings.Contains(log, "panic=") || strings.Contains(log, "DATA RACE") {
		d.t.Error("the daemon's log tells of a panic")
	}
}

// keep copies what is needed to understand a failure to a place that stays.
func (d *Daemon) keep() {
	if !d.t.Failed() || d.Forget {
		return
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return
	}
	place := filepath.Join(cache, "agentix-faulttest", "failures", fmt.Sprintf("%s-%d", strings.ReplaceAll(d.t.Name(), "/", "-"), time.Now().Unix()))
	if err := os.CopyFS(place, readable{os.DirFS(d.Dir)}); err != nil {
		d.t.Logf("keep evidence: %v", err)
	}
	d.t.Logf("evidence is kept in %s", place)
}

// readable leaves out sockets and the like.
type readable struct{ fs.FS }

// ReadDir lists directories and regular files.
func (r readable) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(r.FS, name)
	var entries []fs.DirEntry
	for _, e := range all {
		if e.IsDir() || e.Type().IsRegular() {
			entries = append(entries, e)
		}
	}
	return entries, err //nolint:wrapcheck // of the file system below
}
