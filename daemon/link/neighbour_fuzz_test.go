package link

import (
	"sync/atomic"
	"testing"

	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/runtime/wire"
)

// FuzzNeighbour: any three events of a neighbour: what is handed over is well-formed
// and ours.
func FuzzNeighbour(f *testing.F) {
	envelope := func(seq int, data any) []byte { return marshal(map[string]any{"_sid": "s", "_seq": seq, "data": data}) }
	line := map[string]any{"name": "agentix.sandbox.stdout", "message": "m", "created": 1.0, "extras": map[string]any{"agentix_stream": "stdout"}}
	f.Add(uint8(0), envelope(1, line), envelope(3, line), envelope(2, line))
	f.Add(uint8(1), envelope(1, map[string]any{"call_id": "c.tag"}), envelope(2, 1), marshal(line))
	f.Add(uint8(2), marshal(wire.Result{CallID: "c.tag", Value: []byte("x")}), marshal(wire.CallError{CallID: "c.tag"}), nest(300))
	f.Add(uint8(3), []byte("\x81\xa7call_id\xa5c.tag"), []byte{}, []byte("\xdf\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, kind uint8, a, b, c []byte) {
		h := &recorder{}
		l := New(Options{Handler: h, Foreign: &Foreign{Tag: "tag"}})
		s := &session{clock: clock.System{}, timing: defaultTiming, in: newInbox(), out: newOutbox(), ignored: new(atomic.Uint64)}
		s.nuisance.left = nuisanceBurst
		n := newNeighbour(l)
		s.neighbour = n
		l.probed = true
		if err := n.begin(s, Resume{}); err != nil {
			t.Fatal(err)
		}
		event := []inbound{
			{namespace: wire.NamespaceLog, event: wire.EventRecord}, {namespace: wire.NamespaceTrace, event: "span_end"},
			{namespace: wire.NamespaceRPC, event: wire.EventCallResult}, {namespace: wire.NamespaceRPC, event: wire.EventCallError},
		}[kind%4]
		event.kind, event.cut = packetEvent, kind&4 != 0
		for _, data := range [][]byte{a, b, c} {
			event.data = data
			if err := n.handle(s, event); err != nil {
				t.Fatalf("%q ended the connection: %v", data, err)
			}
		}
		n.end()
		for _, batch := range h.batches {
			for _, r := range batch.Records {
				if !validRecord(r) || batch.Stream != event.namespace {
					t.Fatalf("record %+v of %q", r, batch.Stream)
				}
			}
		}
		for _, r := range h.results {
			if !ValidCallID(r.CallID) {
				t.Fatalf("result of %q", r.CallID)
			}
		}
		for _, e := range h.errors {
			if !ValidCallID(e.CallID) || e.Error == nil {
				t.Fatalf("error of %q", e.CallID)
			}
		}
	})
}

// FuzzHealth: the body of GET /health of a neighbour.
func FuzzHealth(f *testing.F) {
	f.Add([]byte(neighbourHealth))
	f.Add([]byte(`{"version":"1","capabilities":["fence",1,null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHealth(b)
		if err == nil && (len(h.Version) > 64 || len(h.Capabilities) > maxHealthCapabilities) {
			t.Fatalf("%+v", h)
		}
	})
}
