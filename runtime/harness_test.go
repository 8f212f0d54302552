package runtime_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime"
	"github.com/agentixd/agentixd/runtime/keeper"
	"github.com/agentixd/agentixd/runtime/siotest"
	"github.com/agentixd/agentixd/runtime/wire"
)

func TestMain(m *testing.M) {
	keeper.Run()
	goleak.VerifyTestMain(m)
}

// server is a real runtime with a real worker.
type server struct {
	t      testing.TB
	socket string
	stop   func() error
}

// start runs a runtime whose worker imports the given modules.
func start(t testing.TB, modules map[string]string, change func(*runtime.Config)) *server {
	t.Helper()
	dir := t.TempDir()
	project := filepath.Join(dir, "project")
	if err := os.Mkdir(project, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range modules {
		if err := os.WriteFile(filepath.Join(project, name+".py"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := runtime.Config{
		Keeper: true,
		Socket: filepath.Join(dir, "rpc.sock"), Project: project,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&cfg)
	}
	r, err := runtime.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }() // ends with stop
	var once sync.Once
	var stopErr error
	s := &server{t: t, socket: cfg.Socket, stop: func() error {
		once.Do(func() {
			cancel(context.Canceled)
			stopErr = <-ended
		})
		return stopErr
	}}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("the runtime ended with %v", err)
		}
	})
	return s
}

// http is a client for the runtime's HTTP side.
func (s *server) http() *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// daemon is a session of our daemon's kind, and what it was sent, in order.
type daemon struct {
	t      testing.TB
	client *siotest.Client
	noAck  bool

	mu       sync.Mutex
	sid      string
	ready    []wire.Ready
	cursor   uint64
	records  []wire.Record
	gaps     []uint64 // how many each gap dropped
	results  map[string]wire.Result
	failures map[string]wire.Error
	places   map[string]int // how many records had come when the outcome came
	outcomes map[string]int // how often each call ended
	stopped  map[string]int // how many outcomes had come for it when a call was told as stopped
	holes    int
}

// connect opens a daemon session and resumes its stream after the last one's cursor.
func (s *server) connect(last *daemon, change func(*daemon, *wire.Auth)) *daemon {
	s.t.Helper()
	d := &daemon{
		t: s.t, results: map[string]wire.Result{}, failures: map[string]wire.Error{},
		places: map[string]int{}, outcomes: map[string]int{}, stopped: map[string]int{},
	}
	if last != nil {
		last.mu.Lock()
		d.sid, d.cursor, d.records = last.sid, last.cursor, append(d.records, last.records...)
		last.mu.Unlock()
	}
	auth := wire.Auth{Role: wire.RoleDaemon, Epoch: 1}
	if change != nil {
		change(d, &auth)
	}
	d.client = siotest.Dial(s.t, s.socket, auth, d.got, wire.NamespaceRPC, wire.NamespaceLog)
	await.True(s.t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.ready) >= 2
	}, "ready on both namespaces")
	d.client.Emit(wire.NamespaceLog, wire.EventStreamResume, wire.StreamResume{Sid: d.sid, SinceSeq: d.cursor})
	return d
}

func (d *daemon) got(c *siotest.Client, e siotest.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e.Name {
	case wire.EventReady:
		var r wire.Ready
		d.decode(e, &r)
		d.ready = append(d.ready, r)
	case wire.EventRecords:
		var b wire.Batch
		d.decode(e, &b)
		d.batch(&b)
		if !d.noAck {
			c.Emit(wire.NamespaceLog, wire.EventStreamAck, wire.StreamAck{Sid: b.Sid, Seq: d.cursor})
		}
	case wire.EventCallStopped:
		var r wire.CallRef
		d.decode(e, &r)
		d.stopped[r.CallID] = d.outcomes[r.CallID]
	case wire.EventCallResult:
		var r wire.Result
		d.decode(e, &r)
		d.results[r.CallID] = r
		d.ended(c, r.CallID)
	case wire.EventCallError:
		var r wire.CallError
		d.decode(e, &r)
		d.failures[r.CallID] = *r.Error
		d.ended(c, r.CallID)
	}
}

