package external

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// sameJSON compares values, not their spelling.
func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	compact := func(text string) string {
		var raw json.RawMessage
		if err := json.Unmarshal([]byte(text), &raw); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		out, err := json.Marshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if compact(got) != compact(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestCalls: every encoding goes to a runtime that knows pickle only and back.
func TestCalls(t *testing.T) {
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		box := join(t, e, s.url)
		t.Run("json", func(t *testing.T) {
			sameJSON(t, call(t, e, box, "echo", `[1, 1.0, -0.0, 12345678901234567890123, "é\u0000", null, true, [], {"a": [{}]}]`),
				`[[1,1.0,-0.0,12345678901234567890123,"é\u0000",null,true,[],{"a":[{}]}],{}]`)
			r := remote(t, e, &agentixv1.RemoteRequest{Sandbox: box, Callable: "app::echo", Args: `[1]`, Kwargs: `{"k": "v"}`})
			sameJSON(t, r.GetValue(), `[[1],{"k":"v"}]`)
		})
		t.Run("values", func(t *testing.T) {
			sameJSON(t, call(t, e, box, "kinds", `[]`), `{"int":1180591620717411303424,"float":1.5,"bytes":"AP8=","tuple":[1,"two"],"set":[7],`+
				`"when":"2026-01-02T03:04:05+00:00","money":"1.10","path":"/a/b","none":null}`)
		})
		t.Run("msgpack", func(t *testing.T) {
			r := remote(t, e, &agentixv1.RemoteRequest{
				Sandbox: box, Callable: "app::echo",
				BinaryArguments: &agentixv1.RemoteRequest_MsgpackArguments{MsgpackArguments: []byte("\x92\x91\xc4\x02\x00\xff\x80")},
			})
			if got := string(r.GetMsgpackValue()); got != "\x92\x91\xc4\x02\x00\xff\x80" {
				t.Errorf("got %q, %v", got, r.GetError())
			}
		})
		t.Run("pickle", func(t *testing.T) {
			r := remote(t, e, &agentixv1.RemoteRequest{
				Sandbox: box, Callable: "app::blob", ResultEncoding: agentixv1.Encoding_ENCODING_PICKLE,
				BinaryArguments: &agentixv1.RemoteRequest_PickleArguments{PickleArguments: []byte("\x80\x04K\x03\x85}\x86.")},
			})
			if got := string(r.GetPickleValue()); !strings.HasPrefix(got, "\x80\x04") || !strings.Contains(got, "xxx") {
				t.Errorf("got %q, %v", got, r.GetError())
			}
		})
		t.Run("errors", func(t *testing.T) {
			r := remote(t, e, &agentixv1.RemoteRequest{Sandbox: box, Callable: "app::fail", Args: `["no such thing"]`}).GetError()
			if r.GetType() != "ValueError" || r.GetMessage() != "no such thing" || !strings.Contains(r.GetTraceback(), "fail") {
				t.Errorf("got %v", r)
			}
			for callable, want := range map[string]string{"nowhere::f": "ModuleNotFoundError", "app::nothing": "AttributeError", "app::opaque": "ResultEncodeError"} {
				r := remote(t, e, &agentixv1.RemoteRequest{Sandbox: box, Callable: callable}).GetError()
				if r.GetType() != want {
					t.Errorf("%s: got %v", callable, r)
				}
			}
		})
		t.Run("large", func(t *testing.T) {
			size := 4 << 20
			if full {
				size = 200 << 20
			}
			text := strings.Repeat("x", size)
			if got := call(t, e, box, "blob", quoted(len(text))); got != `"`+text+`"` {
				t.Errorf("got %d bytes", len(got))
			}
			if got := call(t, e, box, "echo", quoted(text)); got != `[["`+text+`"], {}]` && got != `[["`+text+`"],{}]` {
				t.Errorf("got %d bytes", len(got))
			}
		})
		t.Run("baggage", func(t *testing.T) {
			r := remote(t, e, &agentixv1.RemoteRequest{
				Sandbox: box, Callable: "app::baggage", Args: `["tenant"]`, Baggage: map[string]string{"tenant": "acme"},
				Traceparent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
			})
			if r.GetValue() != `"acme"` {
				t.Errorf("got %v", r)
			}
		})
	})
}

