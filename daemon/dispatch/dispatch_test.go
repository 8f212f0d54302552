package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

func awaitSent(t *testing.T, l *fakeLink, id string) {
	t.Helper()
	await.True(t, func() bool { ids, _, _ := l.seen(); return slices.Contains(ids, id) }, "the call to be sent")
}

func awaitCancelled(t *testing.T, l *fakeLink, id string) {
	t.Helper()
	await.True(t, func() bool { _, ids, _ := l.seen(); return slices.Contains(ids, id) }, "the call to be cancelled")
}

func jsonResult(id, value string) wire.Result {
	return wire.Result{CallID: id, Value: []byte(value), Encoding: wire.EncodingJSON}
}

func TestRemoteReturnsTheValue(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	done := r.remote(t.Context(), Request{CallID: "c1", Kwargs: `{"input": 9007199254740993}`, Timeout: time.Minute, Baggage: map[string]string{"k": "v"}})
	awaitSent(t, l, "c1")
	want := wire.Call{
		CallID: "c1", Callable: "app::run", Arguments: []byte(`[[],{"input": 9007199254740993}]`),
		Encoding: "json", ResultEncoding: "json", TimeoutMS: 60000, Baggage: map[string]string{"k": "v"},
	}
	if diff := cmp.Diff(l.calls[0], want); diff != "" {
		t.Error(diff)
	}
	if got := r.openCalls(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("open in the store when it was sent: %v", got)
	}
	h.Records(wire.Batch{Sid: "s", Seq: 1, Records: []wire.Record{{Kind: wire.RecordOutput, Stream: "stdout", Bytes: []byte("before")}}})
	h.Result(jsonResult("c1", "1.0"))
	a := <-done
	if a.err != nil || string(a.outcome.Value) != "1.0" || a.outcome.CallID != "c1" {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
	// All that came before the result is in the journal, before the terminal event.
	if diff := cmp.Diff(r.callEvents("box"), []string{"c1 ACCEPTED ", "before", "c1 FINISHED "}); diff != "" {
		t.Error(diff)
	}
	if _, _, acks := l.seen(); !slices.Equal(acks, []string{"c1"}) {
		t.Errorf("acked %v", acks)
	}
	if got := r.openCalls(); len(got) != 0 {
		t.Errorf("still open: %v", got)
	}
	await.True(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.recorded["s"] == 1 }, "the ack of the records")
}

