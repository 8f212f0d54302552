package dispatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

// A call that was stopped from outside runs on until its runtime says otherwise.
func TestStillRunning(t *testing.T) {
	retiring := link.Peer{Health: wire.Health{Capabilities: []string{wire.CapRetire}}}
	r := newRig(t)
	l, h := r.sandbox("box")
	h.Connected(retiring)
	stop := func(id string) {
		r.submit(Request{CallID: id})
		awaitSent(t, l, id)
		h.CallError(wire.CallError{CallID: id, Error: &wire.Error{Type: wire.ErrDeadlineExceeded}})
		if _, err := r.d.Wait(t.Context(), "box", id, -1); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want ...string) {
		t.Helper()
		page, _, err := r.d.List(t.Context(), ListQuery{Sandbox: "box", Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, info := range page {
			if info.StillRunning {
				got = append(got, info.ID)
			}
			if one := r.get(info.ID); one.StillRunning != info.StillRunning {
				t.Errorf("%s: %s alone: %v", when, info.ID, one.StillRunning)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: still running %v, want %v", when, got, want)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		stop(id)
	}
	check("after their ends", "a", "b", "c")
	_, evil := r.sandbox("evil")
	evil.Stopped("a")
	evil.Connected(link.Peer{StillRunning: []string{"a", "never"}, Health: retiring.Health})
	check("after another runtime's word", "a", "b", "c")
	h.Stopped("a")
	check("after one stopped", "b", "c")
	h.Disconnected(nil, errors.New("cut"))
	again := retiring
	again.StillRunning = []string{"c"}
	h.Connected(again)
	check("after a reconnect", "c")
	r.close()
	r.open()
	l, h = r.sandbox("box")
	h.Connected(again)
	check("after a restart of the daemon", "c")
	r.d.SandboxLost("box", "EXITED", "gone")
	check("after the sandbox")
	_, h = r.sandbox("box")
	h.Connected(link.Peer{}) // a runtime that does not tell
	r.submit(Request{CallID: "d"})
	r.mu.Lock()
	l = r.links["box"]
	r.mu.Unlock()
	awaitSent(t, l, "d")
	h.CallError(wire.CallError{CallID: "d", Error: &wire.Error{Type: "Cancelled", Cancelled: true}})
	if _, err := r.d.Wait(t.Context(), "box", "d", -1); err != nil {
		t.Fatal(err)
	}
	check("where nobody tells")
}

// P4: who cancels and who waits are answered in time, whatever the runtime does; it is told
// of the cancel once more when it comes back.
func TestP4_AnsweredWithoutTheRuntime(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	h.Connected(link.Peer{Health: wire.Health{Capabilities: []string{wire.CapRetire}}})
	timed := r.remote(t.Context(), Request{CallID: "timed", Timeout: time.Minute})
	r.submit(Request{CallID: "cancelled"})
	for _, id := range []string{"timed", "cancelled"} {
		awaitSent(t, l, id)
	}
	done := make(chan Info, 1)
	go func() {
		info, err := r.d.Cancel(context.Background(), "box", "cancelled")
		if err != nil {
			t.Error(err)
		}
		done <- info
	}()
	await.True(t, func() bool { _, cancels, _ := l.seen(); return len(cancels) == 1 }, "the cancel")
	r.clock.Advance(80 * time.Millisecond)
	if info := <-done; info.State != Cancelled || !info.StillRunning {
		t.Errorf("cancelled: %+v", info)
	}
	r.clock.Advance(time.Minute - 80*time.Millisecond + timeoutSlack)
	if a := <-timed; a.err != nil || a.outcome.Error.Type != wire.ErrDeadlineExceeded {
		t.Errorf("timed: %+v, %v", a.outcome, a.err)
	}
	if got := r.get("timed"); !got.StillRunning {
		t.Errorf("timed: %+v", got)
	}
	h.Disconnected(nil, errors.New("cut"))
	peer := link.Peer{Health: wire.Health{Capabilities: []string{wire.CapRetire}}}
	resume := h.Connected(peer)
	slices.Sort(resume.Cancel)
	if !slices.Equal(resume.Cancel, []string{"cancelled", "timed"}) || len(resume.CallIDs) != 0 {
		t.Errorf("resume %+v", resume)
	}
	h.CallError(wire.CallError{CallID: "cancelled", Error: &wire.Error{Type: "Cancelled", Cancelled: true}})
	h.Result(jsonResult("timed", "1")) // it returned after all
	if got := r.get("cancelled"); !got.StillRunning || got.State != Cancelled {
		t.Errorf("cancelled: %+v", got)
	}
	if got := r.get("timed"); got.StillRunning || got.ErrorType != wire.ErrDeadlineExceeded {
		t.Errorf("timed: %+v", got)
	}
	if resume := h.Connected(peer); len(resume.Cancel) != 0 { // it does not run there
		t.Errorf("resume %+v", resume)
	}
	if got := r.get("cancelled"); got.StillRunning {
		t.Errorf("cancelled: %+v", got)
	}
}
