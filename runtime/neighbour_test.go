package runtime_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime"
	"github.com/agentixd/agentixd/runtime/siotest"
	"github.com/agentixd/agentixd/runtime/wire"
)

// host is a neighbour's host: it joins with {} and acks nothing unless told.
func (s *server) host(namespaces ...string) *siotest.Client {
	s.t.Helper()
	return siotest.Dial(s.t, s.socket, map[string]any{}, nil, namespaces...)
}

// named returns the events of one name.
func named(c *siotest.Client, namespace, name string) []siotest.Event {
	var some []siotest.Event
	for _, e := range c.Events() {
		if e.Namespace == namespace && e.Name == name {
			some = append(some, e)
		}
	}
	return some
}

func waitFor(t *testing.T, c *siotest.Client, namespace, name string, n int) []siotest.Event {
	t.Helper()
	await.True(t, func() bool { return len(named(c, namespace, name)) >= n }, fmt.Sprintf("%d %s on %s", n, name, namespace))
	return named(c, namespace, name)
}

// failureOf reads a call:error.
func failureOf(t *testing.T, e siotest.Event) wire.CallError {
	t.Helper()
	var ce wire.CallError
	if err := wire.Unmarshal(e.Payload, &ce); err != nil || ce.Error == nil {
		t.Fatalf("%q: %v", e.Payload, err)
	}
	return ce
}

func TestNeighboursGetEveryCompletionUntilAcked(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	a, b := s.host(wire.NamespaceRPC), s.host(wire.NamespaceRPC)
	a.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("c1", "app::run", `[["x"],{}]`))
	for _, c := range []*siotest.Client{a, b} {
		e := waitFor(t, c, wire.NamespaceRPC, wire.EventCallResult, 1)[0]
		var r wire.Result
		if err := wire.Unmarshal(e.Payload, &r); err != nil || r.CallID != "c1" || string(r.Value) != `{"output":"X"}` {
			t.Errorf("%+v %v", r, err)
		}
	}
	b.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"c1"}})
	waitFor(t, b, wire.NamespaceRPC, wire.EventCallResult, 2)
	if n := len(named(a, wire.NamespaceRPC, wire.EventCallResult)); n != 1 {
		t.Errorf("the other host got the replay too: %d", n)
	}
	// Hosts ack all they see; only the ack of the one that asked last frees the outcome.
	a.Emit(wire.NamespaceRPC, wire.EventAck, wire.CallRef{CallID: "c1"})
	a.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"c1"}})
	waitFor(t, a, wire.NamespaceRPC, wire.EventCallResult, 2)
	a.Emit(wire.NamespaceRPC, wire.EventAck, wire.CallRef{CallID: "c1"})
	a.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"c1"}})
	if e := failureOf(t, waitFor(t, a, wire.NamespaceRPC, wire.EventCallError, 1)[0]); e.Error.Type != wire.ErrResultUnavailable {
		t.Errorf("%+v", e.Error)
	}
}

func TestNeighbourResumeOfUnknownIDWaitsForItsCall(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	c := s.host(wire.NamespaceRPC)
	c.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"comes", "never"}})
	began := time.Now()
	c.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("comes", "app::run", `[["x"],{}]`))
	e := failureOf(t, waitFor(t, c, wire.NamespaceRPC, wire.EventCallError, 1)[0])
	if e.CallID != "never" || e.Error.Type != wire.ErrResultUnavailable || time.Since(began) < 1900*time.Millisecond {
		t.Errorf("%+v after %s", e, time.Since(began))
	}
	waitFor(t, c, wire.NamespaceRPC, wire.EventCallResult, 1)
	c.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("never", "app::run", `[["x"],{}]`))
	if e := failureOf(t, waitFor(t, c, wire.NamespaceRPC, wire.EventCallError, 2)[1]); e.Error.Type != wire.ErrFenced {
		t.Errorf("a call that was given up ran: %+v", e)
	}
}

func TestNeighbourCancel(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	a := s.host(wire.NamespaceRPC)
	a.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("c1", "app::forever", `[["/dev/null"],{}]`))
	a.Emit(wire.NamespaceRPC, wire.EventCancel, wire.CallRef{CallID: "c1"})
	e := failureOf(t, waitFor(t, a, wire.NamespaceRPC, wire.EventCallError, 1)[0])
	if e.CallID != "c1" || e.Error.Type != wire.ErrCancelled || !e.Error.Cancelled || e.Error.Message != "remote call cancelled" {
		t.Errorf("%+v", e)
	}
}

