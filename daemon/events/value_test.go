package events

import (
	"bytes"
	"math"
	"testing"

	"github.com/agentixd/agentixd/runtime/wire"
)

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := wire.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSplitValueFindsTheEndOfEveryForm(t *testing.T) {
	long := bytes.Repeat([]byte{'x'}, 70000)
	values := []any{
		nil, true, 1, -1, 200, -100, 40000, -30000, 3000000000, -2000000000, uint64(math.MaxUint64), int64(math.MinInt64),
		1.5, float32(2.5), "", "abc", string(long[:40]), string(long[:300]), string(long),
		long[:3], long[:300], long, []any{}, []any{1, []any{2, "x"}}, make([]any, 20), make([]any, 70000),
		map[string]any{}, map[string]any{"a": map[string]any{"b": []any{nil}}},
	}
	for _, v := range values {
		doc := marshal(t, v)
		value, rest, ok := splitValue(append(bytes.Clone(doc), 0xc0))
		if !ok || !bytes.Equal(value, doc) || len(rest) != 1 {
			t.Errorf("%T of %d bytes: got %d bytes, %d left, %v", v, len(doc), len(value), len(rest), ok)
		}
	}
	for _, ext := range [][]byte{{0xd4, 1, 2}, {0xd8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0xc7, 2, 1, 9, 9}, {0xc8, 0, 1, 1, 9}, {0xc9, 0, 0, 0, 1, 1, 9}} {
		if value, rest, ok := splitValue(ext); !ok || len(value) != len(ext) || len(rest) != 0 {
			t.Errorf("ext %x: got %x, %v", ext, value, ok)
		}
	}
}

func TestIntegerReadsEveryForm(t *testing.T) {
	for _, n := range []int64{0, 1, 127, 128, 255, 256, 65535, 65536, 1 << 32, math.MaxInt64, -1, -32, -33, -128, -129, -32769, -2147483649, math.MinInt64} {
		if got, ok := integer(marshal(t, n)); !ok || got != n {
			t.Errorf("got %d %v, want %d", got, ok, n)
		}
	}
	if got, ok := integer(marshal(t, uint64(math.MaxUint64))); !ok || got != math.MaxInt64 {
		t.Errorf("2^64-1: got %d %v, want it clamped", got, ok)
	}
	for _, v := range []any{nil, "1", 1.5, true, []any{1}} {
		if got, ok := integer(marshal(t, v)); ok {
			t.Errorf("%v: got %d", v, got)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add(marshal(f, map[string]any{"name": "a", "levelno": 20, "extras": map[string]any{"x": []any{1, "y"}}}))
	f.Add([]byte{0x81, 0xa1, 'a', 0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xdf, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		read := 0
		ok := fields(data, func(_ string, value []byte) {
			read += len(value)
			if wire.Check(value, wire.MaxDepth) != nil {
				t.Errorf("value %x is not a document of its own", value)
			}
		})
		if well := wire.IsMap(data) && wire.Check(data, wire.MaxDepth) == nil; ok != well {
			t.Errorf("got %v, want %v", ok, well)
		}
		if read > len(data) {
			t.Errorf("values of %d bytes in %d", read, len(data))
		}
	})
}
