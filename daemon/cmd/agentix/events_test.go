package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// everyKind has one event of each kind, with text that wants to steer a terminal.
func everyKind() []*agentixv1.Event {
	at := timestamppb.New(time.Date(2026, 11, 29, 12, 0, 0, 5e6, time.Local))
	later := timestamppb.New(at.AsTime().Add(1500 * time.Microsecond))
	return []*agentixv1.Event{
		{Seq: 1, Time: at, Kind: &agentixv1.Event_Lifecycle{Lifecycle: &agentixv1.LifecycleEvent{
			State: agentixv1.SandboxState_SANDBOX_STATE_FAILED, Reason: agentixv1.SandboxReason_SANDBOX_REASON_EXITED, Message: "it ended"}}},
		{Seq: 2, Time: at, CallId: "0123456789abcdef", Kind: &agentixv1.Event_Call{Call: &agentixv1.CallEvent{
			Phase: agentixv1.CallPhase_CALL_PHASE_FINISHED, Callable: "app::run", ErrorType: "ValueError", ErrorMessage: "no"}}},
		{Seq: 3, Time: at, Kind: &agentixv1.Event_Log{Log: &agentixv1.LogRecord{
			Logger: "app", Level: "INFO", LevelNumber: 20, Message: "two\nlines \x1b]0;title\x07%s", ExceptionText: "Traceback", Extras: `{"n":9007199254740993,"f":1.0}`}}},
		{Seq: 4, Time: at, Kind: &agentixv1.Event_Output{Output: &agentixv1.Output{
			Stream: agentixv1.OutputStream_OUTPUT_STREAM_STDERR, Data: []byte("a\xff\r\nb\u202ec\n")}}},
		{Seq: 5, Time: at, Kind: &agentixv1.Event_Span{Span: &agentixv1.SpanEvent{
			Phase: agentixv1.SpanPhase_SPAN_PHASE_SPAN_END, Name: "work", SpanId: "span_1", Status: "ok", StartTime: at, EndTime: later, Attributes: `{"k":1}`}}},
		{Seq: 6, Time: at, Kind: &agentixv1.Event_Plugin{Plugin: &agentixv1.PluginEvent{Namespace: "/p", Event: "e", Data: `"x"`}}},
		{Seq: 7, Time: at, Kind: &agentixv1.Event_Gap{Gap: &agentixv1.Gap{Dropped: 3, Source: "runtime"}}},
		{Seq: 8, Time: at},
	}
}

