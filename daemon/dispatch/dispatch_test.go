package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/daemon/events"
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
	h.Disconnected(errors.New("cut"))
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

func TestReconnect(t *testing.T) {
	t.Run("a sent call is asked for and never sent again", func(t *testing.T) {
		r := newRig(t)
		l, h := r.sandbox("box")
		done := r.remote(t.Context(), Request{CallID: "c"})
		awaitSent(t, l, "c")
		l.set(0)
		h.Disconnected(errors.New("cut"))
		if got := h.Connected(wire.Health{}); !slices.Equal(got.CallIDs, []string{"c"}) {
			t.Errorf("resume %+v", got)
		}
		l.set(2)
		h.CallError(wire.CallError{CallID: "c", Error: &wire.Error{Type: "ResultUnavailable"}})
		if a := <-done; a.err != nil || a.outcome.Error.Type != wire.ErrResultUnavailable {
			t.Errorf("got %+v, %v", a.outcome, a.err)
		}
		if ids, _, _ := l.seen(); len(ids) != 1 {
			t.Errorf("sent %d times", len(ids))
		}
	})
	t.Run("one that surely was not sent is sent then", func(t *testing.T) {
		r := newRig(t)
		l, h := r.sandbox("box")
		l.refuse = errs.New(errs.Unavailable, errs.RuntimeUnavailable, "just now")
		done := r.remote(t.Context(), Request{CallID: "c"})
		await.True(t, l.awaited, "the refused call to wait")
		l.set(0)
		l.mu.Lock()
		l.refuse = nil
		l.mu.Unlock()
		if got := h.Connected(wire.Health{}); len(got.CallIDs) != 0 {
			t.Errorf("resume %+v", got)
		}
		l.set(2)
		awaitSent(t, l, "c")
		h.Result(jsonResult("c", "1"))
		if a := <-done; a.err != nil || string(a.outcome.Value) != "1" {
			t.Errorf("got %+v, %v", a.outcome, a.err)
		}
	})
	t.Run("a full queue delays a call", func(t *testing.T) {
		r := newRig(t)
		l, h := r.sandbox("box")
		l.full = func() {}
		done := r.remote(t.Context(), Request{CallID: "c"})
		awaitSent(t, l, "c")
		h.Result(jsonResult("c", "1"))
		if a := <-done; a.err != nil {
			t.Errorf("got %v", a.err)
		}
	})
	t.Run("a cancel is repeated", func(t *testing.T) {
		r := newRig(t)
		l, h := r.sandbox("box")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := r.remote(ctx, Request{})
		await.True(t, func() bool { ids, _, _ := l.seen(); return len(ids) == 1 }, "the call")
		cancel(errors.New("gone"))
		<-done
		h.Disconnected(errors.New("cut"))
		ids, _, _ := l.seen()
		if got := h.Connected(wire.Health{}); !slices.Equal(got.Cancel, ids) {
			t.Errorf("resume %+v, want cancel of %v", got, ids)
		}
		r.clock.Advance(10 * time.Second) // no answer
		await.True(t, func() bool { return len(r.openCalls()) == 0 }, "the end of the call")
	})
}

