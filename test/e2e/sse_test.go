package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// message is what a browser's EventSource dispatches.
type message struct{ name, id, data string }

// eventSource reads a stream as the HTML standard tells browsers to.
type eventSource struct {
	lines    *bufio.Scanner
	id       string // the last event id: what a browser sends when it connects again
	retry    string
	comments int
}

func newEventSource(r io.Reader) *eventSource {
	s := &eventSource{lines: bufio.NewScanner(r)}
	s.lines.Buffer(nil, 64<<20)
	return s
}

// next returns false at the end of the stream.
func (s *eventSource) next() (message, bool) {
	m, buffer, data := message{name: "message"}, s.id, []string(nil)
	for s.lines.Scan() {
		field, value, _ := strings.Cut(s.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case s.lines.Text() == "":
			s.id = buffer
			if data == nil {
				m.name = "message"
				continue
			}
			m.id, m.data = s.id, strings.Join(data, "\n")
			return m, true
		case field == "":
			s.comments++
		case field == "event":
			m.name = value
		case field == "data":
			data = append(data, value)
		case field == "id":
			buffer = value
		case field == "retry":
			s.retry = value
		}
	}
	return m, false
}

// openEvents asks for server-sent events.
func openEvents(ctx context.Context, t *testing.T, e *daemontest.Env, path, last string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/v1/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := e.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// messages reads a stream of server-sent events to its end.
func messages(t *testing.T, e *daemontest.Env, path, last string) (*http.Response, []message) {
	t.Helper()
	response := openEvents(t.Context(), t, e, path, last)
	defer response.Body.Close()
	var all []message
	for source := newEventSource(response.Body); ; {
		m, ok := source.next()
		if !ok {
			return response, all
		}
		all = append(all, m)
	}
}

// Server-sent events are the lines of NDJSON with the kind as name and the cursor as id,
// and each id goes on behind its event.
func TestServerSentEvents(t *testing.T) {
	e, sandbox := start(t)
	isValue("2")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: "[2]", CallId: "n"}))
	_, _, want := lines(t.Context(), t, e, sandbox, "")
	response, got := messages(t, e, sandbox+"/events", "")
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d, %v", response.StatusCode, response.Header)
	}
	var data []string
	names := map[string]bool{}
	for _, m := range got {
		data = append(data, m.data)
		names[m.name] = true
		var event map[string]json.RawMessage
		if err := json.Unmarshal([]byte(m.data), &event); err != nil || event[m.name] == nil || string(event["cursor"]) != `"`+m.id+`"` {
			t.Errorf("event %q with id %q: %s, %v", m.name, m.id, m.data, err)
		}
	}
	if diff := cmp.Diff(data, want); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(names, map[string]bool{"lifecycle": true, "call": true, "log": true, "output": true, "span": true}); diff != "" {
		t.Error(diff)
	}
	for i, m := range got { // the header counts, not what the address says of the beginning
		for _, query := range []string{"", "?tail=0", "?after=" + got[0].id, "?follow=true&callId=n"} {
			response, rest := messages(t, e, sandbox+"/events"+query, m.id)
			if query != "?follow=true&callId=n" && len(rest) != len(got)-i-1 {
				t.Errorf("after event %d with %q: %d events of %d", i, query, len(rest), len(got))
			}
			if none := len(rest) == 0; none != (response.StatusCode == http.StatusNoContent) {
				t.Errorf("after event %d with %q: HTTP %d with %d events", i, query, response.StatusCode, len(rest))
			}
		}
	}
}

