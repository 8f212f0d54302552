package link

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

// logEvent is one envelope on /log.
func (p *peer) logEvent(sid string, seq int, message string) {
	p.event("/log", wire.EventRecord, map[string]any{"_sid": sid, "_seq": seq, "data": map[string]any{"name": "app", "message": message, "created": 1.5}})
}

// flat is what a handler got: stream, sender, number and kind or text of each record.
func flat(batches []wire.Batch) []string {
	var all []string
	for _, b := range batches {
		for i, r := range b.Records {
			text := r.Kind
			switch r.Kind {
			case wire.RecordLog:
				text, _ = peekText(r.Data, "message")
			case wire.RecordOutput:
				text = r.Stream + " " + string(r.Bytes)
			case wire.RecordSpan:
				text = r.Event + " " + r.CallID
			case wire.RecordPlugin:
				text = r.Namespace + " " + r.Event
			}
			all = append(all, fmt.Sprintf("%s %s %d %s", b.Stream, b.Sid, b.Seq+uint64(i), text))
		}
	}
	return all
}

// expect runs a script on a joined connection and asserts what the handler got.
func expect(t *testing.T, at Resume, script func(p *peer), want ...string) *Link {
	t.Helper()
	l := newListener(t)
	l.serveNeighbour(neighbourHealth, func(_ int, p *peer) {
		p.joinNeighbour()
		p.answerProbe()
		script(p)
		p.idle()
	})
	h := &recorder{resume: at}
	link := startNeighbour(t, l, h, nil)
	got := func() []string { return flat(get(h, func(r *recorder) []wire.Batch { return r.batches })) }
	await.True(t, func() bool { return len(got()) >= len(want) }, "the records")
	if diff := cmp.Diff(want, got()); diff != "" {
		t.Error(diff)
	}
	if ends := get(h, func(r *recorder) int { return len(r.disconnected) }); ends != 0 {
		t.Errorf("the connection ended %d times", ends)
	}
	return link
}

// TestS10_LiveBeforeReplay: live records that overtake the replay wait for it.
func TestS10_LiveBeforeReplay(t *testing.T) {
	at := Resume{Streams: map[string]Position{"/log": {Sid: "s", Seq: 40}}}
	expect(t, at, func(p *peer) {
		for _, seq := range []int{44, 45, 41, 42, 43, 44, 45, 46} { // two live ones, the replay, the next
			p.logEvent("s", seq, "m")
		}
	}, "/log s 41 m", "/log s 42 m", "/log s 43 m", "/log s 44 m", "/log s 45 m", "/log s 44 m", "/log s 45 m", "/log s 46 m")
}

// TestS10_ReplayWithAHole: what the ring no longer had is not waited for once the replay has
// come as far as what overtook it; the journal tells the hole.
func TestS10_ReplayWithAHole(t *testing.T) {
	at := Resume{Streams: map[string]Position{"/log": {Sid: "s", Seq: 40}}}
	expect(t, at, func(p *peer) {
		for _, seq := range []int{50, 48, 49, 50} {
			p.logEvent("s", seq, "m")
		}
	}, "/log s 48 m", "/log s 49 m", "/log s 50 m")
}

// TestS10_HoleIsGivenUp: records that never come are waited for only so long.
func TestS10_HoleIsGivenUp(t *testing.T) {
	expect(t, Resume{}, func(p *peer) { p.logEvent("s", 7, "late"); p.logEvent("s", 9, "later") }, "/log s 7 late", "/log s 9 later")
}

// TestS10_SenderReplaced: a worker that was replaced while nobody was there has its first
// records asked for, and acks of the one before are not sent to it.
func TestS10_SenderReplaced(t *testing.T) {
	l := newListener(t)
	acks := make(chan uint64, 100)
	l.serveNeighbour(neighbourHealth, func(_ int, p *peer) {
		p.joinNeighbour()
		p.answerProbe()
		p.logEvent("old", 41, "old")
		p.logEvent("new", 3, "third")
		var r wire.StreamResume
		p.readEvent(wire.EventStreamResume, &r)
		for seq := 1; seq <= 3; seq++ {
			p.logEvent("new", seq, "again")
		}
		for {
			var a wire.StreamAck
			p.readEvent(wire.EventStreamAck, &a)
			acks <- a.Seq
		}
	})
	h := &recorder{resume: Resume{Streams: map[string]Position{"/log": {Sid: "old", Seq: 40}}}}
	link := startNeighbour(t, l, h, nil)
	want := []string{"/log old 41 old", "/log new 1 again", "/log new 2 again", "/log new 3 third", "/log new 3 again"}
	await.True(t, func() bool { return len(get(h, func(r *recorder) []wire.Batch { return r.batches })) >= 4 }, "the records")
	await.True(t, func() bool {
		return len(flat(get(h, func(r *recorder) []wire.Batch { return r.batches }))) >= len(want)
	}, "the records")
	if diff := cmp.Diff(want, flat(get(h, func(r *recorder) []wire.Batch { return r.batches }))); diff != "" {
		t.Error(diff)
	}
	link.AckRecords("/log", "old", 41)
	link.AckRecords("/log", "new", 2)
	if seq := <-acks; seq != 2 {
		t.Errorf("ack %d", seq)
	}
}