func TestCallTooLargeForTheRuntime(t *testing.T) {
	r := newRig(t)
	l, _ := r.sandbox("box")
	l.refuse = errs.OverLimit("runtime_message_bytes", 100, 200)
	if a := <-r.remote(t.Context(), Request{}); a.err != nil || a.outcome.Error.Type != wire.ErrFrameTooLarge {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}

func TestSandboxLost(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	other, oh := r.sandbox("other")
	done := r.remote(t.Context(), Request{CallID: "c"})
	spared := r.remote(t.Context(), Request{CallID: "d", Sandbox: "other"})
	awaitSent(t, l, "c")
	awaitSent(t, other, "d")
	r.d.SandboxLost("box", "EXITED", "the sandbox exited")
	a := <-done
	if a.err != nil || a.outcome.Error.Type != wire.ErrSandboxLost || a.outcome.Error.Cause != "EXITED" || a.outcome.Error.Message != "the sandbox exited" {
		t.Errorf("got %+v, %v", a.outcome.Error, a.err)
	}
	h.Result(jsonResult("c", "1"))
	oh.Result(jsonResult("d", "2"))
	if a := <-spared; a.err != nil || string(a.outcome.Value) != "2" {
		t.Errorf("another sandbox's call: %+v, %v", a.outcome, a.err)
	}
	r.d.SandboxLost("box", "EXITED", "told twice")
	if diff := cmp.Diff(r.callEvents("box"), []string{"c ACCEPTED ", "c FINISHED SandboxLost"}); diff != "" {
		t.Error(diff)
	}
}

func TestUnsentCallOfALostSandbox(t *testing.T) {
	r := newRig(t)
	l, _ := r.sandbox("box")
	l.full = func() {
		r.lose(errs.New(errs.FailedPrecondition, errs.SandboxNotReady, "stopped").WithMeta("reason", "OOM_KILLED"))
	}
	done := r.remote(t.Context(), Request{CallID: "c"})
	if a := <-done; a.err != nil || a.outcome.Error.Type != wire.ErrSandboxLost || a.outcome.Error.Cause != "OOM_KILLED" {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}

// R4: nothing that a runtime says counts for a call that is not its own, or not yet sent.
func TestR4_ForeignAnswersDoNotCount(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	_, evil := r.sandbox("evil")
	l.refuse = errs.New(errs.Unavailable, errs.RuntimeUnavailable, "not yet")
	done := r.remote(t.Context(), Request{CallID: "c"})
	await.True(t, l.awaited, "the refused call to wait")
	evil.Result(jsonResult("c", `"evil"`))
	evil.CallError(wire.CallError{CallID: "c", Error: &wire.Error{Type: "Evil"}})
	h.Result(jsonResult("unknown", "1"))
	h.CallError(wire.CallError{CallID: "unknown"})
	l.mu.Lock()
	l.refuse = nil
	l.mu.Unlock()
	l.set(2)
	awaitSent(t, l, "c")
	evil.Result(jsonResult("c", `"evil"`))
	old := h
	fresh := r.d.Handler("box") // the sandbox was made anew
	fresh.(*receiver).bind(l)
	old.Result(jsonResult("c", `"old"`))
	fresh.Result(jsonResult("c", `"good"`))
	if a := <-done; a.err != nil || string(a.outcome.Value) != `"good"` {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}

func TestRestart(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(errors.New("test over"))
	finished := r.remote(ctx, Request{CallID: "small"})
	awaitSent(t, l, "small")
	h.Result(jsonResult("small", "1"))
	<-finished
	large := r.remote(ctx, Request{CallID: "large"})
	awaitSent(t, l, "large")
	h.Result(jsonResult("large", `"`+strings.Repeat("x", 70000)+`"`))
	<-large
	done := r.remote(ctx, Request{CallID: "open", Args: "[1]"})
	awaitSent(t, l, "open")
	r.close()
	if a := <-done; !errs.Is(a.err, errs.Unavailable) {
		t.Errorf("while closing: %v", a.err)
	}

	r.open()
	l2, h2 := r.sandbox("box")
	if a := <-r.remote(ctx, Request{CallID: "small"}); a.err != nil || string(a.outcome.Value) != "1" {
		t.Errorf("small: %+v, %v", a.outcome, a.err)
	}
	if a := <-r.remote(ctx, Request{CallID: "small", Args: "[2]"}); !errs.Is(a.err, errs.AlreadyExists) {
		t.Errorf("small with other arguments: %v", a.err)
	}
	if a := <-r.remote(ctx, Request{CallID: "large"}); a.err != nil || a.outcome.Error.Type != wire.ErrResultUnavailable {
		t.Errorf("large: %+v, %v", a.outcome, a.err)
	}
	if got := h2.Connected(wire.Health{}); !slices.Equal(got.CallIDs, []string{"open"}) {
		t.Errorf("resume %+v", got)
	}
	joined := r.remote(ctx, Request{CallID: "open", Args: "[1]"})
	h2.Result(jsonResult("open", "3"))
	if a := <-joined; a.err != nil || string(a.outcome.Value) != "3" {
		t.Errorf("open: %+v, %v", a.outcome, a.err)
	}
	if ids, _, _ := l2.seen(); len(ids) != 0 {
		t.Errorf("sent again: %v", ids)
	}
}

// A daemon that died between the terminal event and the store's row gives no second event.
func TestRestartTellsTheEndOnce(t *testing.T) {
	r := newRig(t)
	l, _ := r.sandbox("box")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := r.remote(ctx, Request{CallID: "c"})
	awaitSent(t, l, "c")
	r.journal.Append("box", events.Event{Time: start, Sandbox: "box", CallID: "c", Body: &events.Call{Phase: events.CallFinished, Callable: "app::run"}})
	r.close()
	cancel(errors.New("daemon died"))
	<-done
	r.open()
	_, h := r.sandbox("box")
	h.Connected(wire.Health{})
	h.Result(jsonResult("c", "1"))
	await.True(t, func() bool { return len(r.openCalls()) == 0 }, "the end of the call")
	if diff := cmp.Diff(r.callEvents("box"), []string{"c ACCEPTED ", "c FINISHED "}); diff != "" {
		t.Error(diff)
	}
}

func TestRestartWithoutTheSandbox(t *testing.T) {
	r := newRig(t)
	l, _ := r.sandbox("box")
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	r.close()
	<-done
	r.mu.Lock()
	delete(r.links, "box")
	r.mu.Unlock()
	r.open()
	await.True(t, func() bool { r.clock.Advance(time.Second); return len(r.openCalls()) == 0 }, "the end of the call")
	if diff := cmp.Diff(r.callEvents("box"), []string{"c ACCEPTED ", "c FINISHED SandboxLost"}); diff != "" {
		t.Error(diff)
	}
}