func TestBadCallsGetTheirError(t *testing.T) {
	s := start(t, nil, nil)
	c := s.host(wire.NamespaceRPC)
	c.EmitRaw(wire.NamespaceRPC, wire.EventCall, []byte("\x80"))
	c.EmitRaw(wire.NamespaceRPC, wire.EventCall, []byte("\xc1 no msgpack"))
	c.Emit(wire.NamespaceRPC, wire.EventCall, map[string]any{"call_id": "c1"})
	got := waitFor(t, c, wire.NamespaceRPC, wire.EventCallError, 3)
	want := "\x82\xa7call_id\xa0\xa5error\x82\xa7message\xaf" + "missing call_id\xa4type\xaaBadRequest"
	for _, e := range got[:2] {
		if string(e.Payload) != want {
			t.Errorf("got %q, want %q", e.Payload, want)
		}
	}
	if e := failureOf(t, got[2]); e.CallID != "c1" || e.Error.Type != "KeyError" {
		t.Errorf("%+v", e)
	}
}

// TestHostileArguments sends what would make a careless server allocate, crash or hang.
func TestHostileArguments(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	c := s.host(wire.NamespaceRPC, "/")
	for _, text := range []string{
		`42/rpc,["call",300000000]`, `42/rpc,["ack",300000000]`, `42/rpc,["resume",[1e300]]`, `42/rpc,["cancel",{"a":1}]`,
		`42/rpc,["call","text"]`, `42/rpc,["call"]`, `42/rpc,["call",null]`,
		`42/rpc,["call",{"_placeholder":true,"num":7}]`, `42/rpc,["nothing"]`, `42["x",1,2,3]`,
	} {
		c.Text(text)
	}
	c.Emit(wire.NamespaceRPC, wire.EventResume, map[string]any{"call_ids": "not a list"})
	c.EmitRaw(wire.NamespaceRPC, wire.EventResume, []byte("\x81\xa8call_ids\xdd\xff\xff\xff\xff"))
	c.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("c1", "app::run", `[["x"],{}]`))
	waitFor(t, c, wire.NamespaceRPC, wire.EventCallResult, 1)
	if err := c.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
}

// TestMalformedPacketsCostTheirSenderAlone sends what is no Socket.IO.
func TestMalformedPacketsCostTheirSenderAlone(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	good := s.host(wire.NamespaceRPC)
	for _, text := range []string{
		`42/rpc,{}`, `42/rpc,[7]`, `42/rpc,["call",1e309]`, `49/rpc`, `45999999999999999999-/rpc,["call"]`, `4511-/rpc,["call"]`,
		`42/nothere,["call"]`, `42/rpc,` + strings.Repeat("[", 20000), "x", "451-/rpc,[\"call\",{\"_placeholder\":true,\"num\":9}]",
	} {
		bad := s.host(wire.NamespaceRPC)
		bad.Text(text)
		bad.EmitRaw(wire.NamespaceRPC, wire.EventCancel, nil)
	}
	good.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("c1", "app::run", `[["x"],{}]`))
	waitFor(t, good, wire.NamespaceRPC, wire.EventCallResult, 1)
	if err := good.Err(); err != nil {
		t.Errorf("another connection ended: %v", err)
	}
}

func TestStreamsForNeighbours(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	c := s.host(wire.NamespaceRPC, wire.NamespaceLog, wire.NamespaceTrace)
	c.Emit(wire.NamespaceLog, wire.EventStreamResume, wire.StreamResume{})
	c.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("c1", "app::everything", `[[2],{}]`))
	waitFor(t, c, wire.NamespaceRPC, wire.EventCallResult, 1)
	var text []string
	for _, e := range c.Events() { // all records came before the result
		if e.Name == wire.EventCallResult {
			break
		}
		var envelope struct {
			Sid  string         `msgpack:"_sid"`
			Seq  int            `msgpack:"_seq"`
			Data map[string]any `msgpack:"data"`
		}
		if err := wire.Unmarshal(e.Payload, &envelope); err != nil {
			t.Fatal(err)
		}
		if text = append(text, fmt.Sprint(envelope.Data["message"])); envelope.Seq != len(text) || len(envelope.Sid) != 8 {
			t.Errorf("record %d has number %d of %q", len(text), envelope.Seq, envelope.Sid)
		}
		if name := envelope.Data["name"]; strings.HasPrefix(fmt.Sprint(name), "agentix.sandbox.") {
			extras, _ := envelope.Data["extras"].(map[string]any)
			if id, _ := extras["worker_id"].(string); len(id) != 8 || len(envelope.Data) != 13 {
				t.Errorf("line record %v", envelope.Data)
			}
		}
	}
	for _, want := range []string{"printed 0", "child 0", "logged 0", "error 0", "printed 1", "child 1", "logged 1", "error 1"} {
		if n := strings.Count(strings.Join(text, "\n")+"\n", want+"\n"); n != 1 {
			t.Errorf("%q came %d times", want, n)
		}
	}
	again := s.host(wire.NamespaceLog)
	again.Emit(wire.NamespaceLog, wire.EventStreamResume, wire.StreamResume{SinceSeq: 3})
	waitFor(t, again, wire.NamespaceLog, wire.EventRecord, len(text)-3)
	c.Emit(wire.NamespaceLog, wire.EventStreamAck, wire.StreamAck{Seq: uint64(len(text))})
	again.Emit(wire.NamespaceLog, wire.EventStreamAck, wire.StreamAck{Seq: uint64(len(text))})
	again.Emit(wire.NamespaceLog, wire.EventStreamAck, wire.StreamAck{Seq: 9999}) // of an older stream
}