func TestOutcomeTable(t *testing.T) {
	trace := "Traceback"
	minus := -9
	for _, c := range []struct {
		name  string
		error *wire.Error
		value *wire.Result
		want  string
		check func(*wire.Error) bool
	}{
		{name: "raised", error: &wire.Error{Type: "ValueError", Message: "no", Traceback: &trace}, want: "ValueError", check: func(e *wire.Error) bool { return *e.Traceback == trace }},
		{name: "cancelled", error: &wire.Error{Type: "Cancelled", Cancelled: true}, want: "Cancelled", check: func(e *wire.Error) bool { return e.Cancelled }},
		{name: "deadline", error: &wire.Error{Type: "DeadlineExceeded"}, want: "DeadlineExceeded"},
		{name: "worker died", error: &wire.Error{Type: "WorkerDied", Returncode: &minus, Cause: "SIGNAL"}, want: "WorkerDied", check: func(e *wire.Error) bool { return *e.Returncode == -9 && e.Cause == "SIGNAL" }},
		{name: "unknown to the runtime", error: &wire.Error{Type: "ResultUnavailable"}, want: "ResultUnavailable"},
		{name: "fenced", error: &wire.Error{Type: "Fenced"}, want: "ResultUnavailable"},
		{name: "no error map", want: "ResultUnavailable"},
		{name: "no type", error: &wire.Error{}, want: "Unknown"},
		{name: "not JSON", value: &wire.Result{Value: []byte("{"), Encoding: "json"}, want: "ResultEncodeError"},
		{name: "two documents", value: &wire.Result{Value: []byte("1 2"), Encoding: "json"}, want: "ResultEncodeError"},
		{name: "invalid UTF-8", value: &wire.Result{Value: []byte("\"\xff\""), Encoding: "json"}, want: "ResultEncodeError"},
		{name: "too deep", value: &wire.Result{Value: []byte(strings.Repeat("[", 201) + strings.Repeat("]", 201)), Encoding: "json"}, want: "ResultEncodeError"},
		{name: "other encoding", value: &wire.Result{Value: []byte("1"), Encoding: "msgpack"}, want: "ResultEncodeError"},
		{name: "no encoding", value: &wire.Result{Value: []byte("1")}, want: "ResultEncodeError"},
		{name: "ArgumentsInvalid of user code", error: &wire.Error{Type: "ArgumentsInvalid"}, want: "ArgumentsInvalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			l, h := r.sandbox("box")
			done := r.remote(t.Context(), Request{CallID: "c"})
			awaitSent(t, l, "c")
			if c.value != nil {
				c.value.CallID = "c"
				h.Result(*c.value)
			} else {
				h.CallError(wire.CallError{CallID: "c", Error: c.error})
			}
			a := <-done
			if a.err != nil || a.outcome.Error == nil || a.outcome.Error.Type != c.want || (c.check != nil && !c.check(a.outcome.Error)) {
				t.Fatalf("got %+v (%+v), %v", a.outcome, a.outcome.Error, a.err)
			}
			if diff := cmp.Diff(r.callEvents("box"), []string{"c ACCEPTED ", "c FINISHED " + c.want}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestArgumentsInvalidIsTheCallersError(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	h.CallError(wire.CallError{CallID: "c", Error: &wire.Error{Type: "ArgumentsInvalid", Message: "bad", Violations: []wire.Violation{{Path: "kwargs.n", Message: "must be int"}}}})
	a := <-done
	var e *errs.Error
	if !errors.As(a.err, &e) || e.Reason != errs.ArgumentsInvalid || e.Violations[0] != (errs.Violation{Field: "kwargs.n", Description: "must be int"}) {
		t.Errorf("got %v", a.err)
	}
	again := <-r.remote(t.Context(), Request{CallID: "c"})
	if !errs.Is(again.err, errs.InvalidArgument) {
		t.Errorf("again: %+v, %v", again.outcome, again.err)
	}
}

func TestNotAccepted(t *testing.T) {
	r := newRig(t)
	l, _ := r.sandbox("box")
	if a := <-r.remote(t.Context(), Request{Sandbox: "other"}); !errs.Is(a.err, errs.NotFound) {
		t.Errorf("no sandbox: %v", a.err)
	}
	l.set(0)
	var e *errs.Error
	if a := <-r.remote(t.Context(), Request{}); !errors.As(a.err, &e) || e.Reason != errs.RuntimeUnavailable || e.RetryAfter == 0 {
		t.Errorf("link down: %v", a.err)
	}
	if got := r.openCalls(); len(got) != 0 {
		t.Errorf("accepted: %v", got)
	}
	r.d.Stop()
	if a := <-r.remote(t.Context(), Request{}); !errors.As(a.err, &e) || e.Reason != errs.Stopping {
		t.Errorf("stopping: %v", a.err)
	}
}

func TestJoinAndConflict(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	one := r.remote(t.Context(), Request{CallID: "c", Args: "[1]"})
	awaitSent(t, l, "c")
	if a := <-r.remote(t.Context(), Request{CallID: "c", Args: "[2]"}); !errs.Is(a.err, errs.AlreadyExists) {
		t.Errorf("other arguments: %v", a.err)
	}
	two := r.remote(t.Context(), Request{CallID: "c", Args: "[1]", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	h.Result(jsonResult("c", "7"))
	for _, done := range []<-chan answer{one, two} {
		if a := <-done; a.err != nil || string(a.outcome.Value) != "7" {
			t.Errorf("got %+v, %v", a.outcome, a.err)
		}
	}
	h.Result(jsonResult("c", "8")) // a second result does not count
	if a := <-r.remote(t.Context(), Request{CallID: "c", Args: "[1]"}); a.err != nil || string(a.outcome.Value) != "7" {
		t.Errorf("later: %+v, %v", a.outcome, a.err)
	}
	if ids, _, _ := l.seen(); len(ids) != 1 {
		t.Errorf("sent %d times", len(ids))
	}
	if got := r.callEvents("box"); len(got) != 2 {
		t.Errorf("events %v", got)
	}
}

func TestCallerLeaves(t *testing.T) {
	t.Run("without a call id the call is cancelled", func(t *testing.T) {
		r := newRig(t)
		l, h := r.sandbox("box")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := r.remote(ctx, Request{})
		await.True(t, func() bool { ids, _, _ := l.seen(); return len(ids) == 1 }, "the call")
		cancel(errors.New("gone"))
		if a := <-done; !errs.Is(a.err, errs.Cancelled) {
			t.Errorf("got %v", a.err)
		}
		ids, _, _ := l.seen()
		awaitCancelled(t, l, ids[0])
		h.CallError(wire.CallError{CallID: ids[0], Error: &wire.Error{Type: "Cancelled", Cancelled: true}})
		await.True(t, func() bool { return len(r.openCalls()) == 0 }, "the end of the call")
	})
	t.Run("with one it goes on for 30 s", func(t *testing.T) {
		r := newRig(t)
		l, _ := r.sandbox("box")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("deadline"))
		defer cancel()
		if a := <-r.remote(ctx, Request{CallID: "c"}); !errs.Is(a.err, errs.DeadlineExceeded) {
			t.Errorf("got %v", a.err)
		}
		r.clock.Advance(29 * time.Second)
		if _, cancels, _ := l.seen(); len(cancels) != 0 {
			t.Errorf("cancelled early: %v", cancels)
		}
		r.clock.Advance(time.Second)
		awaitCancelled(t, l, "c")
	})
	t.Run("while the daemon stops it goes on", func(t *testing.T) {
		r := newRig(t)
		l, _ := r.sandbox("box")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := r.remote(ctx, Request{})
		await.True(t, func() bool { ids, _, _ := l.seen(); return len(ids) == 1 }, "the call")
		r.d.Stop()
		cancel(errors.New("server stops"))
		var e *errs.Error
		if a := <-done; !errors.As(a.err, &e) || e.Reason != errs.Stopping {
			t.Errorf("got %v", a.err)
		}
		if _, cancels, _ := l.seen(); len(cancels) != 0 {
			t.Errorf("cancelled: %v", cancels)
		}
	})
}

func TestTimeoutIsAnsweredWhileTheLinkIsDown(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	done := r.remote(t.Context(), Request{CallID: "c", Timeout: time.Second})
	awaitSent(t, l, "c")
	l.set(0)
	h.Disconnected(nil, errors.New("cut"))
	r.clock.Advance(time.Second)
	r.clock.Advance(100*time.Millisecond - time.Nanosecond)
	if a := <-done; a.err != nil || a.outcome.Error.Type != wire.ErrDeadlineExceeded {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
	h.Result(jsonResult("c", "1")) // too late: it does not count, but the runtime may forget it
	_, _, acks := l.seen()
	if !slices.Contains(acks, "c") {
		t.Errorf("acks %v", acks)
	}
	if diff := cmp.Diff(r.callEvents("box"), []string{"c ACCEPTED ", "c FINISHED DeadlineExceeded"}); diff != "" {
		t.Error(diff)
	}
}

func TestCallTooLargeForTheRuntime(t *testing.T) {
	r := newRig(t)
	l, _ := r.sandbox("box")
	l.refuse = errs.OverLimit("runtime_message_bytes", 100, 200)
	if a := <-r.remote(t.Context(), Request{}); a.err != nil || a.outcome.Error.Type != wire.ErrFrameTooLarge {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}
