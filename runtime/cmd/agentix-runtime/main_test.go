package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
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

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/siotest"
	"github.com/agentixd/agentixd/runtime/wire"
)

var runtimePath string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "agentix-runtime-test-")
	if err == nil {
		runtimePath = filepath.Join(dir, "agentix-runtime")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", runtimePath, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, buildErr := build.CombinedOutput(); buildErr != nil {
			err = fmt.Errorf("%w: %s", buildErr, out)
		}
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil && code == 0 {
			code = 1
		}
		os.Exit(code)
	}))
}

const module = `
import os, subprocess, sys, time
def pid(): return os.getpid()
def ppid(): return os.getppid()
def stdin_of(pid): return os.readlink(f"/proc/{pid}/fd/0")
def orphans(n):
    for i in range(n):
        subprocess.run(["sh", "-c", "(sleep 0.05; exit 3) & exit 0"], check=True)
    return subprocess.run(["sh", "-c", "exit 41"]).returncode
def daemonize():
    return subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True).stdout.strip()
def size(b): return len(b)
def make(n): return b"x" * n
def flood(n, size):
    for i in range(n):
        sys.stdout.write("x" * size + "\n")
    return n
`

// process is one running binary.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	socket string
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func startBinary(t *testing.T, stdin string, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.py"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, socket: filepath.Join(dir, "rpc.sock"), log: &lockedBuffer{}}
	p.cmd = exec.Command(runtimePath, append([]string{"--socket", p.socket, "--project", dir}, args...)...)
	p.cmd.Env = append(os.Environ(), "TMPDIR="+dir) // where one that is killed leaves its files
	p.cmd.Stdin, p.cmd.Stderr = strings.NewReader(stdin), p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended in the test
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	await.True(t, func() bool {
		conn, err := net.Dial("unix", p.socket)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}, "the runtime to listen")
	return p
}

// dial opens a daemon session and starts its stream.
func (p *process) dial(auth wire.Auth, handle func(*siotest.Client, siotest.Event)) *siotest.Client {
	auth.Role = wire.RoleDaemon
	c := siotest.Dial(p.t, p.socket, auth, handle, wire.NamespaceRPC, wire.NamespaceLog)
	await.True(p.t, func() bool {
		ready := 0
		for _, e := range c.Events() {
			if e.Name == wire.EventReady {
				ready++
			}
		}
		return ready >= 2
	}, "ready on both namespaces")
	c.Emit(wire.NamespaceLog, wire.EventStreamResume, wire.StreamResume{})
	return c
}

var calls int

func call[T any](t *testing.T, c *siotest.Client, fn, args string) T {
	t.Helper()
	calls++
	id := fmt.Sprintf("c%d", calls)
	c.Emit(wire.NamespaceRPC, wire.EventCall, wire.Call{CallID: id, Callable: "m::" + fn, Arguments: []byte(args), Encoding: wire.EncodingJSON})
	var v T
	await.True(t, func() bool {
		for _, e := range c.Events() {
			var r struct {
				CallID string      `msgpack:"call_id"`
				Value  []byte      `msgpack:"value"`
				Error  *wire.Error `msgpack:"error"`
			}
			if e.Namespace != wire.NamespaceRPC || wire.Unmarshal(e.Payload, &r) != nil || r.CallID != id {
				continue
			}
			if r.Error != nil {
				t.Fatalf("%s: %+v", fn, r.Error)
			}
			return json.Unmarshal(r.Value, &v) == nil
		}
		return false
	}, "the result of "+fn)
	return v
}

func (p *process) status(field string) int {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	p.t.Fatalf("no %s", field)
	return 0
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestVersion(t *testing.T) {
	out, err := exec.Command(runtimePath, "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "agentix-runtime 0.") {
		t.Errorf("%q %v", out, err)
	}
}

func TestTokenOverStdin(t *testing.T) {
	p := startBinary(t, `{"token": "s3cret"}`+"\nrest", "--token-stdin")
	c := p.dial(wire.Auth{Token: "s3cret"}, nil)
	if got := call[string](t, c, "stdin_of", fmt.Sprintf(`[[%d],{}]`, p.cmd.Process.Pid)); got != "/dev/null" {
		t.Errorf("stdin of the runtime is %s", got)
	}
	for _, name := range []string{"cmdline", "environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
		if err != nil || strings.Contains(string(b), "s3cret") {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	for _, stdin := range []string{"", "no json", `{"token": ""}`} {
		cmd := exec.Command(runtimePath, "--socket", p.socket+"2", "--token-stdin")
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "read the token") {
			t.Errorf("stdin %q: %q %v", stdin, out, err)
		}
	}
}

func TestTermStopsInOrder(t *testing.T) {
	p := startBinary(t, "")
	c := p.dial(wire.Auth{}, nil)
	worker := call[int](t, c, "pid", `[[],{}]`)
	orphan, err := strconv.Atoi(call[string](t, c, "daemonize", `[[],{}]`))
	if err != nil || !alive(orphan) {
		t.Fatalf("orphan %d: %v", orphan, err)
	}
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	t.Logf("stopping took %s", time.Since(began))
	if alive(worker) || alive(orphan) {
		t.Errorf("worker there: %v, orphan there: %v", alive(worker), alive(orphan))
	}
	entries, err := os.ReadDir(filepath.Dir(p.socket))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "m.py" && e.Name() != "__pycache__" {
			t.Errorf("%s was left", e.Name())
		}
	}
}

func TestWorkerGoesWithAKilledRuntime(t *testing.T) {
	p := startBinary(t, "")
	c := p.dial(wire.Auth{}, nil)
	worker := call[int](t, c, "pid", `[[],{}]`)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", worker))
		return err != nil || strings.Contains(string(b), ") Z ")
	}, "the worker to go")
}