func TestUnfinishedLineOfADeadWorkerIsSent(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	c := s.host(wire.NamespaceRPC, wire.NamespaceLog)
	c.Emit(wire.NamespaceLog, wire.EventStreamResume, wire.StreamResume{})
	c.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("c1", "os::system", `[["printf 'no end'; kill -9 $PPID"],{}]`))
	waitFor(t, c, wire.NamespaceRPC, wire.EventCallError, 1)
	if n := len(named(c, wire.NamespaceLog, wire.EventRecord)); n == 0 {
		t.Error("the line is lost")
	}
}

func TestAnyNamespaceIsJoinedAtOnceWithoutAWorker(t *testing.T) {
	s := start(t, nil, func(c *runtime.Config) { c.Python = "/nonexistent/python3" })
	began := time.Now()
	s.host(wire.NamespaceRPC, wire.NamespaceTrace, wire.NamespaceLog, "/abridge", "/")
	if took := time.Since(began); took > time.Second {
		t.Errorf("joining took %s", took)
	}
}

const plugin = `
import agentix
class Echo(agentix.Namespace):
    namespace = "/echo"
    async def on_say(self, data):
        self.emit("said", {"got": data})
`

func TestForeignWorker(t *testing.T) {
	s := start(t, nil, func(c *runtime.Config) {
		c.Project, c.WorkerCommand = "", []string{"python3", "testdata/foreign_worker.py"}
	})
	d := s.connect(nil, nil)
	call := func(id, name string, args []byte) {
		d.send(wire.Call{CallID: id, Callable: "t::" + name, Arguments: args})
	}
	call("c1", "echo", pickled(7))
	if got := d.value("c1"); !strings.Contains(got, "K\x07") {
		t.Errorf("got %q", got)
	}
	d.call("c2", "t::echo", `[[1],{}]`)
	if _, e := d.outcome("c2"); e == nil || e.Type != wire.ErrBadRequest || !strings.Contains(e.Message, "json") {
		t.Errorf("JSON arguments: %+v", e)
	}
	call("c3", "speak", pickled())
	d.value("c3")
	kinds := map[string]int{}
	d.mu.Lock()
	for _, r := range d.records[:d.places["c3"]] {
		kinds[r.Kind+" "+r.Event+" "+r.Stream+string(r.Bytes)]++
	}
	d.mu.Unlock()
	if kinds["output  stdoutprinted\n"] != 1 || kinds["log  "] != 1 || kinds["span span_start "] != 1 {
		t.Errorf("records before the result: %v", kinds)
	}
	await.True(t, func() bool {
		id := fmt.Sprintf("a%d", time.Now().UnixNano())
		call(id, "acked", pickled())
		return strings.Contains(d.value(id), "K\x03")
	}, "the worker's envelopes to be acked")
	d.send(wire.Call{CallID: "c4", Callable: "t::forge", Arguments: []byte("\x80\x04\x8c\x06victim\x85}\x86.")})
	d.value("c4")
	if d.hasOutcome("victim") {
		t.Error("the worker forged a result")
	}
	d.check()
}

func TestPluginNamespace(t *testing.T) {
	s := start(t, map[string]string{"plug": plugin + "\ndef register():\n    agentix.register_namespace(Echo())\n"}, nil)
	c := s.host(wire.NamespaceRPC, "/echo")
	d := s.connect(nil, nil)
	c.Emit("/echo", "say", map[string]any{"early": true}) // nobody there yet: dropped
	d.run("c1", "plug::register", `[[],{}]`)
	await.True(t, func() bool {
		c.Emit("/echo", "say", map[string]any{"n": 1})
		return len(named(c, "/echo", "said")) > 0
	}, "the answer of the plugin")
	var said struct {
		Got map[string]int `msgpack:"got"`
	}
	if err := wire.Unmarshal(named(c, "/echo", "said")[0].Payload, &said); err != nil || said.Got["n"] != 1 {
		t.Errorf("%+v %v", said, err)
	}
	await.True(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, r := range d.records {
			if r.Kind == wire.RecordPlugin && r.Namespace == "/echo" && r.Event == "said" && len(r.Data) > 0 {
				return true
			}
		}
		return false
	}, "the plugin's event in the daemon's stream")
}
