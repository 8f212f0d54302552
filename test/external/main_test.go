// Package external tests the daemon at runtimes that someone else runs: our own without its
// additions to the wire, a server of python-socketio that was written from the description
// of the protocol alone, and the neighbour's, where UPSTREAM_PYTHON names an interpreter
// that has it.
package external

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/daemon"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a runtime that the test started.
type server struct {
	url     string // with its secrets
	network string
	address string // where it listens
	process *os.Process
	deaf    bool // its worker answers a cancel, and lets the function run on
}

// kinds are the neighbours, by name.
func kinds() map[string]func(*testing.T) *server {
	all := map[string]func(*testing.T) *server{"ours": ourGuarded, "socketio": scripted}
	if os.Getenv("UPSTREAM_PYTHON") != "" {
		all["upstream"] = upstream
	}
	return all
}

// eachNeighbour runs a test against every neighbour there is.
func eachNeighbour(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

func project(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/project")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// launch starts a process of the test; it and its children end with the test.
func launch(t *testing.T, stdin string, name string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait()
		timer.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s: %s", filepath.Base(name), text)
		}
		_ = log.Close()
	})
	return cmd.Process
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// ourGuarded is our runtime as its neighbours see it: without the token of a daemon it tells
// no capabilities, and with the secret it lets a host of the public protocol in.
func ourGuarded(t *testing.T) *server {
	t.Helper()
	socket := filepath.Join(shortDir(t), "s")
	p := launch(t, `{"token": "not told to anybody", "neighbour_secret": "hunter2"}`+"\n",
		daemontest.Runtime(t), "--socket", socket, "--project", project(t), "--token-stdin")
	return &server{url: "unix://me:hunter2@" + socket, network: "unix", address: socket, process: p}
}

// ourOpen is our runtime without any secret: it tells what it can, and the daemon speaks to
// it as to its own.
func ourOpen(t *testing.T) *server {
	t.Helper()
	port := freePort(t)
	p := launch(t, "", "env", "AGENTIX_BIND_HOST=127.0.0.1", "AGENTIX_BIND_PORT="+port, daemontest.Runtime(t), "--project", project(t))
	return serving(t, p, port)
}

// scripted is testdata/neighbour.py.
func scripted(t *testing.T) *server {
	t.Helper()
	port := freePort(t)
	return serving(t, launch(t, "", socketioPython(t), "testdata/neighbour.py", project(t), port), port)
}

func upstream(t *testing.T) *server {
	t.Helper()
	port := freePort(t)
	s := serving(t, launch(t, "", os.Getenv("UPSTREAM_PYTHON"), "testdata/upstream.py", project(t), port), port)
	s.deaf = true
	return s
}

// socketioPython is an interpreter that has python-socketio and aiohttp.
func socketioPython(t *testing.T) string {
	t.Helper()
	for _, python := range []string{os.Getenv("AGENTIX_SOCKETIO_PYTHON"), "../../.venv/bin/python", "python3", os.Getenv("UPSTREAM_PYTHON")} {
		if python != "" && exec.Command(python, "-c", "import socketio, aiohttp, msgpack").Run() == nil {
			return python
		}
	}
	t.Fatal("no Python with python-socketio, aiohttp and msgpack; make deps installs one, AGENTIX_SOCKETIO_PYTHON names another")
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

// serving waits until a server on a port answers.
func serving(t *testing.T, p *os.Process, port string) *server {
	t.Helper()
	s := &server{url: "http://127.0.0.1:" + port, network: "tcp", address: "127.0.0.1:" + port, process: p}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	await.True(t, func() bool {
		resp, err := client.Get(s.url + "/health") //nolint:noctx // it has a timeout
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "health of "+s.url)
	return s
}

// start runs a daemon that may join what the tests start.
func start(t *testing.T, change ...func(*daemon.Config)) *daemontest.Env {
	t.Helper()
	return daemontest.Start(t, append([]func(*daemon.Config){func(c *daemon.Config) {
		c.ExternalAllow = []string{"127.0.0.0/8", "unix://" + os.TempDir()}
	}}, change...)...)
}

// join makes a sandbox of a runtime that runs.
func join(t *testing.T, e *daemontest.Env, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("joining took too long"))
	defer cancel()
	made, err := e.Sandboxes.CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{
		Sandbox: &agentixv1.Sandbox{Provider: "external", Runtime: &agentixv1.Runtime{Url: url}},
	})
	if err != nil {
		t.Fatalf("join %s: %v", url, err)
	}
	return made.GetName()
}

// call calls with JSON and returns the value's text.
func call(t *testing.T, e *daemontest.Env, sandbox, callable, args string) string {
	t.Helper()
	r := remote(t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::" + callable, Args: args})
	if r.GetError() != nil {
		t.Fatalf("%s%s: %v", callable, args, r.GetError())
	}
	return r.GetValue()
}

func remote(t *testing.T, e *daemontest.Env, r *agentixv1.RemoteRequest) *agentixv1.RemoteResponse {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("the call took too long"))
	defer cancel()
	answer, err := e.Remote.Remote(ctx, r)
	if err != nil {
		t.Fatalf("%s: %v", r.GetCallable(), err)
	}
	return answer
}

// read returns the events of a sandbox so far.
func read(t *testing.T, e *daemontest.Env, r *agentixv1.StreamEventsRequest) []*agentixv1.Event {
	t.Helper()
	stream, err := e.Events.StreamEvents(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var all []*agentixv1.Event
	for {
		page, err := stream.Recv()
		if err != nil {
			return all
		}
		all = append(all, page.GetEvents()...)
	}
}

// proxy forwards connections to a server and can cut them.
type proxy struct {
	t      *testing.T
	to     *server
	ln     net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	refuse bool
}

func newProxy(t *testing.T, to *server) *proxy {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(shortDir(t), "p"))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, to: to, ln: ln, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() { _ = ln.Close(); p.cut(true); p.wg.Wait() })
	return p
}

// url is the server's by way of the proxy.
func (p *proxy) url() string {
	userinfo := ""
	if at := strings.Index(p.to.url, "@"); at >= 0 {
		userinfo = p.to.url[strings.Index(p.to.url, "://")+3 : at+1]
	}
	return "unix://" + userinfo + p.ln.Addr().String()
}

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), p.to.network, p.to.address)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		if p.refuse {
			p.mu.Unlock()
			_, _ = in.Close(), out.Close()
			continue
		}
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		forward := func(to, from net.Conn) {
			buf := make([]byte, 4096) // small, so that cuts fall within messages
			for {
				n, err := from.Read(buf)
				if _, e := to.Write(buf[:n]); err != nil || e != nil {
					break
				}
			}
			p.mu.Lock()
			delete(p.conns, in)
			delete(p.conns, out)
			p.mu.Unlock()
			_, _ = in.Close(), out.Close()
		}
		p.wg.Go(func() { forward(out, in) })
		p.wg.Go(func() { forward(in, out) })
	}
}

// cut ends all connections; refuse says whether new ones are refused from now on.
func (p *proxy) cut(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// lines are the lines of a file; none if it is not there.
func lines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

func quoted(values ...any) string {
	var all []string
	for _, v := range values {
		if s, ok := v.(string); ok {
			v = strconv.Quote(s)
		}
		all = append(all, fmt.Sprint(v))
	}
	return "[" + strings.Join(all, ", ") + "]"
}
