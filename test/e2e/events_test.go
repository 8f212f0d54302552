package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stream reads a stream of events to its end over gRPC.
func stream(ctx context.Context, t *testing.T, e *daemontest.Env, r *agentixv1.StreamEventsRequest) ([]*agentixv1.Event, error) {
	t.Helper()
	s, err := e.Events.StreamEvents(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	var all []*agentixv1.Event
	for {
		response, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, response.GetEvents()...)
	}
}

// lines reads a stream of events to its end over REST, as the bytes of its lines.
func lines(ctx context.Context, t *testing.T, e *daemontest.Env, sandbox, query string) (int, http.Header, []string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/v1/"+sandbox+"/events?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var all []string
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		if scanner.Text() != "" {
			all = append(all, scanner.Text())
		}
	}
	return response.StatusCode, response.Header, all
}

// told is what one call told by each way, in order.
type told struct {
	Logs   []string
	Stdout string
	Stderr string
	Spans  []string
	Calls  []string
	Last   string
}

func retell(events []*agentixv1.Event) told {
	var all told
	for _, event := range events {
		switch kind := event.GetKind().(type) {
		case *agentixv1.Event_Log:
			all.Logs = append(all.Logs, kind.Log.GetLogger()+" "+kind.Log.GetLevel()+" "+kind.Log.GetMessage()+" "+kind.Log.GetExtras())
		case *agentixv1.Event_Output:
			if kind.Output.GetStream() == agentixv1.OutputStream_OUTPUT_STREAM_STDOUT {
				all.Stdout += string(kind.Output.GetData())
			} else {
				all.Stderr += string(kind.Output.GetData())
			}
		case *agentixv1.Event_Span:
			all.Spans = append(all.Spans, fmt.Sprintf("%s %s %s", kind.Span.GetPhase(), kind.Span.GetName(), kind.Span.GetAttributes()))
		case *agentixv1.Event_Call:
			all.Calls = append(all.Calls, fmt.Sprintf("%s %s", kind.Call.GetPhase(), kind.Call.GetCallable()))
		}
		all.Last = fmt.Sprintf("%T", event.GetKind())
	}
	return all
}

// P5: everything that a call wrote is told once, in order, before the call's end.
func TestP5_EventsOnceInOrderBeforeTheEnd(t *testing.T) {
	e, sandbox := start(t)
	const n = 200
	want := told{Last: "*agentixv1.Event_Call", Stderr: "to stderr\n"}
	for i := range n {
		want.Logs = append(want.Logs, fmt.Sprintf(`app INFO record %d {"n":%d,"big":9223372036854775808}`, i, i))
		want.Stdout += fmt.Sprintf("printed %d\n", i)
	}
	want.Stdout += "from a child\n"
	want.Spans = []string{
		`SPAN_PHASE_TRACE_START work {"number":200}`, `SPAN_PHASE_SPAN_START step {"big":9223372036854775808,"exact":1.0}`,
		`SPAN_PHASE_SPAN_END step {"big":9223372036854775808,"exact":1.0}`, "SPAN_PHASE_TRACE_END  ",
	}
	want.Calls = []string{"CALL_PHASE_ACCEPTED app::noisy", "CALL_PHASE_FINISHED app::noisy"}
	i := 0
	for name, call := range protocols {
		i++
		id := fmt.Sprintf("noisy-%d", i)
		before := cursor(t, e, sandbox)
		isValue("200")(t, call(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: fmt.Sprintf("[%d]", n), CallId: id}))
		got, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, Start: &agentixv1.StreamEventsRequest_After{After: before}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(retell(got), want); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		seq := got[0].GetSeq()
		for _, event := range got {
			if event.GetSeq() != seq || event.GetSandbox() != sandbox || event.GetTime() == nil {
				t.Errorf("%s: got %v, want seq %d", name, event, seq)
			}
			seq++
			child := strings.Contains(string(event.GetOutput().GetData()), "from a child")
			if !child && event.GetCallId() != id || child && event.GetCallId() != "" && event.GetCallId() != id {
				t.Errorf("%s: got call id %q of %v", name, event.GetCallId(), event)
			}
		}
		ofCall, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, CallId: id, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(retell(ofCall).Logs, want.Logs); diff != "" || retell(ofCall).Last != want.Last {
			t.Errorf("%s: following the call: %s", name, diff)
		}
	}
}

