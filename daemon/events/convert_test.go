package events

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentixd/agentixd/runtime/wire"
)

// take appends records and returns the events as read back from disk.
func take(t *testing.T, records ...wire.Record) []Event {
	t.Helper()
	j := open(t, t.TempDir(), Options{})
	j.AppendBatch("a", wire.Batch{Sid: "s", Seq: 1, Records: records}, nil)
	flush(t, j, "a")
	return readAll(t, j, Query{Sandbox: "a"})
}

func TestEachRecordKindBecomesItsEvent(t *testing.T) {
	at := time.Date(2026, 8, 1, 12, 0, 0, 123456000, time.UTC)
	seconds := float64(at.UnixMicro()) / 1e6
	got := take(t,
		wire.Record{Kind: wire.RecordLog, Time: seconds, CallID: "c1", Data: marshal(t, map[string]any{
			"name": "app", "level": "WARNING", "levelno": 30, "message": "größer", "pathname": "/p/app.py", "lineno": 7, "funcName": "run",
			"module": "app", "exc_text": "Traceback", "stack_info": "Stack", "created": 1.5, "agentix_context": "x", "extras": map[string]any{"n": 1, "f": 1.0},
		})},
		wire.Record{Kind: wire.RecordOutput, Time: seconds, Stream: "stderr", Bytes: []byte("\xff\x00\r\nhello")},
		wire.Record{Kind: wire.RecordSpan, Time: seconds, Event: "span_end", Data: marshal(t, map[string]any{
			"trace_id": "trace_1", "call_id": "c1", "span_id": "span_2", "parent_id": nil, "name": "step", "attrs": map[string]any{"k": "v"},
			"started_at": "2026-08-01T12:00:00.000001Z", "ended_at": "2026-08-01T12:00:01Z", "status": "error", "status_description": "bad",
			"error": map[string]any{"message": "m", "data": nil}, "events": []any{map[string]any{"name": "e"}},
		})},
		wire.Record{Kind: wire.RecordPlugin, Time: seconds, Namespace: "/abridge", Event: "note", Data: marshal(t, []any{1, []byte("b")})},
		wire.Record{Kind: wire.RecordGap, Time: seconds, Dropped: 5},
	)
	want := []Body{
		&Log{Logger: "app", Level: "WARNING", LevelNumber: 30, Message: "größer", Pathname: "/p/app.py", Line: 7, Function: "run", Module: "app",
			ExceptionText: "Traceback", StackInfo: "Stack", Extras: `{"f":1.0,"n":1}`},
		&Output{Stream: Stderr, Data: []byte("\xff\x00\r\nhello")},
		&Span{Phase: SpanEnd, TraceID: "trace_1", SpanID: "span_2", Name: "step", Attributes: `{"k":"v"}`,
			StartTime: time.Date(2026, 8, 1, 12, 0, 0, 1000, time.UTC), EndTime: time.Date(2026, 8, 1, 12, 0, 1, 0, time.UTC),
			Status: "error", StatusDescription: "bad", Error: `{"data":null,"message":"m"}`, Events: `[{"name":"e"}]`},
		&Plugin{Namespace: "/abridge", Event: "note", Data: `[1,"Yg=="]`, MsgpackData: marshal(t, []any{1, []byte("b")})},
		&Gap{Dropped: 5, Source: SourceRuntime},
	}
	var bodies []Body
	for i := range got {
		bodies = append(bodies, got[i].Body)
		if !got[i].Time.Equal(at) || got[i].Sandbox != "a" || got[i].Seq != uint64(i+1) {
			t.Errorf("event %d: %+v", i, got[i])
		}
	}
	if diff := cmp.Diff(want, bodies, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if got[0].CallID != "c1" || got[1].CallID != "" {
		t.Errorf("call ids: got %q and %q", got[0].CallID, got[1].CallID)
	}
}

func TestR10_HostileRecordsBecomeCountedGaps(t *testing.T) {
	deep := append(make([]byte, 0, 100002), 0x81, 0xa1, 'a')
	for range 100000 {
		deep = append(deep, 0x91)
	}
	deep = append(deep, 0xc0)
	bad := []wire.Record{
		{Kind: "nonsense"}, {},
		{Kind: wire.RecordLog}, {Kind: wire.RecordLog, Data: []byte{0xc1}}, {Kind: wire.RecordLog, Data: marshal(t, "no map")},
		{Kind: wire.RecordLog, Data: deep}, {Kind: wire.RecordLog, Data: []byte{0xdf, 0xff, 0xff, 0xff, 0xff}},
		{Kind: wire.RecordLog, Data: []byte{0x81, 1, 2}},
		{Kind: wire.RecordSpan, Event: "span_middle", Data: marshal(t, map[string]any{})}, {Kind: wire.RecordSpan, Event: "span_end", Data: []byte{0x80, 0x80}},
		{Kind: wire.RecordOutput, Stream: "stdin", Bytes: []byte("x")}, {Kind: wire.RecordOutput, Stream: "stdout", Bytes: make([]byte, wire.MaxEventBytes+1)},
		{Kind: wire.RecordPlugin, Namespace: "/p", Event: "e", Data: deep}, {Kind: wire.RecordPlugin, Data: nil},
	}
	records := append([]wire.Record{}, outputs("before")...)
	records = append(records, bad...)
	records = append(records, outputs("after")...)
	got := lines(take(t, records...))
	want := []string{"before", fmt.Sprintf("gap 0-0 %d runtime", len(bad)), "after"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestR10_HostileTextIsBoundedAndValid(t *testing.T) {
	huge := strings.Repeat("é", 1<<20)
	extras := map[string]any{"x": huge}
	got := take(t,
		wire.Record{Kind: wire.RecordLog, CallID: strings.Repeat("a", 64), Data: marshal(t, map[string]any{
			"name": huge, "level": 12, "levelno": "high", "message": huge, "pathname": huge, "lineno": uint64(math.MaxUint64), "funcName": []any{1},
			"exc_text": huge, "stack_info": huge, "extras": extras})},
		wire.Record{Kind: wire.RecordLog, CallID: "../x", Data: marshal(t, map[string]any{"message": "a\x00b", "extras": "none"})},
		wire.Record{Kind: wire.RecordSpan, Event: "trace_start", Data: marshal(t, map[string]any{"started_at": "yesterday", "ended_at": "9999-12-31T23:59:59Z", "events": extras, "error": 7})},
		wire.Record{Kind: wire.RecordPlugin, Namespace: "/\xff\x00", Event: "e", Data: marshal(t, 1)},
	)
	if len(got) != 4 {
		t.Fatalf("got %v", lines(got))
	}
	total := 0
	for i := range got {
		for _, s := range texts(got[i].Body) {
			if total += len(s); !utf8.ValidString(s) || strings.Contains(s, "\x00") || len(s) > wire.MaxTextBytes {
				t.Errorf("event %d: text of %d bytes", i, len(s))
			}
		}
		if got[i].CallID != "" {
			t.Errorf("call id %q", got[i].CallID)
		}
	}
	if total > 4<<20 {
		t.Errorf("texts of %d bytes", total)
	}
	log := got[0].Body.(*Log)
	if log.Level != "12" || log.LevelNumber != 0 || log.Line != math.MaxInt32 || log.Function != "[1]" {
		t.Errorf("level %q %d, line %d, function %q", log.Level, log.LevelNumber, log.Line, log.Function)
	}
	cut := len(huge) - (len(log.Message[:strings.Index(log.Message, "…")]))
	if want := fmt.Sprintf("… [%d bytes cut]", cut); !strings.HasSuffix(log.Message, want) {
		t.Errorf("message ends with %q, want %q", log.Message[len(log.Message)-40:], want)
	}
	if span := got[2].Body.(*Span); !span.StartTime.IsZero() || !span.EndTime.Equal(latest) || span.Error != "" || span.Events != "" {
		t.Errorf("span %+v", span)
	}
}

func texts(b Body) []string {
	switch b := b.(type) {
	case *Log:
		return []string{b.Logger, b.Level, b.Message, b.Pathname, b.Function, b.Module, b.ExceptionText, b.StackInfo, b.Extras}
	case *Span:
		return []string{b.TraceID, b.SpanID, b.ParentID, b.Name, b.Attributes, b.Status, b.StatusDescription, b.Error, b.Events}
	case *Plugin:
		return []string{b.Namespace, b.Event, b.Data}
	}
	return nil
}

func TestTimesAreClamped(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for seconds, want := range map[float64]time.Time{
		0: earliest, -1e9: earliest, math.Inf(-1): earliest, math.Inf(1): latest, 1e300: latest, 253402300800: latest,
		1.5: time.Unix(1, 5e8).UTC(), 1700000000.123456: time.Unix(1700000000, 123456000).UTC(),
	} {
		if got := recordTime(seconds, now); !got.Equal(want) {
			t.Errorf("%g: got %s, want %s", seconds, got, want)
		}
	}
	if got := recordTime(math.NaN(), now); !got.Equal(now) {
		t.Errorf("NaN: got %s", got)
	}
}

func TestLongOutputKeepsEveryByte(t *testing.T) {
	data := make([]byte, 10<<20)
	for i := range data {
		data[i] = byte(i * 7)
	}
	evs := take(t, wire.Record{Kind: wire.RecordOutput, Stream: "stdout", Bytes: data}, wire.Record{Kind: wire.RecordOutput, Stream: "stdout"})
	var got []byte
	for i := range evs {
		chunk := evs[i].Body.(*Output).Data
		if len(chunk) == 0 || len(chunk) > wire.MaxOutputBytes {
			t.Errorf("chunk of %d bytes", len(chunk))
		}
		got = append(got, chunk...)
	}
	if string(got) != string(data) {
		t.Errorf("got %d bytes, want the %d that were written", len(got), len(data))
	}
}

func TestNumbersOfAStream(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	acked := 0
	send := func(sid string, seq uint64, texts ...string) {
		j.AppendBatch("a", wire.Batch{Sid: sid, Seq: seq, Records: outputs(texts...)}, func() { acked++ })
	}
	send("s", 1, "1", "2")
	send("s", 1, "1", "2")              // all known
	send("s", 2, "2", "3")              // one known
	send("s", 6, "6")                   // two are missing
	send("t", 1, "t1")                  // a new stream begins anew
	send("u", 3, "u3")                  // and one whose beginning is lost
	send("u", 0, "x", "y")              // no number
	send("u", math.MaxUint64, "x", "y") // a number that would wrap
	send("u", 6, "u6")
	send("u", 6)
	flush(t, j, "a")
	got := lines(readAll(t, j, Query{Sandbox: "a"}))
	want := []string{"1", "2", "3", "gap 0-0 2 runtime", "6", "t1", "gap 0-0 2 runtime", "u3", "gap 0-0 2 runtime", "gap 0-0 2 runtime", "u6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if acked != 10 {
		t.Errorf("got %d acks, want 10", acked)
	}
	if sid, seq, err := j.StreamCursor(t.Context(), "a", ""); sid != "u" || seq != 6 || err != nil {
		t.Errorf("cursor: got %s %d %v", sid, seq, err)
	}
}

func TestLimitsByTheirLiteralValue(t *testing.T) {
	message := func(n int) wire.Record {
		return wire.Record{Kind: wire.RecordLog, Data: marshal(t, map[string]any{"message": strings.Repeat("x", n), "name": strings.Repeat("n", 513)})}
	}
	got := take(t,
		message(1048576), message(1048577),
		wire.Record{Kind: wire.RecordOutput, Stream: "stdout", Bytes: make([]byte, 262144)},
		wire.Record{Kind: wire.RecordOutput, Stream: "stdout", Bytes: make([]byte, 262145)},
	)
	if len(got) != 5 {
		t.Fatalf("got %d events", len(got))
	}
	if whole := got[0].Body.(*Log); len(whole.Message) != 1048576 || strings.Contains(whole.Message, "cut") || len(whole.Logger) > 512 {
		t.Errorf("1 MiB: %d bytes, logger of %d", len(whole.Message), len(whole.Logger))
	}
	if cut := got[1].Body.(*Log); len(cut.Message) > 1048576 || !strings.HasSuffix(cut.Message, " bytes cut]") {
		t.Errorf("1 MiB and a byte: %d bytes", len(cut.Message))
	}
	for i, want := range []int{262144, 262144, 1} {
		if n := len(got[2+i].Body.(*Output).Data); n != want {
			t.Errorf("chunk %d: got %d bytes, want %d", i, n, want)
		}
	}
}