// TestTimeoutAndCancel: the daemon keeps the time for a runtime that cannot, and both reach
// the function.
func TestTimeoutAndCancel(t *testing.T) {
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		box := join(t, e, s.url)
		path := filepath.Join(t.TempDir(), "timeout")
		began := time.Now()
		r := remote(t, e, &agentixv1.RemoteRequest{
			Sandbox: box, Callable: "app::until_cancelled", Args: quoted(path), Timeout: durationpb.New(700 * time.Millisecond),
		}).GetError()
		if r.GetType() != "DeadlineExceeded" || time.Since(began) > 10*time.Second {
			t.Errorf("got %v after %s", r, time.Since(began))
		}
		await.True(t, func() bool { return s.deaf || len(lines(t, path)) == 1 }, "the cancel in the function")

		path = filepath.Join(t.TempDir(), "cancel")
		ctx, leave := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { // ends with ctx
			_, err := e.Remote.Remote(ctx, &agentixv1.RemoteRequest{Sandbox: box, Callable: "app::until_cancelled", Args: quoted(path)})
			done <- err
		}()
		await.True(t, func() bool { _, err := os.Stat(path + ".began"); return err == nil }, "the call to begin")
		leave(errors.New("the caller leaves"))
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
		await.True(t, func() bool { return s.deaf || len(lines(t, path)) == 1 }, "the cancel in the function")
	})
}

// TestRecords: output, logs and spans of a neighbour are in the journal, in their order.
func TestRecords(t *testing.T) {
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		box := join(t, e, s.url)
		const n = 200
		if got := call(t, e, box, "talk", quoted(n)); got != "200" {
			t.Errorf("got %s", got)
		}
		if got := call(t, e, box, "traced", quoted("step")); got != `"step"` {
			t.Errorf("got %s", got)
		}
		var out, errs, records, spans []string
		await.True(t, func() bool {
			out, errs, records, spans = nil, nil, nil, nil
			for _, ev := range read(t, e, &agentixv1.StreamEventsRequest{Sandbox: box}) {
				switch {
				case ev.GetOutput() != nil && ev.GetOutput().GetStream() == agentixv1.OutputStream_OUTPUT_STREAM_STDOUT:
					out = append(out, string(ev.GetOutput().GetData()))
				case ev.GetOutput() != nil:
					errs = append(errs, string(ev.GetOutput().GetData()))
				case ev.GetLog() != nil && ev.GetLog().GetLogger() == "app.talk":
					records = append(records, ev.GetLog().GetMessage()+" "+ev.GetLog().GetExtras()+" "+ev.GetLog().GetLevel())
				case ev.GetSpan() != nil:
					spans = append(spans, ev.GetSpan().GetPhase().String()+" "+ev.GetSpan().GetName())
				case ev.GetGap() != nil:
					t.Errorf("gap: %v", ev.GetGap())
				}
			}
			return len(strings.Join(out, "")) > 0 && strings.HasSuffix(strings.Join(out, ""), "line 199\n") &&
				strings.HasSuffix(strings.Join(errs, ""), "err 199\n") && len(records) >= n && len(spans) >= 2
		}, "the records")
		var wantOut, wantErr strings.Builder
		for k := range n {
			wantOut.WriteString("line " + quotedInt(k) + "\n")
			wantErr.WriteString("err " + quotedInt(k) + "\n")
			if want := "record " + quotedInt(k) + ` {"n":` + quotedInt(k) + `} INFO`; records[k] != want {
				t.Fatalf("record %d: got %q, want %q", k, records[k], want)
			}
		}
		if got := strings.Join(out, ""); got != wantOut.String() {
			t.Errorf("output: got %q", got)
		}
		if got := strings.Join(errs, ""); got != wantErr.String() {
			t.Errorf("error output: got %q", got)
		}
		if len(records) != n || spans[len(spans)-1] != "SPAN_PHASE_SPAN_END step" {
			t.Errorf("%d records, spans %q", len(records), spans)
		}
	})
}

