package pickle

import (
	"encoding/hex"
	"testing"
)

// Golden bytes of the wire's notes, §21: what CPython writes for the arguments of a call.
func TestWire21GoldenArguments(t *testing.T) {
	for _, c := range []struct{ args, kwargs, want string }{
		{`[]`, `{}`, "8004950600000000000000297d9486942e"},
		{``, ``, "8004950600000000000000297d9486942e"},
		{`[]`, `{"input": "hello"}`, "8004951700000000000000297d948c05696e707574948c0568656c6c6f947386942e"},
		{`[1,2]`, `{}`, "8004950b000000000000004b014b0286947d9486942e"},
		{`[1]`, `{"b":2}`, "80049510000000000000004b0185947d948c0162944b027386942e"},
	} {
		got, err := FromJSON(c.args, c.kwargs)
		if err != nil || hex.EncodeToString(got) != c.want {
			t.Errorf("FromJSON(%s, %s) = %x, %v; want %s", c.args, c.kwargs, got, err, c.want)
		}
	}
}

func TestWire21GoldenContext(t *testing.T) {
	const want = "80049531000000000000007d948c176167656e7469785f636f6e746578745f62616767616765947d948c0674656e616e74948c0461636d659473732e"
	got, err := Context{Baggage: map[string]string{"tenant": "acme"}}.Encode()
	if err != nil || hex.EncodeToString(got) != want {
		t.Errorf("Encode() = %x, %v; want %s", got, err, want)
	}
	if got, err := (Context{}).Encode(); got != nil || err != nil {
		t.Errorf("an empty context is %x, %v; want none", got, err)
	}
}

func TestWire21GoldenValues(t *testing.T) {
	for _, c := range []struct{ pickle, json string }{
		{"80044e2e", `null`},
		{"8004882e", `true`},
		{"80044b032e", `3`},
		{"80049504000000000000004d00012e", `256`},
		{"80049506000000000000004affffffff2e", `-1`},
		{"80049508000000000000008a0500000080002e", `2147483648`},
		{"8004950a00000000000000473ff80000000000002e", `1.5`},
		{"80049506000000000000008c02c3a9942e", `"é"`},
		{"8004950600000000000000430200ff942e", `"AP8="`},
		{"8004950b000000000000005d94284b018c016194652e", `[1,"a"]`},
		{"8004950c000000000000007d948c0161945d944e61732e", `{"a":[null]}`},
		{"80049507000000000000008f94284b01902e", `[1]`},
		{"8004954e000000000000008c0c6167656e7469782e62617368948c0a42617368526573756c749493942981947d94288c09657869745f636f6465944b008c067374646f7574948c016f948c06737464657272948c009475622e", `{"exit_code":0,"stdout":"o","stderr":""}`},
		{"80049549000000000000008c0d6167656e7469782e66696c6573948c0c55706c6f6164526573756c749493942981947d94288c0470617468948c0c2f776f726b73706163652f61948c0473697a65944b0175622e", `{"path":"/workspace/a","size":1}`},
	} {
		data, err := hex.DecodeString(c.pickle)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ToJSON(data); err != nil || string(got) != c.json {
			t.Errorf("ToJSON(%s) = %s, %v; want %s", c.pickle, got, err, c.json)
		}
	}
}
