package runtime_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/siotest"
	"github.com/agentixd/agentixd/runtime/wire"
)

// The five guards of the Socket.IO server, in the order of the notes.

func TestGuard1_PingTimeoutIsLongerThanItsInterval(t *testing.T) {
	s := start(t, nil, nil)
	_, b, _ := s.do(t, "GET", "/socket.io/?EIO=4&transport=polling", nil, nil)
	var open struct {
		PingInterval, PingTimeout, MaxPayload int
		Upgrades                              []string
		Sid                                   string
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(b), "0")), &open); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if open.PingInterval != 25_000 || open.PingTimeout != 60_000 || open.MaxPayload < 268_435_456 || len(open.Upgrades) != 1 || open.Sid == "" {
		t.Errorf("%+v", open)
	}
}

func TestGuard2_ReadyIsTheLastActOfJoining(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	s.connect(nil, nil).run("warm", "app::run", `[["x"],{}]`)
	for i := range 200 { // the first event after ready is never lost
		d := s.connect(nil, nil)
		d.run(fmt.Sprintf("c%d", i), "app::run", `[["x"],{}]`)
		d.client.Close()
	}
}

func TestGuard3_LargeMessagesPass(t *testing.T) {
	s := start(t, map[string]string{"app": "def size(s): return len(s)\ndef make(n): return 'x' * n\n"}, nil)
	d := s.connect(nil, nil)
	const n = 24 << 20
	if got := d.run("up", "app::size", `[["`+strings.Repeat("x", n)+`"],{}]`); got != fmt.Sprint(n) {
		t.Errorf("got %s", got)
	}
	if got := d.run("down", "app::make", fmt.Sprintf(`[[%d],{}]`, n)); len(got) != n+2 {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestR12_OversizedCallFailsAlone(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, nil)
	d.send(wire.Call{CallID: "big", Callable: "app::run", Arguments: make([]byte, 268_435_456)})
	if _, e := d.outcome("big"); e == nil || e.Type != wire.ErrFrameTooLarge || e.Limit != 268_435_456 || e.Size <= e.Limit {
		t.Errorf("got %+v", e)
	}
	if got := d.run("next", "app::run", `[["x"],{}]`); got != `{"output":"X"}` {
		t.Errorf("got %s", got)
	}
	if err := d.client.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
}

func TestGuard4_AttachmentsAreBounded(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	call, err := wire.Marshal(jsonCall("c1", "app::run", `[["x"],{}]`))
	if err != nil {
		t.Fatal(err)
	}
	for n, survives := range map[int]bool{wire.MaxAttachments: true, wire.MaxAttachments + 1: false} {
		c := s.host(wire.NamespaceRPC)
		placeholders := make([]string, n)
		for i := range placeholders {
			placeholders[i] = fmt.Sprintf(`{"_placeholder":true,"num":%d}`, i)
		}
		c.Text(fmt.Sprintf(`45%d-/rpc,["call",%s]`, n, strings.Join(placeholders, ",")))
		for range n {
			c.Binary(call)
		}
		if survives {
			waitFor(t, c, wire.NamespaceRPC, wire.EventCallResult, 1)
			continue
		}
		await.True(t, func() bool { return c.Err() != nil }, "the connection to be closed")
	}
}

func TestGuard5_HostThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	s := start(t, map[string]string{"plug": plugin + `
async def flood(n):
    echo = Echo()
    agentix.register_namespace(echo)
    for i in range(n):
        echo.emit("said", b"x" * 100000)
`}, nil)
	gate := make(chan struct{})
	defer close(gate)
	blocked := siotest.Dial(t, s.socket, map[string]any{}, func(_ *siotest.Client, e siotest.Event) {
		if e.Namespace == "/echo" {
			<-gate
		}
	}, wire.NamespaceRPC, "/echo")
	reader := s.host(wire.NamespaceRPC, "/echo")
	const n = 1000 // 100 MB
	reader.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall("c1", "plug::flood", fmt.Sprintf(`[[%d],{}]`, n)))
	await.True(t, func() bool {
		for _, e := range named(reader, wire.NamespaceRPC, wire.EventCallError) {
			t.Fatalf("%+v", failureOf(t, e).Error)
		}
		return len(named(reader, wire.NamespaceRPC, wire.EventCallResult)) > 0
	}, "the flood to end")
	if got := len(named(reader, "/echo", "said")); got != n {
		t.Errorf("the host that reads got %d of %d events before the result", got, n)
	}
	if err := blocked.Err(); err != nil {
		t.Errorf("the host that does not read was cut off too early: %v", err)
	}
}

func TestPollingPayloadsHoldAtMost16Packets(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	_, b, _ := s.do(t, "GET", "/socket.io/?EIO=4&transport=polling", nil, nil)
	var open struct{ Sid string }
	if err := json.Unmarshal(b[1:], &open); err != nil {
		t.Fatal(err)
	}
	path := "/socket.io/?EIO=4&transport=polling&sid=" + open.Sid
	s.do(t, "POST", path, []byte("40/rpc,{}"), nil)
	call := `451-/rpc,["ack",{"_placeholder":true,"num":0}]` // for the namespace to be joined
	_, joined, _ := s.do(t, "GET", path, nil, nil)
	if !strings.HasPrefix(string(joined), "40/rpc,") {
		t.Fatalf("got %q", joined)
	}
	s.do(t, "POST", path, []byte(call+"\x1ebgA=="), nil)
	reader := s.host(wire.NamespaceRPC)
	const n = 60
	for i := range n {
		reader.Emit(wire.NamespaceRPC, wire.EventCall, jsonCall(fmt.Sprintf("c%d", i), "app::run", `[["x"],{}]`))
	}
	waitFor(t, reader, wire.NamespaceRPC, wire.EventCallResult, n)
	results, full := 0, false
	for results < n {
		_, b, _ := s.do(t, "GET", path, nil, nil)
		packets := strings.Split(string(b), "\x1e")
		full = full || len(packets) == wire.MaxPollingPackets
		if len(packets) > wire.MaxPollingPackets {
			t.Fatalf("%d packets in one payload", len(packets))
		}
		results += strings.Count(string(b), "call:result")
	}
	if !full || results != n {
		t.Errorf("got %d results, want %d; a full payload: %v", results, n, full)
	}
}
