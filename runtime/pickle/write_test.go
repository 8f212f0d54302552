package pickle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// ask runs arguments.py for all cases at once.
func ask[T any](t *testing.T, cases []map[string]any) []T {
	t.Helper()
	var in bytes.Buffer
	for _, c := range cases {
		if err := json.NewEncoder(&in).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	answers := json.NewDecoder(bytes.NewReader(python(t, "arguments.py", &in)))
	all := make([]T, len(cases))
	for i := range all {
		if err := answers.Decode(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func listOf(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

func keysOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"key %d":%d`, i, i)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// argumentTexts are pairs of JSON texts around each edge of the format.
func argumentTexts() [][2]string {
	pairs := [][2]string{
		{``, ``}, {`[]`, `{}`}, {` [ ] `, "\t{\r\n}"},
		{`[1]`, ``}, {`[1,2]`, ``}, {`[1,2,3]`, ``}, {`[1,2,3,4]`, ``},
		{`[null,true,false,"",[],{}]`, ``},
		{`[0,1,255,256,65535,65536,-1,-128,-129,2147483647,2147483648,-2147483648,-2147483649]`, ``},
		{`[9223372036854775807,-9223372036854775808,9223372036854775808,-9223372036854775809,18446744073709551616]`, ``},
		{`[127,128,32767,32768,8388607,8388608,549755813887,549755813888,-549755813888,-549755813889]`, ``},
		{`[1e2,1.0,-0.0,-0,0,1e22,1.5E-3,0.1,5e-324,1e-400,123456789012345678901234567890.5]`, ``},
		{`[` + strings.Repeat("9", 613) + `,-` + strings.Repeat("9", 614) + `,1` + strings.Repeat("0", 4299) + `]`, ``},
		{`["a","a","é","é","aa","aa","日","\u00e9","\u0061","\u65e5","\ud83d\ude00","\ud800","\udc00\ud800x"]`, `{"a":"a","é":"é"}`},
		{`["\"\\\/\b\f\n\r\t\u0000\u001f", "\u007f"]`, ``},
		{`[{"name":1},{"name":2},{"name":{"name":"name"}}]`, `{"name":3,"other":{"name":1}}`},
		{`[]`, `{"a":1,"a":2,"b":3,"a":4}`},
		{`[{"k0":0,"k1":0,"k2":0,"k3":0,"k4":0,"k5":0,"k6":0,"k7":0,"k8":0,"k0":9}]`, ``},
		{strings.Repeat("[", 201) + strings.Repeat("]", 201), ``},
		{`[` + strings.Repeat(`{"":`, 200) + `1` + strings.Repeat("}", 200) + `]`, ``},
		{listOf(300, `"item of its own"`), `{"a":[1]}`},
		{`[` + keysOf(300) + `,` + keysOf(300) + `]`, ``},
	}
	for _, n := range []int{255, 256, 999, 1000, 1001, 2000, 2001} {
		pairs = append(pairs, [2]string{`[` + listOf(n, "7") + `]`, keysOf(n)}, [2]string{listOf(n, "[1]"), ``})
	}
	for _, n := range []int{1, 2, 3, 255, 256, 65499, 65500, 65501, 65520, 65535, 65536, 65537, 140000} {
		text := `"` + strings.Repeat("x", n) + `"`
		pairs = append(pairs, [2]string{`[` + text + `]`, `{"a":` + text + `,"b":[1,2]}`})
	}
	for n := 65500; n < 65545; n++ { // the end of the frame before, at and after each opcode
		pairs = append(pairs, [2]string{`[["` + strings.Repeat("x", n-30) + `","abc",1,2],3]`, `{"a":1.5,"b":[]}`})
	}
	return pairs
}

// randomJSON writes one value that nests at most depth levels.
func randomJSON(r *rand.Rand, depth int) string {
	words := []string{"", "a", "b", "é", "ÿ", "Ā", "name", "value", "日本", "x y", `\u0041`, `\n`, "same", "same"}
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0:
		return fmt.Sprint(int64(r.Uint64()) >> r.IntN(63))
	case 1:
		return strings.TrimLeft(strings.Repeat(fmt.Sprint(r.Int64()), 1+r.IntN(40)), "0") + "1"
	case 2:
		b, _ := json.Marshal(r.NormFloat64() * 1e3)
		return strings.Replace(string(b), "+", "", 1)
	case 3, 4:
		return `"` + words[r.IntN(len(words))] + `"`
	case 5:
		return []string{"null", "true", "false"}[r.IntN(3)]
	case 6:
		var items []string
		for range r.IntN(6) {
			items = append(items, randomJSON(r, depth-1))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	var items []string
	for range r.IntN(6) {
		items = append(items, `"`+words[r.IntN(len(words))]+`": `+randomJSON(r, depth-1))
	}
	return "{" + strings.Join(items, ",") + "}"
}

// Arguments from JSON are the bytes that CPython writes for what json.loads returns.
func TestArgumentsAreCPythonsBytes(t *testing.T) {
	pairs := argumentTexts()
	const seed = 20260801
	for r := rand.New(rand.NewPCG(seed, 0)); len(pairs) < 1500; {
		pairs = append(pairs, [2]string{"[" + randomJSON(r, 5) + "," + randomJSON(r, 3) + "]", `{"input":` + randomJSON(r, 4) + "}"})
	}
	cases := make([]map[string]any, len(pairs))
	for i, p := range pairs {
		cases[i] = map[string]any{"args": p[0], "kwargs": p[1]}
	}
	for i, want := range ask[struct{ Pickle []byte }](t, cases) {
		got, err := FromJSON(pairs[i][0], pairs[i][1])
		if err != nil || !bytes.Equal(got, want.Pickle) {
			t.Errorf("FromJSON(%.300s, %.300s) = %v, %s", pairs[i][0], pairs[i][1], err, difference(got, want.Pickle))
		}
	}
}

// difference shows where got and want part.
func difference(got, want []byte) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(0, at-20)
	return fmt.Sprintf("at byte %d: got %x (of %d), want %x (of %d)", at,
		got[from:min(len(got), at+20)], len(got), want[from:min(len(want), at+20)], len(want))
}

func TestArgumentsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		args, kwargs string
		want         error
	}{
		{`{}`, ``, ErrArguments},
		{``, `[]`, ErrArguments},
		{`[1`, ``, ErrArguments},
		{`[1,]`, ``, ErrArguments},
		{`[1]]`, ``, ErrArguments},
		{`[01]`, ``, ErrArguments},
		{`[+1]`, ``, ErrArguments},
		{`[1.]`, ``, ErrArguments},
		{`[.5]`, ``, ErrArguments},
		{`[1e]`, ``, ErrArguments},
		{`[-]`, ``, ErrArguments},
		{`[NaN]`, ``, ErrArguments},
		{`[Infinity]`, ``, ErrArguments},
		{`[1e999]`, ``, ErrArguments},
		{`[nul]`, ``, ErrArguments},
		{`['a']`, ``, ErrArguments},
		{`["a]`, ``, ErrArguments},
		{"[\"a\nb\"]", ``, ErrArguments},
		{"[\"a\\u00e9\nb\"]", ``, ErrArguments},
		{`["\x41"]`, ``, ErrArguments},
		{`["\u12"]`, ``, ErrArguments},
		{`["\u+123"]`, ``, ErrArguments},
		{`["\`, ``, ErrArguments},
		{"[\"\xff\"]", ``, ErrArguments},
		{"\ufeff[]", ``, ErrArguments},
		{``, `{1:2}`, ErrArguments},
		{``, `{"a"}`, ErrArguments},
		{``, `{"a":1,}`, ErrArguments},
		{``, `{"a":1`, ErrArguments},
		{strings.Repeat("[", 202) + strings.Repeat("]", 202), ``, ErrArguments},
		{strings.Repeat("[", 100000), ``, ErrArguments},
		{`[1` + strings.Repeat("0", 4300) + `]`, ``, ErrArguments},
	} {
		got, err := FromJSON(c.args, c.kwargs)
		if !errors.Is(err, c.want) || got != nil {
			t.Errorf("FromJSON(%.60s, %.60s) = %x, %v; want %v", c.args, c.kwargs, got, err, c.want)
		}
	}
}

func TestArgumentsOverTheLimit(t *testing.T) {
	b := boundsFor(0, 268435456, 268431360) // the literal values of the table of limits
	b.input, b.output = 40, 30
	if _, err := fromJSON(`["0123456789"]`, ``, b); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a pickle of more than 30 bytes: %v", err)
	}
	if _, err := fromJSON(strings.Repeat(" ", 40)+`[]`, ``, b); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a text of 42 bytes: %v", err)
	}
	b.memory = 200
	if _, err := fromJSON(`[[],[],[],[],[],[]]`, ``, b); !errors.Is(err, ErrTooLarge) {
		t.Errorf("seven lists in 200 bytes of memory: %v", err)
	}
	if got, err := fromJSON(strings.Repeat(" ", 38)+`[]`, ``, b); err != nil || len(got) != 17 {
		t.Errorf("a text of 40 bytes: %x, %v", got, err)
	}
}

func TestMsgpackArguments(t *testing.T) {
	documents := []string{
		"\x92\x90\x80",
		"\x92\x91\xc4\x02\x00\xff\x81\xa1a\x01",
		"\x92\x97\xcc\xff\xcd\xff\xff\xce\xff\xff\xff\xff\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xe0\xd0\x80\xd1\x80\x00\x80",
		"\x92\x93\xd2\x80\x00\x00\x00\xd3\x80\x00\x00\x00\x00\x00\x00\x00\xcf\x7f\xff\xff\xff\xff\xff\xff\xff\x80",
		"\x92\x94\xca\x3f\x80\x00\x00\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00\xc0\xc3\x82\xa1a\xc2\xa1b\xd9\x01x",
		"\x92\x92\x81\xa4name\xa1x\x81\xa4name\xda\x00\x02\xc3\xa9\x81\xa4name\x90",
		"\x92\xdc\x00\x02\x01\x02\xde\x00\x01\xa1k\x91\xc4\x00",
		"\x92\x94\xc4\x01a\xc4\x01a\xc4\x00\xc4\x00\x80",
		"\x92" + strings.Repeat("\x91", 200) + "\x90\x80",
	}
	var cases []map[string]any
	for _, d := range documents {
		got, err := FromMsgpack([]byte(d))
		if err != nil {
			t.Fatalf("FromMsgpack(%x): %v", d, err)
		}
		cases = append(cases, map[string]any{
			"msgpack": base64.StdEncoding.EncodeToString([]byte(d)),
			"check":   base64.StdEncoding.EncodeToString(got),
		})
	}
	for i, got := range ask[struct{ Same bool }](t, cases) {
		if !got.Same {
			t.Errorf("the pickle of %x is another value", documents[i])
		}
	}
	for _, d := range []string{
		"", "\x92", "\x92\x90", "\x92\x90\x80\x00", "\x91\x90", "\x92\x80\x80", "\x92\x90\x90", "\xc0",
		"\x92\x90\x81\x01\x02", "\x92\x90\x81\xc4\x01a\x02", "\x92\x91\x81\xc0\x01\x80", "\x92\x91\xc1\x80",
		"\x92\x91\xd4\x01\x00\x80", "\x92\x91\xa1\xff\x80", "\x92\xdd\xff\xff\xff\xff\x80", "\x92\xdf\xff\xff\xff\xff",
		"\x92" + strings.Repeat("\x91", 201) + "\x90\x80", strings.Repeat("\x91", 100000),
		"\x92\x91\xc6\xff\xff\xff\xff", "\x92\x91\xcb\x00",
	} {
		if got, err := FromMsgpack([]byte(d)); !errors.Is(err, ErrArguments) || got != nil {
			t.Errorf("FromMsgpack(%.60x) = %x, %v; want ErrArguments", d, got, err)
		}
	}
}

func TestWire13Context(t *testing.T) {
	c := Context{
		Baggage: map[string]string{"b": "2", "a": "1", "": "1"},
		Trace:   &Trace{ID: "trace_1", Name: "rollout", StartedAt: "2026-01-02T03:04:05.000006Z"},
		Span:    &Span{ID: "span_1", TraceID: "trace_2", Name: "call", StartedAt: "2026-01-02T03:04:05.000007Z"},
	}
	got, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = "{'agentix_context_baggage': {'': '1', 'a': '1', 'b': '2'}, " +
		"'agentix_trace_current_trace': Trace(trace_id='trace_1', name='rollout', metadata={}, " +
		"started_at='2026-01-02T03:04:05.000006Z', ended_at=None), " +
		"'agentix_trace_current_span': Span(span_id='span_1', trace_id='trace_2', parent_id=None, name='call', attrs={}, " +
		"started_at='2026-01-02T03:04:05.000007Z', ended_at=None, status='unset', status_description=None, error=None, events=[])}"
	type answer struct {
		Repr   string
		Pickle []byte
	}
	cases := []map[string]any{{"context": base64.StdEncoding.EncodeToString(got)}}
	if a := ask[answer](t, cases)[0]; a.Repr != want || !bytes.Equal(got, a.Pickle) {
		t.Errorf("the context is %s\nwant %s\n%s", a.Repr, want, difference(got, a.Pickle))
	}
}
