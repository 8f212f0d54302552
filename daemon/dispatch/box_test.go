package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// buildDir is where buildRuntime built; TestMain removes it.
var buildDir string

// buildRuntime builds the binary once.
var buildRuntime = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "agentix-dispatch-"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "agentix-runtime")
	out, err := exec.Command("go", "build", "-o", path, "github.com/agentixd/agentixd/runtime/cmd/agentix-runtime").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build runtime: %w: %s", err, out)
	}
	return path, nil
})

const boxToken = "0123456789abcdef"

// startRuntime starts a real agentix-runtime with testdata/project on a Unix socket.
func startRuntime(t testing.TB) (socket string, process *os.Process) {
	t.Helper()
	binary, err := buildRuntime()
	if err != nil {
		t.Fatal(err)
	}
	project, err := filepath.Abs("testdata/project")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(t.TempDir(), "rpc.sock")
	cmd := exec.Command(binary, "--socket", socket, "--project", project, "--token-stdin")
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(socket)) // where one that is killed leaves its files
	cmd.Stdin = strings.NewReader(fmt.Sprintf("{\"token\": %q}\n", boxToken))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if t.Failed() {
			t.Logf("runtime: %s", output.String())
		}
	})
	return socket, cmd.Process
}

// cutter forwards connections to a socket. It can cut them, and hold back or lose what
// passes.
type cutter struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []*forwarded
	closed bool // new connections are refused
}

// forwarded is one connection: in is the daemon's side, out the runtime's.
type forwarded struct {
	in, out  net.Conn
	mu       sync.Mutex
	holdUp   bool   // what the daemon sends goes to held
	held     []byte // for the runtime
	loseDown bool   // what the runtime sends is lost
}

func newCutter(t testing.TB, target string) *cutter {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "cut.sock"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{target: target, ln: ln}
	c.wg.Go(c.accept)
	t.Cleanup(func() { _ = ln.Close(); c.cut(true); c.wg.Wait() })
	return c
}

func (c *cutter) accept() {
	for {
		in, err := c.ln.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), "unix", c.target)
		c.mu.Lock()
		if err != nil || c.closed {
			c.mu.Unlock()
			_ = in.Close()
			if out != nil {
				_ = out.Close()
			}
			continue
		}
		f := &forwarded{in: in, out: out}
		c.conns = append(c.conns, f)
		c.mu.Unlock()
		c.wg.Go(func() { _, _ = io.Copy(writerFunc(f.down), out); _ = in.Close() })
		c.wg.Go(func() { _, _ = io.Copy(writerFunc(f.up), in); f.upEnded() })
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (f *forwarded) down(b []byte) (int, error) {
	f.mu.Lock()
	lose := f.loseDown
	f.mu.Unlock()
	if lose {
		return len(b), nil
	}
	return f.in.Write(b)
}

func (f *forwarded) up(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holdUp {
		f.held = append(f.held, b...)
		return len(b), nil
	}
	return f.out.Write(b)
}

// upEnded ends the runtime's side with the daemon's, unless something is held for it.
func (f *forwarded) upEnded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.holdUp {
		_ = f.out.Close()
	}
}

// newest is the connection that the link uses.
func (c *cutter) newest() *forwarded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[len(c.conns)-1]
}

// cut ends all connections; stay says whether new ones are refused from now on.
func (c *cutter) cut(stay bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = stay
	for _, f := range c.conns {
		_ = f.in.Close()
		_ = f.out.Close()
	}
	c.conns = nil
}

func (c *cutter) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", c.ln.Addr().String())
}

// box is a dispatcher with one sandbox "box" on a real runtime.
type box struct {
	t       testing.TB
	dir     string
	socket  string
	process *os.Process
	cutter  *cutter
	store   *store.Store
	journal *events.Journal
	d       *Dispatcher
	link    *link.Link
	stop    func()
}

func newBox(t testing.TB) *box {
	t.Helper()
	b := &box{t: t, dir: t.TempDir()}
	b.socket, b.process = startRuntime(t)
	b.cutter = newCutter(t, b.socket)
	b.open()
	t.Cleanup(func() { b.stop() })
	return b
}

// open starts the daemon's side.
func (b *box) open() {
	b.t.Helper()
	var err error
	if b.store, err = store.Open(context.Background(), b.dir); err != nil {
		b.t.Fatal(err)
	}
	b.journal = events.New(b.store, events.Options{LogDir: filepath.Join(b.dir, "logs")})
	b.d, err = New(context.Background(), Options{Store: b.store, Journal: b.journal, Links: LinksFunc(func(id string) (Link, error) {
		if id != "box" {
			return nil, errs.New(errs.NotFound, errs.SandboxNotFound, "no sandbox %s", id)
		}
		return b.link, nil
	})})
	if err != nil {
		b.t.Fatal(err)
	}
	b.link = link.New(link.Options{Sandbox: "box", Dial: b.cutter.dial, Token: boxToken, Epoch: b.store.Epoch(), Handler: b.d.Handler("box")})
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.link.Run(ctx) })
	b.stop = func() {
		b.d.Stop()
		cancel(errors.New("daemon stops"))
		wg.Wait()
		if err := errors.Join(b.d.Close(), b.journal.Close(), b.store.Close()); err != nil {
			b.t.Error(err)
		}
	}
	ready, cancelReady := context.WithTimeoutCause(context.Background(), await.Timeout, errors.New("runtime not ready in time"))
	defer cancelReady()
	if _, err := b.link.WaitReady(ready); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) remote(ctx context.Context, r Request) (Outcome, error) {
	r.Sandbox = "box"
	if r.Encoding == "" {
		r.Encoding = wire.EncodingJSON
	}
	return b.d.Remote(ctx, r)
}

func (b *box) value(r Request) string {
	b.t.Helper()
	o, err := b.remote(b.t.Context(), r)
	if err != nil || o.Error != nil {
		b.t.Fatalf("%s: %v, %+v", r.Callable, err, o.Error)
	}
	return string(o.Value)
}

func (b *box) events(q events.Query) []events.Event {
	b.t.Helper()
	q.Sandbox = "box"
	var all []events.Event
	if err := b.journal.Read(b.t.Context(), q, func(evs []events.Event, _ string) error { all = append(all, evs...); return nil }); err != nil {
		b.t.Fatal(err)
	}
	return all
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