func TestEventsAsText(t *testing.T) {
	var got *agentixv1.StreamEventsRequest
	address := serve(t, &daemon{stream: func(r *agentixv1.StreamEventsRequest, s grpc.ServerStreamingServer[agentixv1.StreamEventsResponse]) error {
		got = proto.CloneOf(r)
		return s.Send(&agentixv1.StreamEventsResponse{Events: everyKind()})
	}})

	ran := execute(t, "", "--address", address, "events", "box", "-f", "--tail", "0", "--kind", "log,output", "--call-id", "c", "--min-level", "30")

	if diff := cmp.Diff(ran, result{0, strings.Join([]string{
		"12:00:00.005 sandbox   FAILED EXITED it ended",
		"12:00:00.005 call      [01234567] finished app::run ValueError: no",
		`12:00:00.005 INFO      app: two`,
		`12:00:00.005 INFO      lines \x1b]0;title\x07%s`,
		"12:00:00.005 INFO      Traceback",
		`12:00:00.005 stderr    a\xff\x0d`,
		`12:00:00.005 stderr    b\u202ec`,
		`12:00:00.005 span      span end work span_1 status=ok 1.5ms {"k":1}`,
		`12:00:00.005 plugin    /p e "x"`,
		"12:00:00.005 gap       3 events were lost (runtime)",
		"12:00:00.005 ?         an event of a newer daemon",
		"",
	}, "\n"), ""}); diff != "" {
		t.Error(diff)
	}
	want := &agentixv1.StreamEventsRequest{
		Sandbox: "sandboxes/box", Follow: true, Start: &agentixv1.StreamEventsRequest_Tail{}, CallId: "c", MinLevel: 30,
		Kinds: []agentixv1.EventKind{agentixv1.EventKind_EVENT_KIND_LOG, agentixv1.EventKind_EVENT_KIND_OUTPUT},
	}
	if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestEventsAsJSON(t *testing.T) {
	address := serve(t, &daemon{stream: func(_ *agentixv1.StreamEventsRequest, s grpc.ServerStreamingServer[agentixv1.StreamEventsResponse]) error {
		return s.Send(&agentixv1.StreamEventsResponse{Events: everyKind()})
	}})

	ran := execute(t, "", "--address", address, "events", "-", "--json", "--since", "1m")

	lines := strings.Split(strings.TrimSuffix(ran.Stdout, "\n"), "\n")
	if ran.Code != 0 || len(lines) != 8 {
		t.Fatalf("%+v", ran)
	}
	if !strings.Contains(lines[2], `"extras":{"n":9007199254740993,"f":1.0}`) {
		t.Errorf("extras are not JSON: %s", lines[2])
	}
	if !strings.Contains(lines[4], `"attributes":{"k":1}`) {
		t.Errorf("attributes are not JSON: %s", lines[4])
	}
	if !strings.Contains(lines[5], `"data":"x"`) {
		t.Errorf("data is not JSON: %s", lines[5])
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n": "plain\ttext\n",
		"é€😀":           "é€😀",
		"\x1b[31m":      `\x1b[31m`,
		"\x9b31m\x00":   `\x9b31m\x00`,
		"a\xffb":        `a\xffb`,
		"\uFFFD":        `\ufffd`,
		"\u009b":        `\x9b`,
		"\u202e\u2066":  `\u202e\u2066`,
		"a\rb":          `a\x0db`,
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %q, want %q", text, got, want)
		}
	}
	if got := oneLine("a\nb\tc"); got != `a\nb\tc` {
		t.Errorf("oneLine: %q", got)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[2J\xff\u202e\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range printable(text) {
			if steers(r) {
				t.Errorf("printable(%q) holds %q", text, r)
			}
		}
	})
}

// A character that was written in parts is whole again, and only where one writer wrote it.
func TestCharactersAreWhole(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 11, 29, 12, 0, 0, 0, time.Local))
	var all []*agentixv1.Event
	for _, piece := range []struct {
		stream agentixv1.OutputStream
		call   string
		data   string
	}{
		{1, "", "caf\xc3"}, {2, "", "\xf0\x9f"}, {1, "", "\xa9\n"}, {2, "", "\x98"}, {2, "", "\x80!\n"}, // é, and a face in three parts
		{1, "a", "\xe2\x82"}, {1, "b", "\xac\n"}, {1, "", "\n\n"}, {1, "", "\xc3"}, {1, "", "(\n"}, {1, "", "end \xe2"},
	} {
		all = append(all, &agentixv1.Event{Time: at, Sandbox: "sandboxes/x", CallId: piece.call, Kind: &agentixv1.Event_Output{
			Output: &agentixv1.Output{Stream: piece.stream, Data: []byte(piece.data)},
		}})
	}
	address := serve(t, &daemon{stream: func(_ *agentixv1.StreamEventsRequest, s grpc.ServerStreamingServer[agentixv1.StreamEventsResponse]) error {
		for _, event := range all {
			if err := s.Send(&agentixv1.StreamEventsResponse{Events: []*agentixv1.Event{event}}); err != nil {
				return err
			}
		}
		return nil
	}})
	ran := execute(t, "", "--address", address, "events", "x")
	lines := strings.Split(strings.TrimSuffix(ran.Stdout, "\n"), "\n")
	tail := lines[len(lines)-2:] // what never became whole, in any order
	slices.Sort(tail)
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "12:00:00.000 ")
	}
	if diff := cmp.Diff(lines, []string{
		"stdout    caf", "stdout    é", "stderr    😀!", `stdout    [b] \xac`, "stdout    ", "stdout    ", `stdout    \xc3(`, "stdout    end ",
		`stdout    [a] \xe2\x82`, `stdout    \xe2`,
	}); diff != "" {
		t.Error(diff)
	}
}
