package link

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

func TestCallAndOutcomes(t *testing.T) {
	l := newListener(t)
	var call wire.Call
	var cancelled, acked wire.CallRef
	done := make(chan struct{})
	l.serve(func(_ int, p *peer) {
		p.join()
		p.readEvent(wire.EventCall, &call)
		p.event(wire.NamespaceRPC, wire.EventCallResult, wire.Result{CallID: "c1", Value: []byte{1, 2}, Encoding: "json"})
		p.event(wire.NamespaceRPC, wire.EventCallError, wire.CallError{CallID: "c2", Error: &wire.Error{Type: "ValueError", Message: "no"}})
		p.readEvent(wire.EventCancel, &cancelled)
		p.readEvent(wire.EventAck, &acked)
		close(done)
		p.idle()
	})
	h := &recorder{}
	link := start(t, l, h, nil)
	health, err := link.WaitReady(t.Context())
	if err != nil || !health.Ready || health.Python != "3.11.2" {
		t.Fatalf("WaitReady = %+v, %v", health, err)
	}
	want := wire.Call{CallID: "c1", Callable: "app::run", Arguments: []byte("[[],{}]"), Encoding: "json", TimeoutMS: 5}
	if err := link.Call(t.Context(), &want); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool {
		return get(h, func(r *recorder) bool { return len(r.results) == 1 && len(r.errors) == 1 })
	}, "both outcomes")
	link.Cancel("c3")
	link.AckResult("c1")
	<-done
	if diff := cmp.Diff(call, want); diff != "" {
		t.Error(diff)
	}
	if cancelled.CallID != "c3" || acked.CallID != "c1" {
		t.Errorf("cancelled %q, acked %q", cancelled.CallID, acked.CallID)
	}
	if diff := cmp.Diff(h.results[0], wire.Result{CallID: "c1", Value: []byte{1, 2}, Encoding: "json"}); diff != "" {
		t.Error(diff)
	}
	if h.errors[0].Error.Type != "ValueError" {
		t.Errorf("error %+v", h.errors[0].Error)
	}
}

// What goes on in a sandbox although its call is over is told at the connect and later.
func TestStoppedCalls(t *testing.T) {
	l := newListener(t)
	l.serve(func(_ int, p *peer) {
		p.upgrade()
		p.text(openPacket)
		many := append(slices.Repeat([]string{"NOT-AN-ID"}, 5000), "a", "b")
		for range 2 {
			s := p.readText()
			p.text(s[:7] + `{"sid":"N"}`)
			p.event(s[2:6], wire.EventReady, wire.Ready{Sid: "stream", WorkerOK: true, Capabilities: []string{wire.CapRetire}, StillRunning: many})
		}
		var r wire.StreamResume
		p.readEvent(wire.EventStreamResume, &r)
		p.event(wire.NamespaceRPC, wire.EventCallStopped, wire.CallRef{CallID: "NOT-AN-ID"})
		p.event(wire.NamespaceRPC, wire.EventCallStopped, wire.CallRef{CallID: "a"})
		p.idle()
	})
	h := &recorder{}
	start(t, l, h, nil)
	await.True(t, func() bool { return len(get(h, func(r *recorder) []string { return r.stopped })) > 0 }, "the stopped call")
	peer := get(h, func(r *recorder) Peer { return r.peer })
	if diff := cmp.Diff([]string{"a", "b"}, peer.StillRunning); diff != "" || len(peer.Health.Capabilities) != 1 {
		t.Errorf("peer %+v", peer)
	}
	if diff := cmp.Diff([]string{"a"}, get(h, func(r *recorder) []string { return r.stopped })); diff != "" {
		t.Error(diff)
	}
}

