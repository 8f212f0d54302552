package link

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// A neighbour's runtime, byte by byte as docs/protocol.md and its own description have it.

const (
	neighbourHealth = `{"status":"ok","version":"0.2.7"}`
	neighbourOpen   = `0{"sid":"S","upgrades":[],"pingInterval":25000,"pingTimeout":300000,"maxPayload":268435456}`
	pickledVersion  = "\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00\x8c\x063.11.7\x94."
)

// serveNeighbour answers GET /health and runs script for each WebSocket connection, once it
// is open; n counts these.
func (l *listener) serveNeighbour(health string, script func(n int, p *peer)) {
	var sessions atomic.Int64
	l.serve(func(_ int, p *peer) {
		req := p.request()
		if req.URL.Path == "/health" {
			p.write(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(health), health))
			return
		}
		n := int(sessions.Add(1)) - 1
		p.accept(req)
		p.text(neighbourOpen)
		script(n, p)
	})
}

// joinNeighbour answers the three CONNECTs and takes both _resumes.
func (p *peer) joinNeighbour() {
	for _, ns := range []string{"/rpc", "/trace", "/log"} {
		if got := p.readText(); got != "40"+ns+",{}" {
			panic(hangup{fmt.Errorf("CONNECT %q", got)})
		}
		p.text("40" + ns + `,{"sid":"N"}`)
	}
	for range 2 {
		var r map[string]any
		p.readEvent(wire.EventStreamResume, &r)
		if len(r) != 1 || fmt.Sprint(r["since_seq"]) != "0" {
			panic(hangup{fmt.Errorf("_resume %v", r)})
		}
	}
}

// answerProbe is the worker's first sign of life.
func (p *peer) answerProbe() {
	var c map[string]any
	p.readEvent(wire.EventCall, &c)
	p.event("/rpc", wire.EventCallResult, map[string]any{"call_id": c["call_id"], "value": []byte(pickledVersion)})
}

func startNeighbour(t *testing.T, l *listener, h Handler, change func(*Link)) *Link {
	t.Helper()
	return start(t, l, h, func(link *Link) {
		link.opts.Token = ""
		link.opts.Foreign = &Foreign{Host: "example.org:8000", Authorization: "Basic dTpw", Tag: "tag"}
		link.timing.resume = 20 * time.Millisecond
		link.timing.hold = 50 * time.Millisecond
		if change != nil {
			change(link)
		}
	})
}