// TestS11_S12_Records: what each event becomes.
func TestS11_S12_Records(t *testing.T) {
	span := map[string]any{"trace_id": "t", "call_id": "c.tag", "span_id": "s", "name": "n"}
	foreign := map[string]any{"trace_id": "t", "call_id": "c.other", "span_id": "s", "name": "n"}
	line := func(name, stream string) map[string]any {
		return map[string]any{"name": name, "message": "hi", "created": 1.5, "extras": map[string]any{"agentix_stream": stream, "worker_id": "w"}}
	}
	envelope := func(seq int, data any) map[string]any {
		return map[string]any{"data": data, "_seq": seq, "_sid": "s"}
	}
	expect(t, Resume{}, func(p *peer) {
		p.event("/log", "record", envelope(1, line("agentix.sandbox.stdout", "stdout")))
		p.event("/log", "record", envelope(2, line("agentix.sandbox.stderr", "stderr")))
		p.event("/log", "record", envelope(3, line("agentix.sandbox.stdout", "stderr"))) // not a captured line
		p.event("/log", "record", envelope(4, "no map"))
		p.event("/log", "other", envelope(5, map[string]any{"x": 1}))
		p.event("/log", "record", map[string]any{"name": "app", "message": "no envelope"})
		p.event("/log", "record", map[string]any{"_sid": "s", "_seq": "six", "data": 1, "message": "no number"})
		p.event("/log", "record", map[string]any{"_seq": -1, "data": map[string]any{"message": "no number"}})
		p.event("/log", "record", 7)
		p.event("/log", "record", envelope(6, line("app", "")))
	}, "/log s 1 stdout hi\n", "/log s 2 stderr hi\n", "/log s 3 hi", "/log s 4 gap", "/log s 5 /log other", "/log  0 no envelope", "/log  0 no number", "/log s 6 hi")
	expect(t, Resume{}, func(p *peer) {
		p.event("/trace", "span_start", envelope(1, span))
		p.event("/trace", "span_end", envelope(2, foreign))
		p.event("/trace", "span_middle", envelope(3, span))
		p.event("/trace", "trace_start", span) // no envelope: the whole map is it
		p.event("/trace", "trace_end", envelope(4, span))
	}, "/trace s 1 span_start c", "/trace s 2 span_end ", "/trace s 3 gap", "/trace  0 trace_start c", "/trace s 4 trace_end c")
}

// TestR10_HostileNeighbour: each of these costs at most itself.
func TestR10_HostileNeighbour(t *testing.T) {
	deep := append(bytes.Repeat([]byte{0x91}, 1000000), 0xc0)
	raw := func(namespace, event string, payload []byte) func(p *peer) {
		return func(p *peer) { p.frame(1, eventHeader(namespace, event)); p.binary(payload) }
	}
	huge := func(seq byte) []byte { // a record over the limit, its number in front
		b := append([]byte("\x83\xa4_sid\xa1s\xa4_seq"), seq)
		b = append(b, "\xa4data\xc6\x02\x00\x00\x00"...)
		return append(b, make([]byte, 0x2000000)...)
	}
	for name, script := range map[string]func(p *peer){
		"no msgpack":        raw("/log", "record", []byte{0xc1}),
		"empty":             raw("/log", "record", nil),
		"deep":              raw("/log", "record", deep),
		"deep data":         raw("/log", "record", append([]byte("\x83\xa4_sid\xa1s\xa4_seq\x01\xa4data"), deep...)),
		"number too large":  raw("/log", "record", []byte("\x82\xa4_sid\xa1s\xa4_seq\xcf\xff\xff\xff\xff\xff\xff\xff\xff")),
		"integer keys":      raw("/log", "record", []byte("\x81\x01\x02")),
		"claimed size":      raw("/log", "record", []byte("\xdf\xff\xff\xff\xff\xa4_seq")),
		"huge, unnumbered":  raw("/log", "record", append([]byte("\x81\xa1x\xc6\x02\x00\x00\x00"), make([]byte, 0x2000000)...)),
		"result, no id":     raw("/rpc", "call:result", []byte("\x81\xa5value\xc4\x01x")),
		"result, no map":    raw("/rpc", "call:result", []byte("\xa1x")),
		"result, bad id":    raw("/rpc", "call:result", []byte("\x81\xa7call_id\x07")),
		"result, never ran": raw("/rpc", "call:result", []byte("\x82\xa7call_id\xaanever.tag2\xa5value\xc4\x00")),
		"error, no map":     raw("/rpc", "call:error", []byte("\x93\x01\x02\x03")),
		"other event":       raw("/rpc", "call:other", []byte("\x80")),
		"other namespace":   raw("/plugin", "x", []byte("\x80")),
		"ready":             func(p *peer) { p.event("/rpc", wire.EventReady, wire.Ready{WorkerOK: true}) },
		"our records":       func(p *peer) { p.event("/log", wire.EventRecords, wire.Batch{Sid: "x", Seq: 1}) },
		"text event":        func(p *peer) { p.text(`42/rpc,["call:result",1]`) },
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			expect(t, Resume{Streams: map[string]Position{"/log": {Sid: "z", Seq: 1}}}, func(p *peer) {
				script(p)
				p.logEvent("z", 2, "after")
				close(done)
			}, append(map[string][]string{"deep data": {"/log s 1 gap"}, "our records": {"/log x 1 gap"}}[name], "/log z 2 after")...)
		})
	}
	t.Run("huge", func(t *testing.T) {
		expect(t, Resume{}, func(p *peer) {
			p.logEvent("s", 1, "before")
			p.frame(1, eventHeader("/log", "record"))
			p.binary(huge(2))
			p.logEvent("s", 3, "after")
		}, "/log s 1 before", "/log s 2 gap", "/log s 3 after")
	})
}