func TestHandshakeCarriesAuth(t *testing.T) {
	l := newListener(t)
	connects := make(chan string, 2)
	l.serve(func(_ int, p *peer) {
		p.upgrade()
		p.text(openPacket)
		connects <- p.readText()
		connects <- p.readText()
		p.idle()
	})
	start(t, l, &recorder{}, nil)
	for _, namespace := range []string{"/rpc", "/log"} {
		payload, found := strings.CutPrefix(<-connects, "40"+namespace+",")
		var auth wire.Auth
		if err := json.Unmarshal([]byte(payload), &auth); !found || err != nil {
			t.Fatalf("CONNECT of %s: %v, %v", namespace, found, err)
		}
		if auth.Token != "secret" || auth.Role != "daemon" || auth.Epoch != 7 || len(auth.Capabilities) == 0 {
			t.Errorf("auth %+v", auth)
		}
	}
}

func TestReconnectResumes(t *testing.T) {
	l := newListener(t)
	resumes := make(chan wire.Resume, 10)
	streams := make(chan wire.StreamResume, 10)
	l.serve(func(n int, p *peer) {
		p.upgrade()
		p.text(openPacket)
		for range 2 {
			s := p.readText()
			p.text(s[:7] + `{"sid":"N"}`)
			p.event(s[2:6], wire.EventReady, wire.Ready{WorkerOK: true})
		}
		var sr wire.StreamResume
		p.readEvent(wire.EventStreamResume, &sr)
		streams <- sr
		var r wire.Resume
		p.readEvent(wire.EventResume, &r)
		resumes <- r
		if n > 0 {
			p.idle()
		}
	})
	h := &recorder{resume: Resume{Streams: map[string]Position{"": {Sid: "abc", Seq: 41}}, CallIDs: []string{"x", "y"}}}
	link := start(t, l, h, nil)
	for range 2 {
		if diff := cmp.Diff(<-streams, wire.StreamResume{Sid: "abc", SinceSeq: 41}); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(<-resumes, wire.Resume{CallIDs: []string{"x", "y"}, Fence: true, Epoch: 7}); diff != "" {
			t.Error(diff)
		}
	}
	await.True(t, func() bool {
		return get(h, func(r *recorder) bool { return r.connected == 2 && len(r.disconnected) == 1 })
	}, "the reconnect")
	await.True(t, func() bool { return link.Session() == 2 }, "the second session")
	if err := link.CallIn(t.Context(), 1, &wire.Call{CallID: "old"}); !errs.Is(err, errs.Unavailable) {
		t.Errorf("call on an ended session: %v", err)
	}
}

func TestCallWhileDownIsUnavailable(t *testing.T) {
	l := newListener(t)
	link := New(Options{Dial: l.dial, Handler: &recorder{}})
	err := link.Call(t.Context(), &wire.Call{CallID: "c"})
	var e *errs.Error
	if !errors.As(err, &e) || e.Reason != errs.RuntimeUnavailable || e.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	link.Cancel("c")
	link.AckRecords("", "s", 1) // lost, not blocked
}

func TestWaitReady(t *testing.T) {
	t.Run("boot error", func(t *testing.T) {
		l := newListener(t)
		l.serve(func(_ int, p *peer) {
			p.upgrade()
			p.text(openPacket)
			for range 2 {
				s := p.readText()
				p.text(s[:7] + `{"sid":"N"}`)
				p.event(s[2:6], wire.EventReady, wire.Ready{})
			}
			p.event(wire.NamespaceRPC, wire.EventReady, wire.Ready{Error: "no python"})
			p.idle()
		})
		link := start(t, l, &recorder{}, nil)
		_, err := link.WaitReady(t.Context())
		if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "no python") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("later", func(t *testing.T) {
		l := newListener(t)
		l.serve(func(_ int, p *peer) {
			p.upgrade()
			p.text(openPacket)
			for range 2 {
				s := p.readText()
				p.text(s[:7] + `{"sid":"N"}`)
				p.event(s[2:6], wire.EventReady, wire.Ready{})
			}
			var r wire.StreamResume
			p.readEvent(wire.EventStreamResume, &r)
			p.event(wire.NamespaceRPC, wire.EventReady, wire.Ready{WorkerOK: true, Python: "3.12"})
			p.idle()
		})
		link := start(t, l, &recorder{}, nil)
		h, err := link.WaitReady(t.Context())
		if err != nil || h.Python != "3.12" {
			t.Errorf("got %+v, %v", h, err)
		}
	})
	t.Run("never", func(t *testing.T) {
		l := newListener(t)
		link := New(Options{Dial: l.dial, Handler: &recorder{}})
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("enough"))
		defer cancel()
		if _, err := link.WaitReady(ctx); !errs.Is(err, errs.Unavailable) {
			t.Errorf("got %v", err)
		}
	})
}