func (d *daemon) ended(c *siotest.Client, id string) {
	d.places[id] = len(d.records)
	d.outcomes[id]++
	if !d.noAck {
		c.Emit(wire.NamespaceRPC, wire.EventAck, wire.CallRef{CallID: id})
	}
}

func (d *daemon) decode(e siotest.Event, v any) {
	if err := wire.Unmarshal(e.Payload, v); err != nil {
		d.t.Errorf("%s %s: %v", e.Namespace, e.Name, err)
	}
}

// batch keeps records and counts what comes twice or leaves a hole.
func (d *daemon) batch(b *wire.Batch) {
	if d.sid != b.Sid {
		d.sid, d.cursor = b.Sid, 0
	}
	for i, r := range b.Records {
		seq := b.Seq + uint64(i)
		switch {
		case r.Kind == wire.RecordGap:
			d.gaps = append(d.gaps, r.Dropped)
			if seq != d.cursor+r.Dropped {
				d.holes++
			}
		case seq != d.cursor+1:
			d.holes++
		}
		d.cursor = seq
		d.records = append(d.records, r)
	}
}

// call sends a call with JSON arguments.
func (d *daemon) call(id, callable, arguments string) {
	d.t.Helper()
	d.send(wire.Call{CallID: id, Callable: callable, Arguments: []byte(arguments), Encoding: wire.EncodingJSON})
}

func (d *daemon) send(c wire.Call) {
	d.t.Helper()
	d.client.Emit(wire.NamespaceRPC, wire.EventCall, &c)
}

// outcome waits for the end of a call.
func (d *daemon) outcome(id string) (*wire.Result, *wire.Error) {
	d.t.Helper()
	var result *wire.Result
	var failure *wire.Error
	await.True(d.t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if r, ok := d.results[id]; ok {
			result = &r
		}
		if e, ok := d.failures[id]; ok {
			failure = &e
		}
		return result != nil || failure != nil
	}, "the outcome of call "+id)
	return result, failure
}

// value waits for the result of a call, which must be one.
func (d *daemon) value(id string) string {
	d.t.Helper()
	result, failure := d.outcome(id)
	if failure != nil {
		d.t.Fatalf("call %s failed: %+v", id, *failure)
	}
	return string(result.Value)
}

// run calls and waits for the value.
func (d *daemon) run(id, callable, arguments string) string {
	d.t.Helper()
	d.call(id, callable, arguments)
	return d.value(id)
}

// output is all that a stream printed, of the first n records.
func (d *daemon) output(stream string, n int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, r := range d.records[:min(n, len(d.records))] {
		if r.Kind == wire.RecordOutput && r.Stream == stream {
			b.Write(r.Bytes)
		}
	}
	return b.String()
}

// outputOf is what a call printed, of the first n records.
func (d *daemon) outputOf(id string, n int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, r := range d.records[:min(n, len(d.records))] {
		if r.Kind == wire.RecordOutput && r.CallID == id {
			b.Write(r.Bytes)
		}
	}
	return b.String()
}

// place is how many records had come when the call ended.
func (d *daemon) place(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.places[id]
}

// hasStopped reports whether a call was told as stopped, after how many outcomes of it.
func (d *daemon) hasStopped(id string) (outcomes int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	outcomes, ok = d.stopped[id]
	return outcomes, ok
}

// lastReady is what the runtime last said on joining a namespace, or after a change.
func (d *daemon) lastReady() (rpc wire.Ready) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.ready {
		if r.Sid == "" {
			rpc = r
		}
	}
	return rpc
}

func (d *daemon) check() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holes > 0 {
		d.t.Errorf("%d records came twice or out of order", d.holes)
	}
	for id, n := range d.outcomes {
		if n != 1 {
			d.t.Errorf("call %s ended %d times", id, n)
		}
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func itoa(n uintptr) string { return strconv.Itoa(int(n)) }