// TestR12_SenderThatChangesAlways: each record of another sender: they are handed over as
// they come, and what is asked in return is bounded.
func TestR12_SenderThatChangesAlways(t *testing.T) {
	const n = 3000
	l := newListener(t)
	l.serveNeighbour(neighbourHealth, func(_ int, p *peer) {
		p.joinNeighbour()
		p.answerProbe()
		for k := range n {
			p.logEvent(fmt.Sprint(k), 5, "m")
		}
		p.idle()
	})
	h := &recorder{}
	startNeighbour(t, l, h, func(link *Link) { link.timing.hold = time.Hour })
	await.True(t, func() bool { return len(get(h, func(r *recorder) []wire.Batch { return r.batches })) >= n-1 }, "the records")
}

// TestR12_HeldRecordsAreBounded: a flood behind a hole is handed over when it is too much.
func TestR12_HeldRecordsAreBounded(t *testing.T) {
	l := newListener(t)
	text := strings.Repeat("x", 1<<20)
	l.serveNeighbour(neighbourHealth, func(_ int, p *peer) {
		p.joinNeighbour()
		p.answerProbe()
		for seq := 2; seq < 20; seq++ {
			p.logEvent("s", seq, text)
		}
		p.idle()
	})
	h := &recorder{}
	startNeighbour(t, l, h, func(link *Link) { link.timing.hold = time.Hour })
	await.True(t, func() bool { return len(get(h, func(r *recorder) []wire.Batch { return r.batches })) > 0 }, "the records")
	if got := get(h, func(r *recorder) wire.Batch { return r.batches[0] }); got.Seq != 2 || len(got.Records) > 9 {
		t.Errorf("%d records from %d", len(got.Records), got.Seq)
	}
}

// TestMalformedOutcomes: an outcome that cannot be read ends its call, if that can be told.
func TestMalformedOutcomes(t *testing.T) {
	l := newListener(t)
	tail := make([]byte, 20<<20)
	l.serveNeighbour(neighbourHealth, func(_ int, p *peer) {
		p.joinNeighbour()
		p.answerProbe()
		p.frame(1, eventHeader("/rpc", "call:result"))
		p.binary([]byte("\x82\xa7call_id\xa5a.tag\xa5value\x07"))
		p.frame(1, eventHeader("/rpc", "call:error"))
		p.binary([]byte("\x81\xa7call_id\xa5b.tag"))
		p.frame(1, eventHeader("/rpc", "call:error"))
		p.binary(append([]byte("\x82\xa7call_id\xa5c.tag\xa5error\x81\xa9traceback\xdb\x01\x40\x00\x00"), tail...))
		p.event("/rpc", "call:error", map[string]any{"call_id": "d.tag", "error": map[string]any{"type": "T", "message": "m", "extra": msgpack.RawMessage{0xc0}}})
		p.idle()
	})
	h := &recorder{}
	startNeighbour(t, l, h, nil)
	await.True(t, func() bool { return len(get(h, func(r *recorder) []wire.CallError { return r.errors })) >= 4 }, "the errors")
	var got []string
	for _, e := range get(h, func(r *recorder) []wire.CallError { return r.errors }) {
		got = append(got, e.CallID+" "+e.Error.Type)
	}
	if diff := cmp.Diff([]string{"a MalformedError", "b MalformedError", "c ", "d T"}, got); diff != "" {
		t.Error(diff)
	}
}
