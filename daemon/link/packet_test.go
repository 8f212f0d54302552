package link

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Frames as neighbours send them (wire.md §5 and §21), and what they mean.
func TestParseTextGolden(t *testing.T) {
	for in, want := range map[string]packet{
		`0{"sid":"S"}`:           {kind: packetOpen, data: []byte(`{"sid":"S"}`)},
		`1`:                      {kind: packetClose},
		`2`:                      {kind: packetPing},
		`2probe`:                 {kind: packetPing},
		`3`:                      {kind: packetIgnored},
		`5`:                      {kind: packetIgnored},
		`6`:                      {kind: packetIgnored},
		`40`:                     {kind: packetConnect, namespace: "/", data: []byte{}},
		`40{"sid":"N"}`:          {kind: packetConnect, namespace: "/", data: []byte(`{"sid":"N"}`)},
		`40/rpc,{"sid":"N"}`:     {kind: packetConnect, namespace: "/rpc", data: []byte(`{"sid":"N"}`)},
		`40/rpc`:                 {kind: packetConnect, namespace: "/rpc"},
		`40/rpc?token=x,{}`:      {kind: packetConnect, namespace: "/rpc", data: []byte(`{}`)},
		`41/log,`:                {kind: packetDisconnect, namespace: "/log"},
		`44/rpc,"Unable"`:        {kind: packetConnectError, namespace: "/rpc", data: []byte(`"Unable"`)},
		`42/rpc,["x",{"a":[1]}]`: {kind: packetIgnored, namespace: "/rpc"},
		`42["x"]`:                {kind: packetIgnored, namespace: "/"},
		`43/ns,7[]`:              {kind: packetIgnored, namespace: "/ns"},
		`462-/ns,7[]`:            {kind: packetSkip, namespace: "/ns", attachments: 2},
		`4510-/ns,["x"]`:         {kind: packetSkip, namespace: "/ns", attachments: 10},
		`451-["x",{"_placeholder":true,"num":0}]`:                   {kind: packetEvent, namespace: "/", event: "x", attachments: 1},
		`451-/rpc,["call:result",{"_placeholder":true,"num":0}]`:    {kind: packetEvent, namespace: "/rpc", event: "call:result", attachments: 1},
		`451-/log,["_ack",{"_placeholder":true,"num":0}]`:           {kind: packetEvent, namespace: "/log", event: "_ack", attachments: 1},
		`451-/a,["/v1/messages",{"_placeholder":true,"num":0}]`:     {kind: packetEvent, namespace: "/a", event: "/v1/messages", attachments: 1},
		`451-/a,99["x",{"_placeholder":true,"num":0}]`:              {kind: packetEvent, namespace: "/a", event: "x", attachments: 1},
		`451-/a,[ "x" , { "num" : 0 , "_placeholder" : true } ]`:    {kind: packetEvent, namespace: "/a", event: "x", attachments: 1},
		`451-/a,["q\"uote\\",{"_placeholder":true,"num":0}]`:        {kind: packetEvent, namespace: "/a", event: `q"uote\`, attachments: 1},
		`451-/a,["",{"_placeholder":true,"num":0}]`:                 {kind: packetEvent, namespace: "/a", attachments: 1},
		`451-/a,["é",{"_placeholder":true,"num":0}]`:                {kind: packetEvent, namespace: "/a", event: "é", attachments: 1},
		string(eventHeader(wire.NamespaceRPC, wire.EventCallError)): {kind: packetEvent, namespace: "/rpc", event: "call:error", attachments: 1},
	} {
		got, err := parseText([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if diff := cmp.Diff(got, want, cmp.AllowUnexported(packet{})); diff != "" {
			t.Errorf("%s:\n%s", in, diff)
		}
	}
}

func TestSentHeaders(t *testing.T) {
	if got, want := string(headerCall), `451-/rpc,["call",{"_placeholder":true,"num":0}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(headerStreamResume), `451-/log,["_resume",{"_placeholder":true,"num":0}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p, err := connectPacket("/rpc", wire.Auth{})
	if err != nil || string(p.text) != `40/rpc,{}` || p.binary != nil {
		t.Errorf("got %s, %v", p.text, err)
	}
}

func TestTextLimit(t *testing.T) {
	if _, err := parseText([]byte("2" + strings.Repeat("x", 65535))); err != nil {
		t.Errorf("65536 bytes: %v", err)
	}
	if _, err := parseText([]byte("2" + strings.Repeat("x", 65536))); !errors.Is(err, errProtocol) {
		t.Errorf("65537 bytes: %v", err)
	}
}

func TestHeartbeatValuesAreClamped(t *testing.T) {
	for ms, want := range map[float64]time.Duration{
		0: time.Second, 1: time.Second, -1: time.Second, 25000: 25 * time.Second, 1 << 31: time.Minute, 1e300: time.Minute, -1e300: time.Second,
	} {
		if got := clampMillis(ms, minPingInterval, maxPingInterval); got != want {
			t.Errorf("%g ms: %s, want %s", ms, got, want)
		}
	}
}

func TestNuisanceRefills(t *testing.T) {
	n := nuisance{left: 2}
	now := time.Unix(1000, 0)
	got := fmt.Sprint(n.take(now), n.take(now), n.take(now), n.take(now.Add(20*time.Millisecond)), n.take(now.Add(20*time.Millisecond)))
	if want := "true true false true true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func FuzzParseText(f *testing.F) {
	for _, c := range []string{
		openPacket, "2", `40/rpc,{"sid":"N"}`, `44/rpc,{"message":"x"}`, resultHeader, recordsHeader, `453-/a,1["x"]`,
		`451-/a,["x",{"num":0,"_placeholder":true}]`, `451-/a?b,["\u0000",{}]`, "45", "4510-", `451000000000-/rpc,["x"]`, "0{", "\xff",
	} {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseText(b)
		if err != nil {
			if !errors.Is(err, errProtocol) {
				t.Fatalf("error without its kind: %v", err)
			}
			return
		}
		switch p.kind {
		case packetEvent:
			if p.attachments != 1 {
				t.Fatalf("%q is an event with %d attachments", b, p.attachments)
			}
		case packetSkip:
			if p.attachments < 1 || p.attachments > wire.MaxAttachments {
				t.Fatalf("%q has %d attachments", b, p.attachments)
			}
		case packetOpen:
			_, _ = parseOpen(p.data)
		case packetConnectError:
			if got := connectErrorText(p.data); len(got) > 2500 {
				t.Fatalf("error text of %d bytes", len(got))
			}
		default:
			if p.attachments != 0 {
				t.Fatalf("%q has attachments", b)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	text := "tb"
	f.Add(marshal(wire.Batch{Sid: "s", Seq: 1, Records: []wire.Record{{Kind: wire.RecordOutput, Stream: "stdout", Bytes: []byte("x")}, {Kind: wire.RecordGap}}}))
	f.Add(marshal(wire.CallError{CallID: "c", Error: &wire.Error{Type: "T", Message: "m", Traceback: &text, Violations: []wire.Violation{{Path: "p"}}}}))
	f.Add(marshal(wire.Result{CallID: "c", Value: []byte("1"), Encoding: "json"}))
	f.Add(marshal(wire.Ready{Sid: "s", WorkerOK: true}))
	f.Add(nest(300))
	f.Fuzz(func(t *testing.T, b []byte) {
		if batch, err := decodeBatch(b); err == nil {
			if len(batch.Records) == 0 || len(batch.Records) > wire.MaxBatchRecords || batch.Seq == 0 || batch.Sid == "" {
				t.Fatalf("batch %+v", batch)
			}
			for _, r := range batch.Records {
				if !validRecord(r) {
					t.Fatalf("record %+v", r)
				}
			}
		}
		if e, err := decodeCallError(b); err == nil && e.Error != nil && len(e.Error.Violations) > maxViolations {
			t.Fatalf("%d violations", len(e.Error.Violations))
		}
		_, _ = decodeResult(b)
		_, _ = decodeReady(b)
	})
}