// Only those who ask for server-sent events by name get them.
func TestServerSentEventsAreAskedFor(t *testing.T) {
	e, sandbox := start(t)
	for accept, want := range map[string]string{
		"": "application/x-ndjson", "*/*": "application/x-ndjson", "text/*": "application/x-ndjson", "application/json": "application/x-ndjson",
		"text/event-stream": "text/event-stream", "TEXT/Event-Stream; charset=utf-8": "text/event-stream",
		"application/json, text/event-stream;q=0.5": "text/event-stream", "text/event-stream;q=0": "application/x-ndjson",
		"application/x-ndjson, text/event-stream;q=0.9": "application/x-ndjson", "text/event-stream;q=": "application/x-ndjson", ";;;": "application/x-ndjson",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL+"/v1/"+sandbox+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		response, err := e.HTTP.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get("Content-Type"); got != want {
			t.Errorf("Accept: %s: got %s, want %s", accept, got, want)
		}
		for _, header := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"} {
			if got := response.Header.Get(header); got != "" {
				t.Errorf("%s: %s", header, got)
			}
		}
	}
}

// A browser that follows only new events hears of its position at once, loses nothing when
// it connects again, and is told when there will be no more.
func TestServerSentEventsGoOn(t *testing.T) {
	e, sandbox := start(t)
	path := sandbox + "/events?follow=true&tail=0&kinds=EVENT_KIND_LOG&kinds=EVENT_KIND_LIFECYCLE"
	ctx, leave := context.WithCancelCause(t.Context())
	response := openEvents(ctx, t, e, path, "")
	source := newEventSource(response.Body)
	done := make(chan struct{})
	go func() { // ends when the stream does
		defer close(done)
		if m, ok := source.next(); ok && m.name != "log" {
			t.Errorf("got %v", m)
		}
	}()
	isValue("1")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: "[1]"}))
	<-done
	leave(nil)
	_ = response.Body.Close()
	if source.retry == "" || source.comments != 1 || source.id == "" {
		t.Errorf("retry %q, %d comments, id %q", source.retry, source.comments, source.id)
	}
	// What comes while nobody is connected comes later.
	isValue("1")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::noisy", Args: "[1]"}))
	if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: sandbox}); err != nil {
		t.Fatal(err)
	}
	response, rest := messages(t, e, path, source.id)
	if response.StatusCode != http.StatusOK || len(rest) < 2 || rest[0].name != "log" || rest[len(rest)-1].name != "lifecycle" {
		t.Fatalf("got %d, %v", response.StatusCode, rest)
	}
	if response, none := messages(t, e, path, rest[len(rest)-1].id); response.StatusCode != http.StatusNoContent || none != nil {
		t.Errorf("after the last event: HTTP %d, %v", response.StatusCode, none)
	}
}

// An error at the beginning is an HTTP status; a later one is one event.
func TestServerSentErrors(t *testing.T) {
	e, sandbox := start(t)
	for last, want := range map[string]int{"rubbish": http.StatusGone, "\xff": http.StatusGone, strings.Repeat("x", 300): http.StatusBadRequest} {
		response, _ := messages(t, e, sandbox+"/events", last)
		if response.StatusCode != want || response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("Last-Event-ID %.10q: got %d, %v", last, response.StatusCode, response.Header)
		}
	}
	response := openEvents(t.Context(), t, e, "sandboxes/-/events?follow=true", "")
	defer response.Body.Close()
	e.Stop(t)
	defer e.Boot(t)
	var all []message
	for source := newEventSource(response.Body); ; {
		m, ok := source.next()
		if !ok {
			break
		}
		all = append(all, m)
	}
	errorsTold := 0
	for _, m := range all {
		if m.name == "error" {
			errorsTold++
		}
	}
	last := all[len(all)-1]
	var object struct{ Error json.RawMessage }
	if err := json.Unmarshal([]byte(last.data), &object); err != nil || last.name != "error" || errorsTold != 1 {
		t.Fatalf("%d errors, the last event is %v: %v", errorsTold, last, err)
	}
	if last.id != all[len(all)-2].id {
		t.Errorf("the error moved the position from %q to %q", all[len(all)-2].id, last.id)
	}
	isStatus(codes.Unavailable, 0, "STOPPING")(t, answer{st: parseStatus(t, object.Error)})
}
