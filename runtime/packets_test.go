package runtime

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zishang520/socket.io/parsers/socket/v3/parser"
	"github.com/zishang520/socket.io/v3/pkg/types"
)

// decoded feeds messages (a leading "b" marks a binary one) and returns the packets.
func decoded(t testing.TB, messages ...string) ([]*parser.Packet, error) {
	t.Helper()
	d := packetParser{parser.NewParser()}.NewDecoder()
	defer d.Destroy()
	var got []*parser.Packet
	if err := d.On("decoded", func(args ...any) {
		if p, ok := args[0].(*parser.Packet); ok {
			got = append(got, p)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		var data any = types.NewStringBufferString(m)
		if rest, binary := strings.CutPrefix(m, "b"); binary {
			data = types.NewBytesBufferString(rest)
		}
		if err := d.Add(data); err != nil {
			return got, err
		}
	}
	return got, nil
}

func TestDecoderTakesEvents(t *testing.T) {
	cases := map[string]struct {
		in        []string
		nsp, name string
		payload   string
		id        uint64
	}{
		"plain":     {[]string{`51-/rpc,["call",{"_placeholder":true,"num":0}]`, "bpayload"}, "/rpc", "call", "payload", 0},
		"with id":   {[]string{`51-/rpc,17["call",{"_placeholder":true,"num":0}]`, "bx"}, "/rpc", "call", "x", 17},
		"root":      {[]string{`51-["call",{"num":0,"_placeholder":true}]`, "bx"}, "/", "call", "x", 0},
		"query":     {[]string{`51-/rpc?a=b,["call",{"_placeholder":true,"num":0}]`, "bx"}, "/rpc", "call", "x", 0},
		"second":    {[]string{`52-/rpc,["call",{"_placeholder":true,"num":1}]`, "bfirst", "bsecond"}, "/rpc", "call", "second", 0},
		"empty":     {[]string{`51-/rpc,["call",{"_placeholder":true,"num":0}]`, "b"}, "/rpc", "call", "", 0},
		"connect":   {[]string{`0/rpc?token=x,{"a":1}`}, "/rpc", "", "", 0},
		"no data":   {[]string{`2/rpc,["ack"]`}, "/rpc", "ack", "", 0},
		"disconn.":  {[]string{`1/rpc,`}, "/rpc", "", "", 0},
		"two pairs": {[]string{`51-/a,["x",{"_placeholder":true,"num":0}]`, "b1", `51-/rpc,["y",{"_placeholder":true,"num":0}]`, "b2"}, "/rpc", "y", "2", 0},
	}
	for name, c := range cases {
		got, err := decoded(t, c.in...)
		if err != nil || len(got) == 0 {
			t.Errorf("%s: %d packets, %v", name, len(got), err)
			continue
		}
		p := got[len(got)-1]
		var event, payload string
		if args, ok := p.Data.([]any); ok {
			event, _ = args[0].(string)
			if len(args) > 1 {
				if b, ok := argument(args, 0x80); ok && !cmp.Equal(b, []byte{0x80}) {
					payload = string(b)
				}
			}
		}
		id := uint64(0)
		if p.Id != nil {
			id = *p.Id
		}
		if p.Nsp != c.nsp || event != c.name || payload != c.payload || id != c.id {
			t.Errorf("%s: got %s %s %q %d", name, p.Nsp, event, payload, id)
		}
	}
}

func TestDecoderRefuses(t *testing.T) {
	placeholder := `{"_placeholder":true,"num":0}`
	for name, in := range map[string][]string{
		"binary first":        {"bx"},
		"text in between":     {`51-/rpc,["call",` + placeholder + `]`, `2/rpc,["ack"]`},
		"no attachment":       {`50-/rpc,["call"]`},
		"11 attachments":      {`511-/rpc,["call"]`},
		"10^10 attachments":   {`59999999999-/rpc,["call"]`},
		"negative":            {`5-1-/rpc,["call"]`},
		"no dash":             {`51/rpc,["call"]`},
		"no comma":            {`51-/rpc`},
		"no name":             {`51-/rpc,[` + placeholder + `]`},
		"no list":             {`51-/rpc,{"a":1}`},
		"empty list":          {`51-/rpc,[]`},
		"no JSON":             {`51-/rpc,["call"`},
		"num too large":       {`51-/rpc,["call",{"_placeholder":true,"num":1}]`, "bx"},
		"num negative":        {`51-/rpc,["call",{"_placeholder":true,"num":-1}]`, "bx"},
		"num a string":        {`51-/rpc,["call",{"_placeholder":true,"num":"0"}]`, "bx"},
		"num a fraction":      {`51-/rpc,["call",{"_placeholder":true,"num":0.5}]`, "bx"},
		"num huge":            {`51-/rpc,["call",{"_placeholder":true,"num":1e300}]`, "bx"},
		"id too large":        {`51-/rpc,99999999999999999999["call"]`},
		"text over the limit": {`51-/rpc,["` + strings.Repeat("x", 1<<20) + `"]`},
		"unknown type":        {"9"},
		"nothing":             {""},
	} {
		if got, err := decoded(t, in...); err == nil {
			t.Errorf("%s: taken as %+v", name, got)
		}
	}
}

func FuzzPacketDecoder(f *testing.F) {
	f.Add(`51-/rpc,["call",{"_placeholder":true,"num":0}]`, "bx", "bx")
	f.Add(`0/rpc?x,{}`, `2/rpc,["ack"]`, `1/rpc,`)
	f.Add(`52-/rpc,7["call",{"_placeholder":true,"num":1}]`, "bx", "by")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		packets, err := decoded(t, a, b, c)
		if err == nil && len(packets) > 3 {
			t.Fatalf("%d packets out of 3 messages", len(packets))
		}
	})
}