// TestS22_HostConnects: what is sent from the first byte to the first result, and that no
// added field is among it.
func TestS22_HostConnects(t *testing.T) {
	l := newListener(t)
	var requests []*http.Request
	texts := make(chan string, 100)
	payloads := make(chan map[string]any, 100)
	l.serve(func(_ int, p *peer) {
		req := p.request()
		requests = append(requests, req)
		if req.URL.Path == "/health" {
			p.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n" + neighbourHealth))
			return
		}
		p.accept(req)
		p.text(neighbourOpen)
		for {
			opcode, data := p.read()
			if opcode == 2 {
				var v map[string]any
				check(wire.Unmarshal(data, &v))
				payloads <- v
				if v["callable"] == probeCallable {
					p.event("/rpc", wire.EventCallResult, map[string]any{"call_id": v["call_id"], "value": []byte(pickledVersion)})
				}
				continue
			}
			texts <- string(data)
			if ns, ok := strings.CutPrefix(string(data), "40"); ok {
				p.text("40" + strings.TrimSuffix(ns, "{}") + `{"sid":"N"}`)
			}
		}
	})
	h := &recorder{}
	link := startNeighbour(t, l, h, nil)
	health, err := link.WaitReady(t.Context())
	if err != nil || health.Python != "3.11.7" || health.Version != "0.2.7" {
		t.Fatalf("got %+v, %v", health, err)
	}
	if peer, ok := link.PeerIn(link.Session()); !ok || !peer.Neighbour || peer.Life != "" {
		t.Errorf("peer: got %+v, %v", peer, ok)
	}
	if err := link.Call(t.Context(), &wire.Call{CallID: "mine", Callable: "m::f", Arguments: []byte("p")}); err != nil {
		t.Fatal(err)
	}
	link.Cancel("mine")
	link.AckResult("mine")
	const tail = `,{"_placeholder":true,"num":0}]`
	for _, want := range []string{
		"40/rpc,{}", "40/trace,{}", "40/log,{}",
		`451-/trace,["_resume"` + tail, `451-/log,["_resume"` + tail, `451-/rpc,["call"` + tail, `451-/rpc,["ack"` + tail,
		`451-/rpc,["call"` + tail, `451-/rpc,["cancel"` + tail, `451-/rpc,["ack"` + tail,
	} {
		if got := <-texts; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	var got []map[string]any
	for range 7 {
		got = append(got, <-payloads)
	}
	id, _ := got[2]["call_id"].(string)
	want := []map[string]any{
		{"since_seq": int8(0)}, {"since_seq": int8(0)},
		{"call_id": id, "callable": "platform::python_version", "arguments": probeArguments}, {"call_id": id},
		{"call_id": "mine.tag", "callable": "m::f", "arguments": []byte("p")}, {"call_id": "mine.tag"}, {"call_id": "mine.tag"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, req := range requests {
		if req.Host != "example.org:8000" || req.Header.Get("Authorization") != "Basic dTpw" {
			t.Errorf("%s: Host %q, Authorization %q", req.URL, req.Host, req.Header.Get("Authorization"))
		}
	}
	if len(requests) != 2 || requests[1].URL.String() != "/socket.io/?EIO=4&transport=websocket" {
		t.Errorf("requests: %v", requests)
	}
}

// TestS6_ResultsOfOthers: a second host's results are neither taken nor acked.
func TestS6_ResultsOfOthers(t *testing.T) {
	l := newListener(t)
	done := make(chan struct{})
	l.serveNeighbour(neighbourHealth, func(_ int, p *peer) {
		p.joinNeighbour()
		p.answerProbe()
		for _, id := range []string{"mine", "mine.other", ".tag", "no good.tag", "5f0c", "mine.tag"} {
			p.event("/rpc", wire.EventCallResult, map[string]any{"call_id": id, "value": []byte(id)})
			p.event("/rpc", wire.EventCallError, map[string]any{"call_id": id, "error": map[string]any{"type": "X", "message": id}})
		}
		close(done)
		p.idle()
	})
	h := &recorder{}
	startNeighbour(t, l, h, nil)
	<-done
	await.True(t, func() bool { return get(h, func(r *recorder) int { return len(r.errors) }) == 1 }, "the error")
	if got := get(h, func(r *recorder) []wire.Result { return r.results }); len(got) != 1 || got[0].CallID != "mine" || string(got[0].Value) != "mine.tag" {
		t.Errorf("results: %+v", got)
	}
}

// TestS6_ResumeAfterReconnect: calls are asked for again only after a reconnect, not at
// once, and those that never left are told.
func TestS6_ResumeAfterReconnect(t *testing.T) {
	l := newListener(t)
	type seen struct {
		at  time.Time
		ids []string
	}
	resumes := make(chan seen, 10)
	joined := make(chan time.Time, 10)
	l.serveNeighbour(neighbourHealth, func(n int, p *peer) {
		p.joinNeighbour()
		if n == 0 {
			p.answerProbe()
			return
		}
		joined <- time.Now()
		for {
			var r wire.Resume
			p.readEvent(wire.EventResume, &r)
			if r.Fence || r.Epoch != 0 || r.Again {
				panic(hangup{errors.New("a field of ours")})
			}
			resumes <- seen{time.Now(), r.CallIDs}
		}
	})
	h := &recorder{resume: Resume{CallIDs: []string{"a", "b"}}}
	startNeighbour(t, l, h, nil)
	at := <-joined
	got := <-resumes
	if diff := cmp.Diff([]string{"a.tag", "b.tag"}, got.ids); diff != "" {
		t.Error(diff)
	}
	if got.at.Sub(at) < 10*time.Millisecond {
		t.Error("resumed at once: calls of the connection before may still be on their way")
	}
}

// TestWorkerThatDoesNotStart: the probe tells.
func TestWorkerThatDoesNotStart(t *testing.T) {
	for kind, ready := range map[string]bool{"RuntimeError": false, "TimeoutError": false, wire.ErrWorkerDied: false, "ModuleNotFoundError": true} {
		l := newListener(t)
		l.serveNeighbour(neighbourHealth, func(_ int, p *peer) {
			p.joinNeighbour()
			var c wire.Call
			p.readEvent(wire.EventCall, &c)
			p.event("/rpc", wire.EventCallError, map[string]any{"call_id": c.CallID, "error": map[string]any{"type": kind, "message": "boom"}})
			p.idle()
		})
		link := startNeighbour(t, l, &recorder{}, nil)
		_, err := link.WaitReady(t.Context())
		if ready != (err == nil) || !ready && (!errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), kind+": boom")) {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}

// TestS3_Health: what is no health is no runtime, and a redirect is not followed.
func TestS3_Health(t *testing.T) {
	for name, answer := range map[string]string{
		"redirect": "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
		"401":      "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
		"503":      "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
		"no JSON":  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"array":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
		"version":  "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"version\":1}",
		"endless":  "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{\"version\":\"" + strings.Repeat("x", 70000),
		"garbage":  "\x00\x01\x02\r\n\r\n",
		"headers":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
	} {
		l := newListener(t)
		var upgrades atomic.Int64
		l.serve(func(_ int, p *peer) {
			if p.request().URL.Path != "/health" {
				upgrades.Add(1)
			}
			p.write([]byte(answer))
		})
		link := startNeighbour(t, l, &recorder{}, nil)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 60*time.Millisecond, errors.New("enough"))
		want := errs.FailedPrecondition
		if name == "garbage" || name == "headers" || name == "503" { // it may pass
			want = errs.Unavailable
		}
		if _, err := link.WaitReady(ctx); !errs.Is(err, want) {
			t.Errorf("%s: got %v", name, err)
		}
		cancel()
		if upgrades.Load() > 0 {
			t.Errorf("%s: the link went on", name)
		}
	}
}

// TestOursIsSpokenToAsOurs: a foreign runtime that tells our capabilities gets our side of
// the wire, one that tells too few the public protocol.
func TestOursIsSpokenToAsOurs(t *testing.T) {
	capable := `{"status":"ok","version":"1","capabilities":["fence","encoding","deadline","owned-results","sid-ack"]}`
	l := newListener(t)
	l.serveNeighbour(capable, func(_ int, p *peer) {
		p.joinOpened()
		p.idle()
	})
	link := startNeighbour(t, l, &recorder{}, nil)
	if _, err := link.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if peer, _ := link.PeerIn(link.Session()); peer.Neighbour || peer.Life != "stream" {
		t.Errorf("got %+v", peer)
	}
	for _, health := range []string{
		strings.Replace(capable, `"fence",`, "", 1), strings.Replace(capable, `["fence"`, `[1,"fence"`, 1), `{"version":"1","capabilities":{}}`,
	} {
		h, err := decodeHealth([]byte(health))
		if err != nil || ours(h) {
			t.Errorf("%s: got %+v, %v", health, h, err)
		}
	}
}

// TestGuardedOursAdmitsNeighbours: where we are not admitted as a daemon, we are a neighbour.
func TestGuardedOursAdmitsNeighbours(t *testing.T) {
	l := newListener(t)
	health := `{"version":"1","capabilities":["fence","encoding","deadline","owned-results","sid-ack"]}`
	l.serveNeighbour(health, func(n int, p *peer) {
		if n == 0 {
			p.readText()
			p.text(`44/rpc,{"message":"unauthorized"}`)
			p.idle()
		}
		p.joinNeighbour()
		p.answerProbe()
		p.idle()
	})
	link := startNeighbour(t, l, &recorder{}, nil)
	if _, err := link.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}