// cursor is the position after everything that is there.
func cursor(t *testing.T, e *daemontest.Env, sandbox string) string {
	t.Helper()
	s, err := e.Events.StreamEvents(t.Context(), &agentixv1.StreamEventsRequest{Sandbox: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for {
		response, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return last
		}
		if err != nil {
			t.Fatal(err)
		}
		last = response.GetCursor()
	}
}

// Over REST each event is one line without a wrapper, and JSON stays as it was written.
func TestEventsAsLines(t *testing.T) {
	e, sandbox := start(t)
	isValue("2")(t, restTCP(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: "[2]", CallId: "n"}))
	code, header, all := lines(t.Context(), t, e, sandbox, "callId=n&follow=true")
	if code != http.StatusOK || header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("got %d, %v", code, header)
	}
	var kinds []string
	for _, line := range all {
		var event map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, field := range []string{"seq", "time", "sandbox", "cursor"} {
			if event[field] == nil {
				t.Errorf("%s has no %s", line, field)
			}
		}
		for _, kind := range []string{"log", "output", "span", "lifecycle", "call"} {
			if event[kind] != nil {
				kinds = append(kinds, kind)
			}
		}
	}
	if len(kinds) != len(all) || kinds[0] != "call" || kinds[len(kinds)-1] != "call" {
		t.Errorf("got kinds %v of %d lines", kinds, len(all))
	}
	text := strings.Join(all, "\n")
	for _, part := range []string{`"extras":{"n":1,"big":9223372036854775808}`, `"attributes":{"big":9223372036854775808,"exact":1.0}`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in\n%s", part, text)
		}
	}
	_, _, logs := lines(t.Context(), t, e, sandbox, "kinds=EVENT_KIND_LOG&minLevel=20&after="+url.QueryEscape(""))
	if len(logs) != 2 {
		t.Errorf("got %v", logs)
	}
}

// A follower hears of events as they come, before the call ends.
func TestFollowersHearAtOnce(t *testing.T) {
	e, sandbox := start(t)
	isValue("3")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"}))
	for _, protocol := range []string{"gRPC", "REST"} {
		t.Run(protocol, func(t *testing.T) {
			ctx, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			calls := make(chan string, 16)
			if protocol == "gRPC" {
				s, err := e.Events.StreamEvents(ctx, &agentixv1.StreamEventsRequest{Sandbox: sandbox, Follow: true, Start: &agentixv1.StreamEventsRequest_Tail{}})
				if err != nil {
					t.Fatal(err)
				}
				if first, err := s.Recv(); err != nil || len(first.GetEvents()) != 0 {
					t.Fatalf("the first response tells that the stream has begun; got %v, %v", first, err)
				}
				go func() {
					defer close(calls)
					for {
						response, err := s.Recv()
						if err != nil {
							return
						}
						for _, event := range response.GetEvents() {
							calls <- event.GetCall().GetPhase().String()
						}
					}
				}()
			} else {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/v1/"+sandbox+"/events?follow=true&tail=0&kinds=EVENT_KIND_CALL", nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := e.HTTP.Do(request) // returns once the stream has begun
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				go func() {
					defer close(calls)
					scanner := bufio.NewScanner(response.Body)
					for scanner.Scan() {
						var event struct {
							Call struct{ Phase string }
						}
						if json.Unmarshal(scanner.Bytes(), &event) == nil {
							calls <- event.Call.Phase
						}
					}
				}()
			}
			_, done := hanging(ctx, t, e, grpcUnix, &agentixv1.RemoteRequest{Sandbox: sandbox})
			got := <-calls
			for got == "CALL_PHASE_FINISHED" { // the call of the protocol before, cancelled after its caller had left
				got = <-calls
			}
			if got != "CALL_PHASE_ACCEPTED" {
				t.Errorf("got %q", got)
			}
			leave(nil)
			<-done
			for range calls {
			}
		})
	}
}

