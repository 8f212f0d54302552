// Package daemontest runs a real daemon in a directory of its own, with the process
// provider and a freshly built runtime, for tests of any package.
package daemontest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon"
	"github.com/agentixd/agentixd/daemon/config"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	_ "github.com/agentixd/agentixd/providers/external" // For tests with runtimes of their own.
	_ "github.com/agentixd/agentixd/providers/process"  // The provider of these tests.
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Env is a running daemon and its clients.
type Env struct {
	Dir     string // everything of this test; short, so that socket paths fit
	Config  daemon.Config
	Daemon  *daemon.Daemon
	Project string // a directory below the allowed prefix, for WriteProject
	// Template is what Sandbox creates; its project is set already.
	Template *agentixv1.Sandbox

	Conn      *grpc.ClientConn // over the Unix socket
	TCP       *grpc.ClientConn // over loopback, with the token
	Sandboxes agentixv1.SandboxServiceClient
	Templates agentixv1.TemplateServiceClient
	Remote    agentixv1.RemoteServiceClient
	Events    agentixv1.EventServiceClient
	Images    agentixv1.ImageServiceClient

	URL   string       // http://127.0.0.1:PORT
	Token string       // the daemon's token
	HTTP  *http.Client // sends the token
	Unix  *http.Client // over the Unix socket, for any URL

	logs   *logBuffer
	cancel context.CancelCauseFunc
	done   chan error
}

// Start runs a daemon until the test ends; then every sandbox is deleted and the daemon
// must end without an error.
func Start(t testing.TB, change ...func(*daemon.Config)) *Env {
	t.Helper()
	dir, err := os.MkdirTemp("", "agx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &Env{Dir: dir, Project: filepath.Join(dir, "projects", "main"), logs: &logBuffer{}}
	if err := os.MkdirAll(e.Project, 0o750); err != nil {
		t.Fatal(err)
	}
	e.Template = &agentixv1.Sandbox{Project: e.Project}
	cfg := config.Default()
	cfg.StateDir = filepath.Join(dir, "state")
	cfg.HTTP = "127.0.0.1:0"
	cfg.Provider = "process"
	cfg.Runtime = Runtime(t)
	cfg.AllowHostPath = []string{filepath.Join(dir, "projects")}
	cfg.InsecureProcessAsRoot = true
	cfg.ShutdownGrace = 5 * time.Second
	cfg.LogLevel = "debug"
	for _, f := range change {
		f(&cfg)
	}
	if e.Config, err = cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	e.Boot(t)
	t.Cleanup(func() {
		if e.done == nil {
			return
		}
		e.deleteAll(t)
		e.Stop(t)
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", e.Logs())
		}
	})
	return e
}

// Boot starts the daemon, again after Stop.
func (e *Env) Boot(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	logger := slog.New(slog.NewTextHandler(e.logs, &slog.HandlerOptions{Level: e.Config.Level()}))
	d, err := daemon.New(ctx, e.Config, logger)
	if err != nil {
		cancel(err)
		t.Fatalf("start daemon: %v", err)
	}
	e.Daemon, e.cancel, e.done = d, cancel, make(chan error, 1)
	go func() { e.done <- d.Run(ctx) }() // ends with Stop
	token, err := os.ReadFile(e.Config.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	e.Token = strings.TrimSpace(string(token))
	e.URL = "http://" + d.HTTPAddr()
	e.Conn = e.dial(t, "unix://"+d.SocketPath())
	e.TCP = e.dial(t, d.HTTPAddr(), grpc.WithPerRPCCredentials(bearer(e.Token)))
	e.Sandboxes = agentixv1.NewSandboxServiceClient(e.Conn)
	e.Templates = agentixv1.NewTemplateServiceClient(e.Conn)
	e.Remote = agentixv1.NewRemoteServiceClient(e.Conn)
	e.Events = agentixv1.NewEventServiceClient(e.Conn)
	e.Images = agentixv1.NewImageServiceClient(e.Conn)
	e.HTTP = &http.Client{Transport: tokenTransport{token: e.Token, base: &http.Transport{}}}
	e.Unix = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.Config.Socket)
		},
	}}
}

// maxMessage lets clients send and receive whatever the daemon does.
const maxMessage = 1 << 30

func (e *Env) dial(t testing.TB, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Stop ends the daemon as a first signal would; sandboxes go on.
func (e *Env) Stop(t testing.TB) {
	t.Helper()
	e.cancel(errors.New("the test stops the daemon"))
	if err := <-e.done; err != nil {
		t.Errorf("daemon ended with %v", err)
	}
	e.done = nil
	_ = e.Conn.Close()
	_ = e.TCP.Close()
	e.HTTP.CloseIdleConnections()
	e.Unix.CloseIdleConnections()
}

// CloseIdleConnections lets http.Client close those of the transport below.
func (t tokenTransport) CloseIdleConnections() { t.base.CloseIdleConnections() }

func (e *Env) deleteAll(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), time.Minute, errors.New("deleting the test's sandboxes took too long"))
	defer cancel()
	templates, err := e.Templates.ListTemplates(ctx, &agentixv1.ListTemplatesRequest{})
	if err != nil {
		t.Errorf("list templates: %v", err)
	}
	for _, template := range templates.GetTemplates() {
		if _, err := e.Templates.DeleteTemplate(ctx, &agentixv1.DeleteTemplateRequest{Name: template.GetName()}); err != nil {
			t.Errorf("delete %s: %v", template.GetName(), err)
		}
	}
	list, err := e.Sandboxes.ListSandboxes(ctx, &agentixv1.ListSandboxesRequest{PageSize: 1000})
	if err != nil {
		t.Errorf("list sandboxes: %v", err)
	}
	for _, sandbox := range list.GetSandboxes() {
		if _, err := e.Sandboxes.DeleteSandbox(ctx, &agentixv1.DeleteSandboxRequest{Name: sandbox.GetName(), AllowMissing: true}); err != nil {
			t.Errorf("delete %s: %v", sandbox.GetName(), err)
		}
	}
}

// WriteProject writes files into the project directory and returns it.
func (e *Env) WriteProject(t testing.TB, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(e.Project, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return e.Project
}

// Sandbox creates a sandbox from Template and returns its resource name.
func (e *Env) Sandbox(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("creating a sandbox took too long"))
	defer cancel()
	sandbox, err := e.Sandboxes.CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{Sandbox: e.Template})
	if err != nil {
		t.Fatalf("create sandbox: %v", err)
	}
	return sandbox.GetName()
}

// Logs is what the daemon has logged so far.
func (e *Env) Logs() string { return e.logs.String() }

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is all that was written.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type tokenTransport struct {
	token string
	base  *http.Transport
}

// RoundTrip adds the token.
func (t tokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return t.base.RoundTrip(r)
}

// bearer sends a token with each RPC, also without TLS.
type bearer string

// GetRequestMetadata is the Authorization header.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false: the daemon is on loopback.
func (bearer) RequireTransportSecurity() bool { return false }
