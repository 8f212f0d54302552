package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
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

func TestRequestIsChecked(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	baggage := map[string]string{}
	for n := range 65 {
		baggage[fmt.Sprint(n)] = ""
	}
	for name, c := range map[string]struct {
		change func(*Request)
		field  string // empty = accepted
	}{
		"plain":                  {func(*Request) {}, ""},
		"method":                 {func(r *Request) { r.Callable = "pkg.mod::Class.method" }, ""},
		"letters of all kinds":   {func(r *Request) { r.Callable = "módulo::größe_2" }, ""},
		"1024 bytes":             {func(r *Request) { r.Callable = "a::" + strings.Repeat("b", 1021) }, ""},
		"1025 bytes":             {func(r *Request) { r.Callable = "a::" + strings.Repeat("b", 1022) }, "callable"},
		"no callable":            {func(r *Request) { r.Callable = "" }, "callable"},
		"one colon":              {func(r *Request) { r.Callable = "app:run" }, "callable"},
		"no module":              {func(r *Request) { r.Callable = "::run" }, "callable"},
		"no name":                {func(r *Request) { r.Callable = "app::" }, "callable"},
		"empty part":             {func(r *Request) { r.Callable = "app..x::run" }, "callable"},
		"a path":                 {func(r *Request) { r.Callable = "../app::run" }, "callable"},
		"newline":                {func(r *Request) { r.Callable = "app::run\n" }, "callable"},
		"digit first":            {func(r *Request) { r.Callable = "app::1run" }, "callable"},
		"locals":                 {func(r *Request) { r.Callable = "app::f.<locals>.g" }, "callable"},
		"not UTF-8":              {func(r *Request) { r.Callable = "app::r\xff" }, "callable"},
		"id of 63":               {func(r *Request) { r.CallID = strings.Repeat("a", 63) }, ""},
		"id of 64":               {func(r *Request) { r.CallID = strings.Repeat("a", 64) }, "call_id"},
		"id with capitals":       {func(r *Request) { r.CallID = "A" }, "call_id"},
		"id with a slash":        {func(r *Request) { r.CallID = "a/b" }, "call_id"},
		"encoding":               {func(r *Request) { r.Encoding = "xml" }, "encoding"},
		"result encoding":        {func(r *Request) { r.ResultEncoding = "xml" }, "result_encoding"},
		"other result encoding":  {func(r *Request) { r.ResultEncoding = "pickle" }, ""},
		"negative timeout":       {func(r *Request) { r.Timeout = -1 }, "timeout"},
		"traceparent":            {func(r *Request) { r.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }, ""},
		"malformed traceparent":  {func(r *Request) { r.Traceparent = "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }, "traceparent"},
		"65 baggage entries":     {func(r *Request) { r.Baggage = baggage }, "baggage"},
		"8192 bytes of baggage":  {func(r *Request) { r.Baggage = map[string]string{"k": strings.Repeat("v", 8191)} }, ""},
		"8193 bytes of baggage":  {func(r *Request) { r.Baggage = map[string]string{"k": strings.Repeat("v", 8192)} }, "baggage"},
		"baggage without key":    {func(r *Request) { r.Baggage = map[string]string{"": "v"} }, "baggage"},
		"baggage not UTF-8":      {func(r *Request) { r.Baggage = map[string]string{"k": "\xff"} }, "baggage"},
		"args":                   {func(r *Request) { r.Args, r.Kwargs = ` [1, "a"] `, ` {"x": null}`+"\n" }, ""},
		"args: blank":            {func(r *Request) { r.Args, r.Kwargs = " ", "\n" }, ""},
		"args: object":           {func(r *Request) { r.Args = "{}" }, "args"},
		"args: two documents":    {func(r *Request) { r.Args = "[] []" }, "args"},
		"args: breaks out":       {func(r *Request) { r.Args = `[],{"x":1}],[[]` }, "args"},
		"args: not closed":       {func(r *Request) { r.Args = "[" }, "args"},
		"args: NaN":              {func(r *Request) { r.Args = "[NaN]" }, "args"},
		"args: not UTF-8":        {func(r *Request) { r.Args = "[\"\xff\"]" }, "args"},
		"args: 200 deep":         {func(r *Request) { r.Args = "[" + deep(200) + "]" }, ""},
		"args: 201 deep":         {func(r *Request) { r.Args = "[" + deep(201) + "]" }, "args"},
		"args: 10^6 deep":        {func(r *Request) { r.Args = strings.Repeat("[", 1000000) }, "args"},
		"args: brackets in text": {func(r *Request) { r.Args = `["` + strings.Repeat(`[\"`, 1000) + `"]` }, ""},
		"kwargs: array":          {func(r *Request) { r.Kwargs = "[]" }, "kwargs"},
		"kwargs: 200 deep":       {func(r *Request) { r.Kwargs = `{"x": ` + deep(200) + "}" }, ""},
		"kwargs: 201 deep":       {func(r *Request) { r.Kwargs = `{"x": ` + deep(201) + "}" }, "kwargs"},
		"msgpack": {func(r *Request) {
			r.Encoding, r.Arguments = "msgpack", marshal(t, []any{[]any{1}, map[string]any{"a": 1}})
		}, ""},
		"msgpack: long heads": {func(r *Request) {
			r.Encoding, r.Arguments = "msgpack", []byte{0xdd, 0, 0, 0, 2, 0xdc, 0, 1, 0xc0, 0xde, 0, 0}
		}, ""},
		"msgpack: 16-bit head": {func(r *Request) {
			r.Encoding, r.Arguments = "msgpack", []byte{0xdc, 0, 2, 0xdd, 0, 0, 0, 0, 0xdf, 0, 0, 0, 0}
		}, ""},
		"msgpack: none":            {func(r *Request) { r.Encoding = "msgpack" }, "msgpack_arguments"},
		"msgpack: map":             {func(r *Request) { r.Encoding, r.Arguments = "msgpack", []byte{0x80} }, "msgpack_arguments"},
		"msgpack: three":           {func(r *Request) { r.Encoding, r.Arguments = "msgpack", []byte{0x93, 0x90, 0x80, 0xc0} }, "msgpack_arguments"},
		"msgpack: two arrays":      {func(r *Request) { r.Encoding, r.Arguments = "msgpack", []byte{0x92, 0x90, 0x90} }, "msgpack_arguments"},
		"msgpack: two maps":        {func(r *Request) { r.Encoding, r.Arguments = "msgpack", []byte{0x92, 0x80, 0x80} }, "msgpack_arguments"},
		"msgpack: trailing":        {func(r *Request) { r.Encoding, r.Arguments = "msgpack", []byte{0x92, 0x90, 0x80, 0xc0} }, "msgpack_arguments"},
		"msgpack: number as key":   {func(r *Request) { r.Encoding, r.Arguments = "msgpack", []byte{0x92, 0x90, 0x81, 1, 1} }, "msgpack_arguments"},
		"pickle":                   {func(r *Request) { r.Encoding, r.Arguments = "pickle", []byte("\x80\x04.") }, ""},
		"pickle: none":             {func(r *Request) { r.Encoding = "pickle" }, "pickle_arguments"},
		"pickle: 268431360 bytes":  {func(r *Request) { r.Encoding, r.Arguments = "pickle", make([]byte, 268431360) }, ""},
		"pickle: 268431361 bytes":  {func(r *Request) { r.Encoding, r.Arguments = "pickle", make([]byte, 268431361) }, "arguments_bytes"},
		"msgpack: 268431361 bytes": {func(r *Request) { r.Encoding, r.Arguments = "msgpack", make([]byte, 268431361) }, "arguments_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Request{Sandbox: "box", Callable: "app::run", Encoding: wire.EncodingJSON}
			c.change(&r)
			_, err := r.check()
			var e *errs.Error
			switch {
			case c.field == "":
				if err != nil {
					t.Errorf("refused: %v", err)
				}
			case !errors.As(err, &e):
				t.Errorf("got %v", err)
			case c.field == "arguments_bytes":
				if e.Kind != errs.ResourceExhausted || e.Metadata["limit"] != c.field || e.Metadata["size"] != "268431361" || e.Metadata["maximum"] != "268431360" {
					t.Errorf("got %v %v", err, e.Metadata)
				}
			case e.Kind != errs.InvalidArgument || len(e.Violations) != 1 || e.Violations[0].Field != c.field:
				t.Errorf("got %v, %+v", err, e.Violations)
			}
		})
	}
}

func TestJSONArgumentsAreThePair(t *testing.T) {
	for _, c := range [][3]string{
		{"", "", "[[],{}]"},
		{"[1.0, -0.0, 1e22, 9007199254740993]", `{"a": 1}`, `[[1.0, -0.0, 1e22, 9007199254740993],{"a": 1}]`},
	} {
		got, err := Request{Args: c[0], Kwargs: c[1]}.jsonArguments()
		if err != nil || string(got) != c[2] {
			t.Errorf("got %s, %v, want %s", got, err, c[2])
		}
	}
}

func TestIDsAndHashes(t *testing.T) {
	r := Request{Sandbox: "box", Callable: "app::run", Encoding: wire.EncodingJSON}
	one, err := r.check()
	if err != nil {
		t.Fatal(err)
	}
	two, _ := r.check()
	if one.request.ID == two.request.ID || len(one.request.ID) != 32 || one.request.Named {
		t.Errorf("ids %q and %q", one.request.ID, two.request.ID)
	}
	r.CallID = "c"
	base, _ := r.check()
	same := r
	same.Traceparent, same.Baggage = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", map[string]string{"k": "v"}
	if c, _ := same.check(); c.request.Hash != base.request.Hash {
		t.Error("trace context changes the request")
	}
	for name, change := range map[string]func(*Request){
		"sandbox":         func(r *Request) { r.Sandbox = "other" },
		"callable":        func(r *Request) { r.Callable = "app::ru" },
		"args":            func(r *Request) { r.Args = "[1]" },
		"result encoding": func(r *Request) { r.ResultEncoding = "pickle" },
		"timeout":         func(r *Request) { r.Timeout = time.Second },
	} {
		other := r
		change(&other)
		if c, err := other.check(); err != nil || c.request.Hash == base.request.Hash {
			t.Errorf("another %s is the same request (%v)", name, err)
		}
	}
}

func TestOutcomeSurvivesTheStore(t *testing.T) {
	trace, code := "tb", -9
	for _, o := range []Outcome{
		{CallID: "c", Value: []byte("1"), Encoding: "json"},
		{CallID: "c", Error: &wire.Error{Type: "T", Message: "m", Traceback: &trace, Returncode: &code, Cause: "SIGNAL", Violations: []wire.Violation{{Path: "p", Message: "m"}}}},
	} {
		end, err := o.end(start, true)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeOutcome("c", end.Head, end.Value)
		if a, b := text(got), text(o); err != nil || a != b {
			t.Errorf("got %s, %v, want %s", a, err, b)
		}
	}
	if _, err := decodeOutcome("c", []byte{0xc1}, nil); err == nil {
		t.Error("damaged outcome decodes")
	}
}

// What checkJSON accepts, encoding/json accepts too, and the pair of two such texts is JSON.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{"[]", `{"a":[1,2.5e3,"\u00e9\\\""]}`, "[", `["]"]`, " [1] ", "[1]]", "nul", "[\"\xff\"]", strings.Repeat("[", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := checkJSON([]byte(s), 0, wire.MaxDepth+1)
		if err == nil && !json.Valid([]byte(s)) {
			t.Fatalf("%q is no JSON", s)
		}
		if checkJSONArguments(s, '[') == nil {
			pair, err := Request{Args: s, Kwargs: "{}"}.jsonArguments()
			var out []json.RawMessage
			if err != nil || json.Unmarshal(pair, &out) != nil || len(out) != 2 {
				t.Fatalf("%q makes %q", s, pair)
			}
		}
	})
}

func FuzzMsgpackPair(f *testing.F) {
	f.Add(marshal(f, []any{[]any{1}, map[string]any{"a": 1}}))
	f.Add([]byte{0x92, 0x90, 0x80})
	f.Add([]byte{0xdd, 0, 0, 0, 2, 0x90})
	f.Add([]byte{0xdc, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkMsgpackPair(b) != nil {
			return
		}
		var pair []any
		if err := wire.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
			t.Fatalf("%x: %v, %v", b, pair, err)
		}
		if _, ok := pair[0].([]any); !ok {
			t.Fatalf("%x: args are %T", b, pair[0])
		}
	})
}

func TestOtherJSONIsNamed(t *testing.T) {
	for text, want := range map[string]string{"{}": `it begins with '{'`, `"é`: `it begins with '"'`, "é": `it begins with 'é'`, "": "it is empty", " \n": "it is empty", "\xff": "it is not UTF-8"} {
		if err := checkJSONArguments(text, '['); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
