package link

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

// ends is a slog.Handler that keeps why connections ended.
type ends struct {
	mu   sync.Mutex
	errs []string
}

func (e *ends) Enabled(context.Context, slog.Level) bool { return true }
func (e *ends) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *ends) WithGroup(string) slog.Handler            { return e }
func (e *ends) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.errs = append(e.errs, a.Value.String())
		}
		return true
	})
	return nil
}

func (e *ends) first() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.errs) == 0 {
		return ""
	}
	return e.errs[0]
}

// idleFor reads, and so waits, for at most d.
func (p *peer) idleFor(d time.Duration) {
	check(p.conn.SetReadDeadline(time.Now().Add(d)))
	_, _ = p.br.Peek(p.br.Buffered() + 1)
	check(p.conn.SetReadDeadline(time.Time{}))
}

func TestR10_HostileRuntime(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			l := newListener(t)
			l.serve(func(n int, p *peer) {
				if n == 0 {
					c.script(p)
					p.idle()
				}
				p.join()
				p.event("/rpc", wire.EventCallResult, wire.Result{CallID: "good", Value: []byte("1")})
				p.idle()
			})
			e := &ends{}
			h := &recorder{}
			link := New(Options{Dial: l.dial, Handler: h, Logger: slog.New(e)})
			link.timing = timing{
				handshake: 10 * time.Second, watch: 20 * time.Millisecond, stall: 10 * time.Second, message: time.Minute,
				write: 10 * time.Second, backoff: time.Millisecond, backoffTo: 10 * time.Millisecond, steady: time.Second,
			}
			switch c.want {
			case "no progress":
				link.timing.stall = 100 * time.Millisecond
			case "took longer":
				link.timing.message = 200 * time.Millisecond
			case "handshake in time":
				link.timing.handshake = 300 * time.Millisecond
			}
			run(t, link)
			await.True(t, func() bool { return get(h, func(r *recorder) bool { return len(r.results) == 1 }) }, "a good connection after the bad one")
			if got := e.first(); !strings.Contains(got, c.want) {
				t.Errorf("ended with %s\nwant %s", got, c.want)
			}
			if h.results[0].CallID != "good" {
				t.Errorf("got result of %q", h.results[0].CallID)
			}
		})
	}
}

// odd is what must not end a connection.
var odd = []struct {
	name   string
	script func(p *peer)
}{
	{"engine noop and pong", func(p *peer) { p.text("6"); p.text("3"); p.text("3probe") }},
	{"control ping and pong", func(p *peer) { p.frame(9, []byte("hi")); p.frame(10, nil) }},
	{"unknown event", func(p *peer) { p.event("/rpc", "progress", 1); p.event("/log", "record", nil) }},
	{"unknown namespace", func(p *peer) { p.event("/other", "call:result", wire.Result{CallID: "x"}); p.text(`42/other,["x"]`) }},
	{"event without attachment", func(p *peer) { p.text(`42/rpc,["call:result",{"call_id":"x"}]`); p.text(`42["x"]`) }},
	{"ack", func(p *peer) { p.text(`43/rpc,7[]`); p.text(`461-/rpc,7[]`); p.binary(nil) }},
	{"event with an ack id", func(p *peer) { p.text(`451-/log,12["other",{"_placeholder":true,"num":0}]`); p.binary([]byte{1}) }},
	{"three attachments", func(p *peer) {
		p.text(`453-/rpc,["call:result",{"_placeholder":true,"num":0}]`)
		for range 3 {
			p.binary([]byte{1})
		}
	}},
	{"ping between event and attachment", func(p *peer) {
		p.text(`451-/rpc,["other",{"_placeholder":true,"num":0}]`)
		p.text("2")
		p.frame(9, nil)
		p.binary([]byte{1})
	}},
	{"one-byte fragments", func(p *peer) {
		h := `451-/rpc,["other",{"_placeholder":true,"num":0}]`
		p.write(append(head(false, 1, 1), h[0]))
		for _, c := range []byte(h[1:]) {
			p.write(append(head(false, 0, 1), c))
		}
		p.write(head(true, 0, 0))
		p.write(append(head(false, 2, 1), 1))
		p.frame(9, nil)
		p.write(append(head(true, 0, 1), 1))
	}},
	{"escaped name and other key order", func(p *peer) {
		p.text(`451-/rpc,["call:\u0072esult", {"num":0, "_placeholder":true}]`)
		p.binary(marshal(wire.Result{CallID: "x"}))
	}},
	{"namespace with a query", func(p *peer) {
		p.text(`451-/rpc?a=b,["other",{"_placeholder":true,"num":0}]`)
		p.binary(nil)
	}},
	{"ids that are not ours", func(p *peer) {
		for _, id := range []string{"", "A", "a/b", strings.Repeat("a", 64), "\x1b[31m"} {
			p.event("/rpc", wire.EventCallResult, wire.Result{CallID: id})
			p.event("/rpc", wire.EventCallError, wire.CallError{CallID: id})
		}
	}},
	{"duplicate keys and extensions", func(p *peer) {
		p.text(resultHeader)
		p.binary([]byte{0x83, 0xa7, 'c', 'a', 'l', 'l', '_', 'i', 'd', 0xa1, 'A', 0xa7, 'c', 'a', 'l', 'l', '_', 'i', 'd', 0xa1, 'B', 0xa1, 'x', 0xc7, 1, 5, 0})
	}},
	{"a map of 10^6 keys", func(p *peer) {
		b := []byte{0xdf, 0, 0x0f, 0x42, 0x40}
		for range 1000000 {
			b = append(b, 0xa1, 'k', 0xc0)
		}
		p.text(errorHeader)
		p.binary(b)
	}},
}

