package pickle

import (
	"bytes"
	"testing"

	"github.com/agentixd/agentixd/runtime/wire/wiretest"
)

// golden are the bytes of the golden pickle with this name.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	for _, g := range wiretest.Golden(t, "pickle") {
		if g.Name == name {
			return g.Bytes(t)
		}
	}
	t.Fatalf("no golden pickle %s", name)
	return nil
}

// Golden bytes of the wire's notes, §21: what CPython writes for the arguments of a call.
func TestWire21GoldenArguments(t *testing.T) {
	for _, c := range []struct{ args, kwargs, want string }{
		{`[]`, `{}`, `args ((), {})`},
		{``, ``, `args ((), {})`},
		{`[]`, `{"input": "hello"}`, `args ((), {"input":"hello"})`},
		{`[1,2]`, `{}`, `args ((1,2), {})`},
		{`[1]`, `{"b":2}`, `args ((1,), {"b":2})`},
	} {
		got, err := FromJSON(c.args, c.kwargs)
		if want := golden(t, c.want); err != nil || !bytes.Equal(got, want) {
			t.Errorf("FromJSON(%s, %s) = %x, %v; want %x", c.args, c.kwargs, got, err, want)
		}
	}
}

func TestWire21GoldenContext(t *testing.T) {
	want := golden(t, `context with baggage {"tenant":"acme"}`)
	got, err := Context{Baggage: map[string]string{"tenant": "acme"}}.Encode()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("Encode() = %x, %v; want %x", got, err, want)
	}
	if got, err := (Context{}).Encode(); got != nil || err != nil {
		t.Errorf("an empty context is %x, %v; want none", got, err)
	}
}

func TestWire21GoldenValues(t *testing.T) {
	for _, c := range []struct{ pickle, json string }{
		{`None`, `null`},
		{`True`, `true`},
		{`3`, `3`},
		{`256`, `256`},
		{`-1`, `-1`},
		{`2^31`, `2147483648`},
		{`1.5`, `1.5`},
		{`"é"`, `"é"`},
		{`b"\x00\xff"`, `"AP8="`},
		{`[1,"a"]`, `[1,"a"]`},
		{`{"a":[None]}`, `{"a":[null]}`},
		{`{1}`, `[1]`},
		{`BashResult(0,"o","")`, `{"exit_code":0,"stdout":"o","stderr":""}`},
		{`UploadResult("/workspace/a",1)`, `{"path":"/workspace/a","size":1}`},
	} {
		if got, err := ToJSON(golden(t, c.pickle)); err != nil || string(got) != c.json {
			t.Errorf("ToJSON(%s) = %s, %v; want %s", c.pickle, got, err, c.json)
		}
	}
}