func quotedInt(n int) string { return strings.Trim(quoted(n), "[]") }

// TestWorkerDies: the call under way ends with how the worker ended, and the next one works.
func TestWorkerDies(t *testing.T) {
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		box := join(t, e, s.url)
		r := remote(t, e, &agentixv1.RemoteRequest{Sandbox: box, Callable: "app::die", Args: `[7]`}).GetError()
		if r.GetType() != "WorkerDied" || r.GetReturncode() != 7 {
			t.Errorf("got %v", r)
		}
		sameJSON(t, call(t, e, box, "echo", `[]`), `[[],{}]`)
		if got := call(t, e, box, "talk", `[1]`); got != "1" {
			t.Errorf("got %s", got)
		}
		await.True(t, func() bool {
			for _, ev := range read(t, e, &agentixv1.StreamEventsRequest{Sandbox: box}) {
				if string(ev.GetOutput().GetData()) == "line 0\n" {
					return true
				}
			}
			return false
		}, "output of the next worker")
	})
}

// TestCutLink: a result that is made while the link is down arrives after it, of a call that
// ran once.
func TestCutLink(t *testing.T) {
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		p := newProxy(t, s)
		box := join(t, e, p.url())
		path := filepath.Join(t.TempDir(), "ran")
		done := later(t, e, box, "cut-call", path, 1)
		await.True(t, func() bool { return len(lines(t, path)) == 1 }, "the call to run")
		p.cut(true)
		timer := time.AfterFunc(2*time.Second, func() { p.cut(false) }) // the call ends meanwhile
		defer timer.Stop()
		if r := <-done; r.GetValue() != `"done"` {
			t.Errorf("got %v", r)
		}
		if got := lines(t, path); len(got) != 1 {
			t.Errorf("ran %d times", len(got))
		}
	})
}

// TestDaemonRestart: a call that runs while the daemon is replaced ends as it would have.
func TestDaemonRestart(t *testing.T) {
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		box := join(t, e, s.url)
		path := filepath.Join(t.TempDir(), "ran")
		done := later(t, e, box, "outlives", path, 2)
		await.True(t, func() bool { return len(lines(t, path)) == 1 }, "the call to run")
		e.Stop(t)
		<-done
		e.Boot(t)
		if r := <-later(t, e, box, "outlives", path, 2); r.GetValue() != `"done"` {
			t.Errorf("got %v", r)
		}
		if got := lines(t, path); len(got) != 1 {
			t.Errorf("ran %d times", len(got))
		}
	})
}

// later calls app::later by name in the background; nil if that fails.
func later(t *testing.T, e *daemontest.Env, box, id, path string, seconds int) <-chan *agentixv1.RemoteResponse {
	done := make(chan *agentixv1.RemoteResponse, 1)
	client := e.Remote
	go func() { // ends with the call
		r, _ := client.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: box, Callable: "app::later", CallId: id, Args: quoted(path, seconds)})
		done <- r
	}()
	return done
}

// TestDeleteForgets: a deleted sandbox was somebody else's runtime, which goes on.
func TestDeleteForgets(t *testing.T) {
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		box := join(t, e, s.url)
		found, err := e.Sandboxes.GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: box})
		if err != nil || found.GetProvider() != "external" || strings.Contains(found.GetRuntime().GetUrl(), "hunter2") || found.GetRuntime().GetPython() == "" {
			t.Errorf("got %v, %v", found, err)
		}
		if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: box}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(e.Logs(), "hunter2") {
			t.Error("the secret is in the daemon's log")
		}
		sameJSON(t, call(t, e, join(t, e, s.url), "echo", `[1]`), `[[1],{}]`)
	})
}
