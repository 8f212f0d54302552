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
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

func TestReconnect(t *testing.T) {
	t.Run("a sent call is asked for and never sent again", func(t *testing.T) {
		r := newRig(t)
		l, h := r.sandbox("box")
		done := r.remote(t.Context(), Request{CallID: "c"})
		awaitSent(t, l, "c")
		l.set(0)
		h.Disconnected(nil, errors.New("cut"))
		if got := h.Connected(link.Peer{}); !slices.Equal(got.CallIDs, []string{"c"}) {
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
		if got := h.Connected(link.Peer{}); len(got.CallIDs) != 0 {
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
		h.Disconnected(nil, errors.New("cut"))
		ids, _, _ := l.seen()
		if got := h.Connected(link.Peer{}); !slices.Equal(got.Cancel, ids) {
			t.Errorf("resume %+v, want cancel of %v", got, ids)
		}
		r.clock.Advance(80 * time.Millisecond) // no answer
		await.True(t, func() bool { return len(r.openCalls()) == 0 }, "the end of the call")
	})
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
	text := `"` + strings.Repeat("x", 300000) + `"`
	h.Result(jsonResult("large", text))
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
	if a := <-r.remote(ctx, Request{CallID: "large"}); a.err != nil || string(a.outcome.Value) != text {
		t.Errorf("large: %+v, %v", a.outcome, a.err)
	}
	if got := h2.Connected(link.Peer{}); !slices.Equal(got.CallIDs, []string{"open"}) {
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
	h.Connected(link.Peer{})
	h.Result(jsonResult("c", "1"))
	await.True(t, func() bool { return len(r.openCalls()) == 0 && len(r.callEvents("box")) > 1 }, "the end of the call")
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
	await.True(t, func() bool { r.clock.Advance(time.Second); return len(r.callEvents("box")) > 1 }, "the end of the call")
	if diff := cmp.Diff(r.callEvents("box"), []string{"c ACCEPTED ", "c FINISHED SandboxLost"}); diff != "" {
		t.Error(diff)
	}
	if open := r.openCalls(); len(open) > 0 {
		t.Errorf("%v is still open", open)
	}
}