func TestPongsWhileHandlerBlocks(t *testing.T) {
	l := newListener(t)
	ponged := make(chan struct{})
	l.serve(func(_ int, p *peer) {
		p.join()
		for seq := range uint64(3) {
			p.event(wire.NamespaceLog, wire.EventRecords, wire.Batch{Sid: "stream", Seq: seq + 1, Records: []wire.Record{
				{Kind: wire.RecordOutput, Stream: "stdout", Bytes: []byte("x")},
			}})
		}
		for range 3 {
			p.text("2")
			for p.readText() != "3" {
			}
		}
		close(ponged)
		p.idle()
	})
	h := &recorder{gate: make(chan struct{})}
	start(t, l, h, nil)
	<-ponged
	close(h.gate)
	await.True(t, func() bool { return get(h, func(r *recorder) int { return len(r.batches) }) == 3 }, "the batches")
}

// A handler that is far behind stops the reader, memory stays bounded, and the heartbeat goes on.
func TestBackPressure(t *testing.T) {
	l := newListener(t)
	const batches = 64
	stalled := make(chan struct{})
	l.serve(func(_ int, p *peer) {
		p.upgrade()
		p.text(strings.Replace(openPacket, "25000", "1000", 1))
		p.joinOpened()
		sent := make(chan struct{})
		go func() { // ends with the connection or when all is sent
			defer close(sent)
			defer func() { _ = recover() }()
			for seq := range uint64(batches) {
				p.event(wire.NamespaceLog, wire.EventRecords, wire.Batch{Sid: "stream", Seq: seq + 1, Records: []wire.Record{
					{Kind: wire.RecordOutput, Stream: "stdout", Bytes: make([]byte, 1<<20)},
				}})
			}
		}()
		for p.readText() != "3" { // an unasked pong: the reader is stopped
		}
		close(stalled)
		<-sent
		p.idle()
	})
	h := &recorder{gate: make(chan struct{})}
	link := start(t, l, h, nil)
	<-stalled
	s := link.current()
	s.in.mu.Lock()
	queued := s.in.bytes
	s.in.mu.Unlock()
	if queued > maxInboxBytes+2<<20 {
		t.Errorf("%d bytes queued", queued)
	}
	close(h.gate)
	await.True(t, func() bool { return get(h, func(r *recorder) int { return len(r.batches) }) == batches }, "all batches")
	for n, b := range h.batches {
		if b.Seq != uint64(n+1) {
			t.Fatalf("batch %d has seq %d", n, b.Seq)
		}
	}
}

func TestAckRecordsCoalesces(t *testing.T) {
	l := newListener(t)
	acks := make(chan uint64, 100)
	l.serve(func(_ int, p *peer) {
		p.join()
		for {
			var a wire.StreamAck
			p.readEvent(wire.EventStreamAck, &a)
			acks <- a.Seq
		}
	})
	link := start(t, l, &recorder{}, nil)
	if _, err := link.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(1000) {
		link.AckRecords("", "stream", seq+1)
	}
	last := uint64(0)
	for last != 1000 {
		seq := <-acks
		if seq <= last {
			t.Fatalf("ack %d after %d", seq, last)
		}
		last = seq
	}
}

func TestDeadPeer(t *testing.T) {
	l := newListener(t)
	l.serve(func(n int, p *peer) {
		p.upgrade()
		p.text(`0{"sid":"S","pingInterval":1,"pingTimeout":-1}`)
		p.joinOpened()
		p.idle()
	})
	h := &recorder{}
	start(t, l, h, func(l *Link) { l.timing.watch = 50 * time.Millisecond })
	await.True(t, func() bool { return get(h, func(r *recorder) bool { return len(r.disconnected) > 0 }) }, "the dead peer's end")
	if err := h.disconnected[0]; !strings.Contains(err.Error(), "silent") {
		t.Errorf("got %v", err)
	}
}

