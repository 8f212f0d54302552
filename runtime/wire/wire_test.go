package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentixd/agentixd/runtime/wire/wiretest"
)

func readGolden(t testing.TB) map[string]wiretest.Entry {
	t.Helper()
	byName := map[string]wiretest.Entry{}
	for _, kind := range []string{"msgpack", "frame"} {
		for _, g := range wiretest.Golden(t, kind) {
			byName[g.Name] = g
		}
	}
	return byName
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenPayloads(t *testing.T) {
	all := readGolden(t)
	cases := map[string]any{
		`{"call_ids":["a"]}`:  Resume{CallIDs: []string{"a"}},
		`{"since_seq":0}`:     StreamResume{},
		`{"seq":1}`:           StreamAck{Seq: 1},
		"Cancelled error map": Error{Type: ErrCancelled, Message: "remote call cancelled", Cancelled: true},
	}
	for name, v := range cases {
		got, err := Marshal(v)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(all[name].Hex, hex.EncodeToString(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestGoldenFrames(t *testing.T) {
	all := readGolden(t)
	for _, name := range []string{FrameReady, FrameShutdown} {
		want := unhex(t, all[name].Hex)
		body, err := NewFrameReader(bytes.NewReader(want)).Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var m map[string]string
		if err := Unmarshal(body, &m); err != nil || m["type"] != name {
			t.Fatalf("%s: got %v, %v", name, m, err)
		}
		var out bytes.Buffer
		if err := NewFrameWriter(&out).Write(body); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: wrote %x, want %x", name, out.Bytes(), want)
		}
	}
}

func TestEveryGoldenMsgpackIsWellFormed(t *testing.T) {
	for name, g := range readGolden(t) {
		if g.Kind != "msgpack" {
			continue
		}
		if err := Check(unhex(t, g.Hex), 4); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	cases := map[string]string{
		"nothing":                 "",
		"reserved byte":           "c1",
		"trailing byte":           "c0c0",
		"integer map key":         "810101",
		"nil map key":             "81c001",
		"integer key deep":        "81a16191810101",
		"array of 2^32-1":         "ddffffffff",
		"map of 2^32-1":           "dfffffffff",
		"bin of 2^32-1":           "c6ffffffff",
		"str beyond the end":      "a561",
		"str not UTF-8":           "a2c328",
		"str with a surrogate":    "a3eda080",
		"ext beyond the end":      "c7050100",
		"half an integer":         "cd01",
		"map without its value":   "81a161",
		"five nested, four asked": "9191919191c0",
	}
	for name, in := range cases {
		if err := Check(unhex(t, in), 4); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v, want ErrMalformed", name, err)
		}
	}
}

func TestCheckAccepts(t *testing.T) {
	for _, in := range []string{"c0", "80", "90", "9180", "81c40161c0", "91919191c0", "a0", "c400", "d40100", "d6ff00000000", "cb3ff0000000000000", "82a16190a16280"} {
		if err := Check(unhex(t, in), 4); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestDepthIs200(t *testing.T) {
	deep := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 0xc0) }
	if err := Check(deep(200), MaxDepth); err != nil {
		t.Errorf("200 levels: %v", err)
	}
	if err := Check(deep(201), MaxDepth); err == nil {
		t.Error("201 levels were accepted")
	}
	if err := Check(deep(5_000_000), MaxDepth); err == nil {
		t.Error("5 million levels were accepted")
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	in := unhex(t, "ddffffffff")
	if n := testing.AllocsPerRun(100, func() { _ = Check(unhexOnce, 8) }); n > 0 {
		t.Errorf("a good document cost %v allocations", n)
	}
	if err := Check(in, 8); err == nil {
		t.Error("accepted")
	}
}

var unhexOnce = []byte{0x81, 0xa1, 'a', 0x91, 0xc0}

func TestToJSON(t *testing.T) {
	cases := []struct {
		in   any
		want string
	}{
		{nil, "null"}, {true, "true"}, {1, "1"}, {1.0, "1.0"}, {math.Copysign(0, -1), "-0.0"}, {1e22, "1e+22"}, {0.1, "0.1"},
		{uint64(math.MaxUint64), "18446744073709551615"}, {int64(math.MinInt64), "-9223372036854775808"}, {int64(9007199254740993), "9007199254740993"},
		{math.NaN(), `"NaN"`}, {math.Inf(1), `"Infinity"`}, {math.Inf(-1), `"-Infinity"`},
		{"a\"\\\n\x00é\x7f", `"a\"\\\n\u0000é\u007f"`}, {[]byte{0, 255}, `"AP8="`},
		{[]any{}, "[]"}, {map[string]any{}, "{}"},
		{map[string]any{"a": []any{1, []any{}, map[string]any{"b": nil}, "x:"}, "c": 2}, `{"a":[1,[],{"b":null},"x:"],"c":2}`},
	}
	for _, c := range cases {
		raw, err := Marshal(c.in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ToJSON(raw)
		if err != nil || string(got) != c.want {
			t.Errorf("%#v: got %s, %v; want %s", c.in, got, err, c.want)
		}
	}
	if got, err := ToJSON(unhex(t, "81c40161c7020aabcd")); err != nil || string(got) != `{"YQ==":"ext 10: q80="}` {
		t.Errorf("bin key and ext: %s, %v", got, err)
	}
	if _, err := ToJSON([]byte{0x81, 0x01, 0x01}); err == nil {
		t.Error("an integer key was accepted")
	}
}

func TestToJSONIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue(4).Draw(t, "value")
		raw, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(raw, MaxDepth); err != nil {
			t.Fatalf("our own bytes: %v", err)
		}
		text, err := ToJSON(raw)
		if err != nil || !json.Valid(text) {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

func anyValue(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Int64().AsAny(), rapid.Uint64().AsAny(), rapid.Float64().AsAny(),
		rapid.Float32().AsAny(), rapid.String().AsAny(), rapid.Bool().AsAny(), rapid.SliceOfN(rapid.Byte(), 0, 40).AsAny(),
	}
	if depth > 0 {
		leaves = append(leaves, rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return anyValue(depth - 1) }), 0, 20).AsAny(),
			rapid.MapOfN(rapid.String(), rapid.Deferred(func() *rapid.Generator[any] { return anyValue(depth - 1) }), 0, 5).AsAny())
	}
	return rapid.OneOf(leaves...)
}

func TestCallRoundTrip(t *testing.T) {
	in := Call{CallID: "c", Callable: "m::f", Arguments: []byte{1, 2}, Encoding: EncodingJSON, TimeoutMS: 7, Baggage: map[string]string{"a": "b"}}
	raw, err := Marshal(&in)
	if err != nil {
		t.Fatal(err)
	}
	var out Call
	if err := Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnmarshalRefusesGarbageWithoutPanic(t *testing.T) {
	for _, in := range []string{"", "c1", "ddffffffff", "81a763616c6c5f6964c0", "81a763616c6c5f69649101", "01", "c7020aabcd"} {
		var c Call
		err := Unmarshal(unhex(t, in), &c)
		if in != "81a763616c6c5f6964c0" && err == nil {
			t.Errorf("%q was accepted as %+v", in, c)
		}
	}
}

func TestFrameLimits(t *testing.T) {
	head := func(n uint32) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }
	if _, err := NewFrameReader(bytes.NewReader(head(268435457))).Next(); !errors.Is(err, ErrFrameLimit) {
		t.Errorf("268435457: got %v", err)
	}
	if _, err := NewFrameReader(bytes.NewReader(head(268435456))).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("268435456 without its body: got %v", err)
	}
	if err := NewFrameWriter(io.Discard).Write(make([]byte, 268435457)); !errors.Is(err, ErrFrameLimit) {
		t.Errorf("write 268435457: got %v", err)
	}
	if err := NewFrameWriter(io.Discard).Write(make([]byte, 268435456)); err != nil {
		t.Errorf("write 268435456: got %v", err)
	}
}

func TestFrameEnds(t *testing.T) {
	cases := map[string]error{"": io.EOF, "\x01": io.EOF, "\x01\x00\x00": io.EOF, "\x01\x00\x00\x00": io.ErrUnexpectedEOF, "\x02\x00\x00\x00\x80": io.ErrUnexpectedEOF}
	for in, want := range cases {
		if _, err := NewFrameReader(strings.NewReader(in)).Next(); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", in, err, want)
		}
	}
	body, err := NewFrameReader(strings.NewReader("\x00\x00\x00\x00")).Next()
	if err != nil || !bytes.Equal(body, []byte{0x80}) {
		t.Errorf("empty frame: got %x, %v", body, err)
	}
}

func TestFramesRoundTripThroughSmallReads(t *testing.T) {
	var buf bytes.Buffer
	w := NewFrameWriter(&buf)
	sizes := []int{1, 2, 65535, 65536, 65537, 3 << 20}
	for _, n := range sizes {
		if err := w.Write(bytes.Repeat([]byte{7}, n)); err != nil {
			t.Fatal(err)
		}
	}
	r := NewFrameReader(iotest.HalfReader(&buf))
	for _, n := range sizes {
		got, err := r.Next()
		if err != nil || len(got) != n {
			t.Fatalf("got %d bytes, %v; want %d", len(got), err, n)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestFields(t *testing.T) {
	got := map[string]string{}
	err := Fields(unhex(t, "83a161a26869a16293010203c4016380"), func(key string, raw []byte) { got[key] = string(raw) })
	want := map[string]string{"a": "\xa2hi", "b": "\x93\x01\x02\x03", "c": "\x80"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, in := range []string{"", "90", "81a161", "810101", "80c0"} {
		if err := Fields(unhex(t, in), func(string, []byte) {}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestScalars(t *testing.T) {
	if s, ok := Text(unhex(t, "a26869")); s != "hi" || !ok {
		t.Errorf("Text: %q %v", s, ok)
	}
	if _, ok := Text(unhex(t, "c40161")); ok {
		t.Error("a bin is a text")
	}
	for in, want := range map[string]string{"a161": "a", "c40161": "a"} {
		if b, ok := Blob(unhex(t, in)); string(b) != want || !ok {
			t.Errorf("Blob %s: %q %v", in, b, ok)
		}
	}
	for in, want := range map[string]int64{"05": 5, "ff": -1, "cf7fffffffffffffff": math.MaxInt64, "d3ffffffffffffffff": -1} {
		if n, ok := Int(unhex(t, in)); n != want || !ok {
			t.Errorf("Int %s: %d %v", in, n, ok)
		}
	}
	for _, in := range []string{"cf8000000000000000", "cb3ff0000000000000", "a0"} {
		if n, ok := Int(unhex(t, in)); ok {
			t.Errorf("Int %s: %d", in, n)
		}
	}
	for in, want := range map[string]float64{"05": 5, "cb3ff8000000000000": 1.5, "cfffffffffffffffff": math.MaxUint64} {
		if f, ok := Float(unhex(t, in)); f != want || !ok {
			t.Errorf("Float %s: %v %v", in, f, ok)
		}
	}
}

func TestWithoutType(t *testing.T) {
	for _, size := range []int{0, 255, 256, 65535, 65536} {
		body, err := Marshal(struct {
			Type  string `msgpack:"type"`
			Value []byte `msgpack:"value"`
		}{"result", make([]byte, size)})
		if err != nil {
			t.Fatal(err)
		}
		want, err := Marshal(map[string]any{"value": make([]byte, size)})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := WithoutType(body); !ok || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %v, not the same", size, ok)
		}
		if head := BinHead(size); !bytes.HasPrefix(want[7:], head) || !IsBin(head) {
			t.Errorf("%d bytes: head %x, want %x", size, head, want[7:12])
		}
	}
	for _, in := range []string{"", "80", "90", "81a17801", "82a16101a474797065a178", "de0001a474797065a178"} {
		b := unhex(t, in)
		if _, ok := WithoutType(b); ok || !bytes.Equal(b, unhex(t, in)) {
			t.Errorf("%q was taken or changed", in)
		}
	}
}

func TestFrameOfParts(t *testing.T) {
	parts := [][]byte{{1, 2}, make([]byte, 70_000), {3}, nil, make([]byte, 60_000), make([]byte, 60_000), {4}}
	var buf bytes.Buffer
	if err := NewFrameWriter(&buf).Write(parts...); err != nil {
		t.Fatal(err)
	}
	got, err := NewFrameReader(&buf).Next()
	if err != nil || !bytes.Equal(got, bytes.Join(parts, nil)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
