package dispatch

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// neighbour makes a sandbox whose runtime speaks the public protocol only.
func (r *rig) neighbour(id string) (*fakeLink, link.Handler) {
	r.t.Helper()
	l, h := r.sandbox(id)
	l.mu.Lock()
	l.peer = link.Peer{Neighbour: true}
	l.mu.Unlock()
	h.Disconnected(nil, errors.New("it was one of ours"))
	h.Connected(link.Peer{Neighbour: true})
	return l, h
}

const (
	pickledPair  = "\x80\x04K\x01K\x02\x86." // (1, 2)
	pickledClass = "\x80\x04\x8c\x01m\x8c\x01C\x93)\x81}\x8c\x01xK\x01sb."
)

// TestPickleForNeighbours: arguments and values in each encoding, and what has none.
func TestPickleForNeighbours(t *testing.T) {
	for name, c := range map[string]struct {
		request   Request
		arguments string // empty = refused
		value     string
		want      string // "encoding value", or the error's type
	}{
		"json":    {Request{Args: "[1]", Kwargs: `{"b": 2}`}, "\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00K\x01\x85\x94}\x94\x8c\x01b\x94K\x02s\x86\x94.", pickledPair, "json [1,2]"},
		"none":    {Request{}, "\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00)}\x94\x86\x94.", "\x80\x04N.", "json null"},
		"msgpack": {Request{Encoding: wire.EncodingMsgpack, Arguments: []byte("\x92\x90\x80")}, "\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00)}\x94\x86\x94.", "\x80\x04C\x02\x00\xff.", "msgpack \xc4\x02\x00\xff"},
		"pickle":  {Request{Encoding: wire.EncodingPickle, Arguments: []byte("anything")}, "anything", "\x80\x04K\x07.", "pickle \x80\x04K\x07."},
		"mixed":   {Request{Encoding: wire.EncodingPickle, Arguments: []byte("x"), ResultEncoding: wire.EncodingJSON}, "x", "\x80\x04K\x07.", "json 7"},
		"class":   {Request{}, "\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00)}\x94\x86\x94.", pickledClass, `json {"$class":"m.C","state":{"x":1}}`},
		"no form": {Request{}, "\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00)}\x94\x86\x94.", "\x80\x04\x8c\x08builtins\x8c\x07complex\x93G\x00\x00\x00\x00\x00\x00\x00\x00G\x00\x00\x00\x00\x00\x00\x00\x00\x86R.", wire.ErrResultEncode},
		"garbage": {Request{}, "\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00)}\x94\x86\x94.", "garbage", errResultDecode},
		"ext":     {Request{Encoding: wire.EncodingMsgpack, Arguments: []byte("\x92\x91\xd4\x05\x00\x80")}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			l, h := r.neighbour("box")
			c.request.CallID = "c"
			c.request.Baggage = map[string]string{"tenant": "acme"}
			done := r.remote(t.Context(), c.request)
			if c.arguments == "" {
				if a := <-done; !errs.Is(a.err, errs.InvalidArgument) || len(r.openCalls()) != 0 {
					t.Errorf("got %+v, %v", a.outcome, a.err)
				}
				return
			}
			awaitSent(t, l, "c")
			sent := l.calls[0]
			if string(sent.Arguments) != c.arguments || !strings.Contains(string(sent.Context), "acme") {
				t.Errorf("arguments %q, context %q", sent.Arguments, sent.Context)
			}
			if sent.Encoding != "" || sent.ResultEncoding != "" || sent.TimeoutMS != 0 || sent.Baggage != nil || sent.Traceparent != "" {
				t.Errorf("a field of ours was sent: %+v", sent)
			}
			h.Result(wire.Result{CallID: "c", Value: []byte(c.value), Encoding: "json"}) // which it cannot know
			a := <-done
			got := a.outcome.Encoding + " " + string(a.outcome.Value)
			if a.outcome.Error != nil {
				got = a.outcome.Error.Type
			}
			if a.err != nil || got != c.want {
				t.Errorf("got %q, %+v, %v", got, a.outcome.Error, a.err)
			}
		})
	}
}