func TestOrphansAreReapedAndExitCodesStayRight(t *testing.T) {
	p := startBinary(t, "")
	c := p.dial(wire.Auth{}, nil)
	worker := call[int](t, c, "pid", `[[],{}]`)
	if got := call[int](t, c, "orphans", `[[500],{}]`); got != 41 {
		t.Errorf("the exit code of a child of the worker is %d, want 41", got)
	}
	await.True(t, func() bool {
		out, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(p.cmd.Process.Pid)).Output()
		return err == nil && strings.TrimSpace(string(out)) == strconv.Itoa(worker)
	}, "500 orphans to be reaped")
	if again := call[int](t, c, "pid", `[[],{}]`); again != worker {
		t.Errorf("the worker is %d now, was %d", again, worker)
	}
}

func TestMemoryIsBoundedUnderAFlood(t *testing.T) {
	p := startBinary(t, "")
	var got int // of the reader's goroutine, read once the result is there
	c := p.dial(wire.Auth{}, func(c *siotest.Client, e siotest.Event) {
		var b wire.Batch
		if e.Name != wire.EventRecords || wire.Unmarshal(e.Payload, &b) != nil {
			return
		}
		for _, r := range b.Records {
			got += len(r.Bytes)
		}
		c.Emit(wire.NamespaceLog, wire.EventStreamAck, wire.StreamAck{Sid: b.Sid, Seq: b.Seq + uint64(len(b.Records)) - 1})
	})
	const n, size = 20_000, 10_000 // 200 MB
	if v := call[int](t, c, "flood", fmt.Sprintf(`[[%d,%d],{}]`, n, size)); v != n {
		t.Errorf("got %d", v)
	}
	c.Close()
	if got != n*(size+1) {
		t.Errorf("got %d bytes of %d", got, n*(size+1))
	}
	peak := p.status("VmHWM") / 1024
	t.Logf("peak of the runtime: %d MiB", peak)
	if peak > 256 {
		t.Errorf("the runtime held %d MiB", peak)
	}
}

// TestMemoryOfLargePayloads sends 64 MiB to a function and gets 64 MiB from another.
func TestMemoryOfLargePayloads(t *testing.T) {
	p := startBinary(t, "")
	c := p.dial(wire.Auth{}, nil)
	call[int](t, c, "pid", `[[],{}]`)
	const n = 64 << 20
	arguments := binary.LittleEndian.AppendUint32([]byte("\x80\x04B"), n)
	arguments = append(append(arguments, make([]byte, n)...), "\x85}\x86."...)
	c.Emit(wire.NamespaceRPC, wire.EventCall, wire.Call{CallID: "up", Callable: "m::size", Arguments: arguments})
	c.Emit(wire.NamespaceRPC, wire.EventCall, wire.Call{
		CallID: "down", Callable: "m::make", Arguments: fmt.Appendf(nil, `[[%d],{}]`, n),
		Encoding: wire.EncodingJSON, ResultEncoding: wire.EncodingPickle,
	})
	results := func() (n, bytes int) {
		for _, e := range c.Events() {
			if e.Name == wire.EventCallResult {
				n, bytes = n+1, bytes+len(e.Payload)
			}
		}
		return n, bytes
	}
	await.True(t, func() bool { n, _ := results(); return n == 3 }, "both results")
	if _, bytes := results(); bytes < n {
		t.Errorf("the results have %d bytes", bytes)
	}
	for _, id := range []string{"up", "down"} {
		c.Emit(wire.NamespaceRPC, wire.EventAck, wire.CallRef{CallID: id})
	}
	peak := p.status("VmHWM") / 1024
	if peak > 6*64 {
		t.Errorf("the runtime held %d MiB for 64 MiB", peak)
	}
	await.True(t, func() bool { return p.status("VmRSS")/1024 < 48 }, "the memory to be given back")
	t.Logf("peak of the runtime: %d MiB", peak)
}

func TestStartTime(t *testing.T) {
	var accepting, first []time.Duration
	for range 5 {
		began := time.Now()
		p := startBinary(t, "")
		accepting = append(accepting, time.Since(began))
		c := p.dial(wire.Auth{}, nil)
		call[int](t, c, "pid", `[[],{}]`)
		first = append(first, time.Since(began))
	}
	t.Logf("exec → accepting %v, → first result %v", accepting, first)
	if least := min(first[0], first[1], first[2], first[3], first[4]); least > 5*time.Second {
		t.Errorf("the first result took %s", least)
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(runtimePath)
	cmd.Env = append(os.Environ(), "AGENTIX_BIND_HOST=127.0.0.1", "AGENTIX_BIND_PORT="+port, "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	await.True(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}, "the port")
}