func TestHealth(t *testing.T) {
	l := newListener(t)
	l.serve(func(n int, p *peer) {
		req := p.request()
		switch {
		case n == 0 && req.Header.Get("Authorization") == "Bearer secret":
			p.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 53\r\n\r\n" + `{"status":"ok","version":"1","ready":true,"python":0}`))
		case n == 1:
			p.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n" + `{"status":"ok","version":"1","ready":true  }`))
		case n == 2:
			p.write([]byte("HTTP/1.1 302 Found\r\nLocation: http://runtime/health\r\nContent-Length: 0\r\n\r\n"))
		default:
			p.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + strings.Repeat(" ", 999999)))
		}
	})
	if _, err := Health(t.Context(), l.dial, "secret"); !errors.Is(err, errProtocol) {
		t.Errorf("wrong type: %v", err)
	}
	if h, err := Health(t.Context(), l.dial, ""); err != nil || !h.Ready {
		t.Errorf("got %+v, %v", h, err)
	}
	if _, err := Health(t.Context(), l.dial, ""); !errors.Is(err, errRedirect) {
		t.Errorf("redirect: %v", err)
	}
	if _, err := Health(t.Context(), l.dial, ""); !errors.Is(err, errProtocol) {
		t.Errorf("too long: %v", err)
	}
}

func TestWaitSession(t *testing.T) {
	l := newListener(t)
	cut := make(chan struct{})
	l.serve(func(n int, p *peer) {
		p.join()
		if n == 0 {
			<-cut
			return
		}
		p.idle()
	})
	link := start(t, l, &recorder{}, nil)
	first, err := link.WaitSession(t.Context(), 0)
	if err != nil || first != 1 {
		t.Fatalf("got %d, %v", first, err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := link.WaitSession(ctx, first); err == nil || err.Error() != "enough" {
		t.Errorf("waiting for another session: %v", err)
	}
	close(cut)
	if second, err := link.WaitSession(t.Context(), first); err != nil || second != 2 {
		t.Errorf("got %d, %v", second, err)
	}
}

// A runtime that does not read fills the queue: TryCallIn says so, Call waits, and both end.
func TestFullQueue(t *testing.T) {
	l := newListener(t)
	read := make(chan struct{})
	var got sync.WaitGroup
	got.Add(12)
	l.serve(func(_ int, p *peer) {
		p.join()
		<-read
		for {
			var c wire.Call
			p.readEvent(wire.EventCall, &c)
			got.Done()
		}
	})
	link := start(t, l, &recorder{}, nil)
	session, err := link.WaitSession(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &wire.Call{CallID: "c", Arguments: make([]byte, 8<<20)}
	sent := 0
	for queued := true; queued; sent++ {
		if queued, err = link.TryCallIn(session, c); err != nil {
			t.Fatal(err)
		}
	}
	sent--
	if sent < 7 || sent > 9 { // 64 MiB, of which the socket takes little
		t.Errorf("%d calls of 8 MiB queued", sent)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := link.CallIn(ctx, session, c); !errs.Is(err, errs.Unavailable) {
		t.Errorf("full queue: %v", err)
	}
	link.Cancel("c") // never waits
	close(read)
	for ; sent < 12; sent++ {
		if err := link.CallIn(t.Context(), session, c); err != nil {
			t.Error(err)
		}
	}
	got.Wait()
}

func TestCallOverTheRuntimesLimit(t *testing.T) {
	l := newListener(t)
	l.serve(func(_ int, p *peer) {
		p.upgrade()
		p.text(`0{"sid":"S","pingInterval":25000,"pingTimeout":60000,"maxPayload":1000}`)
		p.joinOpened()
		p.idle()
	})
	link := start(t, l, &recorder{}, nil)
	session, err := link.WaitSession(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.TryCallIn(session, &wire.Call{CallID: "c", Arguments: make([]byte, 1000)}); !errs.Is(err, errs.ResourceExhausted) {
		t.Errorf("got %v", err)
	}
	if !link.Connected() {
		t.Error("the link did not survive")
	}
}
