package wire

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzCheck(f *testing.F) {
	for _, g := range readGolden(f) {
		f.Add(unhex(f, g.Hex))
	}
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x82, 0xa1, 'a', 0x90, 0xc4, 1, 'b', 0x81, 0xa0, 0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		err := Check(b, MaxDepth)
		text, jsonErr := ToJSON(b)
		if err == nil && jsonErr != nil {
			t.Fatalf("Check accepts, ToJSON says %v", jsonErr)
		}
		if jsonErr == nil && !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		for _, v := range []any{new(Call), new(Result), new(CallError), new(Resume), new(Batch), new(Envelope)} {
			if uerr := Unmarshal(b, v); uerr == nil && jsonErr != nil {
				t.Fatalf("%T decoded what ToJSON refuses: %v", v, jsonErr)
			}
		}
	})
}

func FuzzFrameReader(f *testing.F) {
	for _, g := range readGolden(f) {
		f.Add(unhex(f, g.Hex))
	}
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 0x80})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewFrameReader(bytes.NewReader(b))
		total := 0
		for {
			body, err := r.Next()
			if err != nil {
				return
			}
			if total += len(body); total > len(b) {
				t.Fatalf("%d bytes out of %d", total, len(b))
			}
			var out bytes.Buffer
			if err := NewFrameWriter(&out).Write(body); err != nil || out.Len() != len(body)+4 {
				t.Fatalf("wrote %d bytes, %v", out.Len(), err)
			}
		}
	})
}
