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

// FuzzWorkerFrame reads frames of any bytes as those of a worker: what is not a frame is
// refused, and what is taken holds parts of it only.
func FuzzWorkerFrame(f *testing.F) {
	for _, g := range wiretest.Golden(f, "frame") {
		f.Add(g.Bytes(f)[4:])
	}
	f.Add([]byte("\x82\xa4type\xa6result\xa5value\xc6\xff\xff\xff\xff"))
	f.Add([]byte("\x83\xa4type\xa6result\xa7call_id\x01\xa5value\xa1x"))
	f.Fuzz(func(t *testing.T, body []byte) {
		malformed := wire.Check(body, wire.MaxDepth) // first: a payload is made in the place of the frame
		frame, err := parseFrame(body)
		if err != nil {
			return
		}
		if malformed != nil && frame.Payload != nil {
			t.Fatalf("a result is passed on although %v", malformed)
		}
		size := len(frame.Value) + len(frame.Error) + len(frame.Record) + len(frame.Data) + len(frame.Capabilities) + len(frame.OutputMarker)
		if size > len(body) {
			t.Fatalf("%d bytes out of %d", size, len(body))
		}
		if frame.Payload != nil {
			var r wire.Result
			if err := wire.Unmarshal(frame.Payload, &r); err != nil || r.CallID != frame.CallID || !bytes.Equal(r.Value, frame.Value) || r.Encoding != frame.Encoding {
				t.Fatalf("the payload %x says %+v, %v; the frame %+v", frame.Payload, r, err, frame)
			}
		}
	})
}