func TestStreamErrors(t *testing.T) {
	e, sandbox := start(t)
	for _, c := range []struct {
		request *agentixv1.StreamEventsRequest
		query   string
		code    codes.Code
		http    int
		reason  string
	}{
		{&agentixv1.StreamEventsRequest{Sandbox: "sandboxes/nowhere"}, "", codes.NotFound, 404, "SANDBOX_NOT_FOUND"},
		{&agentixv1.StreamEventsRequest{Sandbox: sandbox, Start: &agentixv1.StreamEventsRequest_After{After: "rubbish"}}, "after=rubbish", codes.OutOfRange, 410, "CURSOR_EXPIRED"},
		{&agentixv1.StreamEventsRequest{Sandbox: sandbox, Kinds: []agentixv1.EventKind{99}}, "kinds=99", codes.InvalidArgument, 400, "INVALID_FIELD"},
		{&agentixv1.StreamEventsRequest{Sandbox: sandbox, CallId: strings.Repeat("x", 64)}, "callId=" + strings.Repeat("x", 64), codes.InvalidArgument, 400, "INVALID_FIELD"},
		{nil, "nope=1", codes.InvalidArgument, 400, "INVALID_FIELD"},
		{nil, "tail=1&after=x", codes.InvalidArgument, 400, "INVALID_FIELD"},
		{nil, "tail=-1", codes.InvalidArgument, 400, "INVALID_FIELD"},
		{nil, "follow=perhaps", codes.InvalidArgument, 400, "INVALID_FIELD"},
	} {
		name := sandbox
		if c.request != nil {
			_, err := stream(t.Context(), t, e, c.request)
			isStatus(c.code, 0, c.reason)(t, answer{st: status.Convert(err)})
			name = c.request.GetSandbox()
		}
		code, _, all := lines(t.Context(), t, e, name, c.query)
		if code != c.http || len(all) != 1 {
			t.Errorf("%s: got HTTP %d, %v; want %d", c.query, code, all, c.http)
			continue
		}
		isStatus(c.code, c.http, c.reason)(t, answer{http: code, st: parseStatus(t, []byte(all[0]))})
	}
}

// The last line before a death arrives, and a stream that the daemon's stop cuts says so.
func TestLastLineBeforeDeath(t *testing.T) {
	e, sandbox := start(t)
	isError("WorkerDied", "")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::exit_with", Args: "[3]", CallId: "last"}))
	got, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, CallId: "last", Follow: true})
	if err != nil || retell(got).Stdout != "the last line\n" {
		t.Errorf("got %q, %v", retell(got).Stdout, err)
	}
}

func TestStreamsEndWhenTheDaemonStops(t *testing.T) {
	e, sandbox := start(t)
	s, err := e.Events.StreamEvents(t.Context(), &agentixv1.StreamEventsRequest{Sandbox: sandbox, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	response, err := e.HTTP.Get(e.URL + "/v1/sandboxes/-/events?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	e.Stop(t)
	for err == nil {
		_, err = s.Recv()
	}
	isStatus(codes.Unavailable, 0, "STOPPING")(t, answer{st: status.Convert(err)})
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var last struct{ Error json.RawMessage }
	if err := json.Unmarshal(all[len(all)-1], &last); err != nil || last.Error == nil {
		t.Fatalf("the last line is %s", all[len(all)-1])
	}
	isStatus(codes.Unavailable, 0, "STOPPING")(t, answer{st: parseStatus(t, last.Error)})
	e.Boot(t)
}

// The cursor of any event goes on behind it, also in the next daemon.
func TestCursorOutlivesTheDaemon(t *testing.T) {
	e, sandbox := start(t)
	isValue("3")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: "[3]"}))
	before, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	e.Stop(t)
	e.Boot(t)
	isValue("3")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: "[3]"}))
	middle := len(before) / 2
	rest, err := stream(t.Context(), t, e, &agentixv1.StreamEventsRequest{Sandbox: sandbox, Start: &agentixv1.StreamEventsRequest_After{After: before[middle].GetCursor()}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rest) <= len(before)-middle {
		t.Fatalf("got %d events", len(rest))
	}
	for i, event := range rest {
		if want := before[middle].GetSeq() + uint64(i) + 1; event.GetSeq() != want {
			t.Fatalf("event %d has seq %d, want %d", i, event.GetSeq(), want)
		}
	}
	log := filepath.Join(e.Config.LogDir, "sandbox-"+strings.TrimPrefix(sandbox, "sandboxes/")+".log")
	await.True(t, func() bool { return exists(log) }, log)
}