// TestNeighboursTimeoutIsKeptHere: it is never told, so nothing is waited for beyond it.
func TestNeighboursTimeoutIsKeptHere(t *testing.T) {
	r := newRig(t)
	l, _ := r.neighbour("box")
	done := r.remote(t.Context(), Request{CallID: "c", Timeout: time.Second})
	awaitSent(t, l, "c")
	r.clock.Advance(time.Second)
	if a := <-done; a.err != nil || a.outcome.Error.Type != wire.ErrDeadlineExceeded {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
	if _, cancels, _ := l.seen(); !slices.Equal(cancels, []string{"c"}) {
		t.Errorf("cancelled %v", cancels)
	}
}

// TestRestoredNeighbourCall: the encoding that was asked for is that of whoever asks again.
func TestRestoredNeighbourCall(t *testing.T) {
	r := newRig(t)
	l, _ := r.neighbour("box")
	first := r.remote(t.Context(), Request{CallID: "c", Args: "[1]"})
	awaitSent(t, l, "c")
	r.close()
	<-first
	r.open()
	_, h := r.neighbour("box")
	h.Result(wire.Result{CallID: "c", Value: []byte(pickledPair)})
	for range 2 {
		if a := <-r.remote(t.Context(), Request{CallID: "c", Args: "[1]"}); a.err != nil || a.outcome.Encoding != wire.EncodingJSON || string(a.outcome.Value) != "[1,2]" {
			t.Errorf("got %+v, %v", a.outcome, a.err)
		}
	}
}

// TestNeighbourStreams: each has its cursor, and its own acks.
func TestNeighbourStreams(t *testing.T) {
	r := newRig(t)
	l, h := r.neighbour("box")
	record := wire.Record{Kind: wire.RecordOutput, Stream: "stdout", Bytes: []byte("x")}
	h.Records(wire.Batch{Stream: "/log", Sid: "s", Seq: 1, Records: []wire.Record{record, record}})
	h.Records(wire.Batch{Stream: "/trace", Sid: "s", Seq: 1, Records: []wire.Record{record}})
	h.Records(wire.Batch{Stream: "/log", Records: []wire.Record{record}})
	await.True(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.recorded["/logs"] == 2 && l.recorded["/traces"] == 1
	}, "the acks")
	h.Disconnected(nil, errors.New("cut"))
	got := h.Connected(link.Peer{Neighbour: true})
	if got.Streams["/log"] != (link.Position{Sid: "s", Seq: 2}) || got.Streams["/trace"] != (link.Position{Sid: "s", Seq: 1}) || len(got.Streams) != 2 {
		t.Errorf("got %+v", got)
	}
}

// TestUnsentCallsAreSentLater: what did not leave with a connection leaves with the next one.
func TestUnsentCallsAreSentLater(t *testing.T) {
	r := newRig(t)
	l, h := r.neighbour("box")
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	l.set(0)
	h.Disconnected([]string{"c", "unknown"}, errors.New("cut"))
	if got := h.Connected(link.Peer{Neighbour: true}); len(got.CallIDs)+len(got.Again) != 0 {
		t.Errorf("resume %+v", got)
	}
	l.set(2)
	await.True(t, func() bool { ids, _, _ := l.seen(); return len(ids) == 2 }, "the call to be sent")
	h.Result(wire.Result{CallID: "c", Value: []byte("\x80\x04K\x01.")})
	if a := <-done; a.err != nil || string(a.outcome.Value) != "1" {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}

// TestR2_SentAgainOnlyInOneLife: a call that our runtime never got is sent again to the very
// life that says so, once for each time it was asked; another life may have run it.
func TestR2_SentAgainOnlyInOneLife(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	life := func(name string, session uint64) link.Resume {
		l.set(0)
		h.Disconnected(nil, errors.New("cut"))
		l.mu.Lock()
		l.peer = link.Peer{Life: name}
		l.mu.Unlock()
		resume := h.Connected(link.Peer{Life: name})
		l.set(session)
		return resume
	}
	life("a", 2)
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	missing := wire.CallError{CallID: "c", Error: &wire.Error{Type: wire.ErrNotReceived}}
	for n := range 2 {
		if got := life("a", uint64(3+n)); !slices.Equal(got.Again, []string{"c"}) || len(got.CallIDs) != 0 {
			t.Fatalf("resume %+v", got)
		}
		h.CallError(missing)
		await.True(t, func() bool { ids, _, _ := l.seen(); return len(ids) == 2+n }, "the call to be sent again")
	}
	if got := life("b", 9); len(got.Again) != 0 || !slices.Equal(got.CallIDs, []string{"c"}) {
		t.Errorf("resume in another life: %+v", got)
	}
	h.CallError(missing) // nobody asked for that
	if a := <-done; a.err != nil || a.outcome.Error.Type != wire.ErrResultUnavailable {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
	if ids, _, _ := l.seen(); len(ids) != 3 {
		t.Errorf("sent %d times", len(ids))
	}
}

// TestR3_UnreachableRuntime: calls do not wait for ever for a runtime that is gone.
func TestR3_UnreachableRuntime(t *testing.T) {
	r := newRig(t)
	l, h := r.neighbour("box")
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	l.set(0)
	h.Disconnected(nil, errors.New("cut"))
	r.clock.Advance(unreachable - time.Second)
	h.Connected(link.Peer{Neighbour: true}) // just in time
	l.set(2)
	r.clock.Advance(2 * unreachable)
	select {
	case a := <-done:
		t.Fatalf("ended although connected: %+v, %v", a.outcome, a.err)
	default:
	}
	l.set(0)
	h.Disconnected(nil, errors.New("cut"))
	r.clock.Advance(unreachable)
	if a := <-done; a.err != nil || a.outcome.Error.Type != wire.ErrResultUnavailable {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}
