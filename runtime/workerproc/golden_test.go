package workerproc

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/agentixd/agentixd/runtime/wire"
	"github.com/agentixd/agentixd/runtime/wire/wiretest"
)

// What a neighbour's worker says, as the golden bytes have it.
func TestS21_GoldenWorkerFrames(t *testing.T) {
	seen := 0
	for _, g := range wiretest.Golden(t, "frame") {
		body, err := wire.NewFrameReader(bytes.NewReader(g.Bytes(t))).Next()
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		f, err := parseFrame(body)
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
		want := g.Value
		if want == nil { // a frame of nothing but its type
			want = map[string]any{"type": g.Name}
		}
		for key, got := range map[string]string{"type": f.Type, "call_id": f.CallID, "namespace": f.Namespace, "event": f.Event} {
			if text, _ := want[key].(string); got != text {
				t.Errorf("%s: %s is %q, want %q", g.Name, key, got, text)
			}
		}
		if value, ok := want["value"].(map[string]any); ok && hex.EncodeToString(f.Value) != value["$bytes"] {
			t.Errorf("%s: value is %x, want %v", g.Name, f.Value, value["$bytes"])
		}
		if wanted, ok := want["error"].(map[string]any); ok {
			var e wire.Error
			if err := wire.Unmarshal(f.Error, &e); err != nil || e.Type != wanted["type"] || e.Message != wanted["message"] {
				t.Errorf("%s: error is %+v, %v; want %v", g.Name, e, err, wanted)
			}
		}
		if want["data"] != nil && len(f.Data) == 0 {
			t.Errorf("%s: no data", g.Name)
		}
		seen++
	}
	if seen < 11 {
		t.Errorf("only %d frames", seen)
	}
}