func TestR10_OddRuntime(t *testing.T) {
	for _, c := range odd {
		t.Run(c.name, func(t *testing.T) {
			l := newListener(t)
			l.serve(func(n int, p *peer) {
				p.join()
				c.script(p)
				p.event("/rpc", wire.EventCallResult, wire.Result{CallID: fmt.Sprint("good", n)})
				p.idle()
			})
			h := &recorder{}
			e := &ends{}
			run(t, New(Options{Dial: l.dial, Handler: h, Logger: slog.New(e)}))
			await.True(t, func() bool {
				return get(h, func(r *recorder) bool {
					return len(r.results) > 0 && strings.HasPrefix(r.results[len(r.results)-1].CallID, "good")
				})
			}, "the result after it")
			if h.connected != 1 {
				t.Errorf("%d connections: %s", h.connected, e.first())
			}
		})
	}
}

func TestR10_LargeErrorIsCut(t *testing.T) {
	l := newListener(t)
	text := strings.Repeat("é", 5<<20)
	l.serve(func(_ int, p *peer) {
		p.join()
		p.event("/rpc", wire.EventCallError, wire.CallError{CallID: "c", Error: &wire.Error{
			Type: strings.Repeat("T", 1000), Message: text[:2<<20], Traceback: &text, Violations: make([]wire.Violation, 100000),
		}})
		p.idle()
	})
	h := &recorder{}
	start(t, l, h, nil)
	await.True(t, func() bool { return get(h, func(r *recorder) bool { return len(r.errors) == 1 }) }, "the error")
	e := h.errors[0].Error
	if len(e.Type) != 256 || len(e.Message) != 1048576 || len(*e.Traceback) != 1048576 || len(e.Violations) != maxViolations {
		t.Errorf("type %d, message %d, traceback %d bytes, %d violations", len(e.Type), len(e.Message), len(*e.Traceback), len(e.Violations))
	}
}

// A record that makes no sense costs itself only.
func TestR10_BadRecordsBecomeGaps(t *testing.T) {
	good := wire.Record{Kind: wire.RecordOutput, Stream: "stdout", Bytes: []byte("x"), Time: 1}
	log := marshal(map[string]any{"message": "m"})
	bad := []any{
		nil, 1, []any{}, map[string]any{}, map[string]any{"kind": "other"}, map[string]any{"kind": 1},
		wire.Record{Kind: wire.RecordOutput, Stream: "stdin"},
		wire.Record{Kind: wire.RecordLog, Data: []byte{1}},
		wire.Record{Kind: wire.RecordLog, Data: log, CallID: "A"},
		wire.Record{Kind: wire.RecordSpan, Event: "span_middle", Data: log},
		wire.Record{Kind: wire.RecordSpan, Event: "span_end", Data: []byte{0x90}},
		wire.Record{Kind: wire.RecordPlugin, Namespace: "abridge", Event: "x", Data: log},
		wire.Record{Kind: wire.RecordPlugin, Namespace: "/abridge", Data: log},
		wire.Record{Kind: wire.RecordPlugin, Namespace: "/" + strings.Repeat("a", maxNameBytes), Event: "x", Data: log},
		map[string]any{"kind": wire.RecordOutput, "stream": "stdout", "bytes": 5},
	}
	nan := good
	nan.Time = math.NaN()
	records := []any{good}
	records = append(records, bad...)
	records = append(records, nan, wire.Record{Kind: wire.RecordLog, Data: log}, wire.Record{Kind: wire.RecordSpan, Event: "span_end", Data: log},
		wire.Record{Kind: wire.RecordPlugin, Namespace: "/abridge", Event: "x"}, wire.Record{Kind: wire.RecordGap, Dropped: 7})
	b, err := decodeBatch(marshal(map[string]any{"_sid": "s", "_seq": 9, "records": records}))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Records) != len(records) || b.Seq != 9 {
		t.Fatalf("%d records from %d", len(b.Records), b.Seq)
	}
	for n, r := range b.Records {
		wantGap := n >= 1 && n <= len(bad)
		if wantGap != (r.Kind == wire.RecordGap && r.Dropped == 1) {
			t.Errorf("record %d is %+v", n, r)
		}
	}
	if b.Records[len(bad)+1].Time != 0 {
		t.Errorf("time %v", b.Records[len(bad)+1].Time)
	}
}

// Reconnects slow down when connections do not last.
func TestR10_ReconnectStorm(t *testing.T) {
	l := newListener(t)
	var mu sync.Mutex
	connections := 0
	l.serve(func(_ int, p *peer) {
		mu.Lock()
		connections++
		mu.Unlock()
		p.join()
	})
	h := &recorder{}
	run(t, New(Options{Dial: l.dial, Handler: h}))
	began := time.Now()
	await.True(t, func() bool { return time.Since(began) > 1500*time.Millisecond }, "1.5 s to pass")
	mu.Lock()
	defer mu.Unlock()
	if connections < 2 || connections > 16 { // 25+50+100+125+125+… ms at least
		t.Errorf("%d connections in 1.5 s", connections)
	}
}
