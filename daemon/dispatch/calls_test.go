package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

func (r *rig) submit(req Request) Info {
	r.t.Helper()
	info, err := r.d.Submit(context.Background(), filled(req))
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

func (r *rig) get(id string) Info {
	r.t.Helper()
	info, err := r.d.Get(context.Background(), "box", id)
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

// A submitted call is not cancelled for want of a waiter, whoever came and left, in this
// daemon or the next; a named one is, also by the next.
func TestP3_SubmittedCallIsNeverAnOrphan(t *testing.T) {
	r := newRig(t)
	l, _ := r.sandbox("box")
	r.submit(Request{CallID: "submitted"})
	ctx, leave := context.WithCancelCause(t.Context())
	named := r.remote(ctx, Request{CallID: "named"})
	joined := r.remote(ctx, Request{CallID: "joined"})
	waiting := make(chan error, 1)
	for _, id := range []string{"submitted", "named", "joined"} {
		awaitSent(t, l, id)
	}
	r.submit(Request{CallID: "joined"}) // from now on it is a submitted one
	go func() {
		_, err := r.d.Wait(ctx, "box", "submitted", -1)
		waiting <- err
	}()
	leave(errors.New("gone"))
	if err := <-waiting; !errs.Is(err, errs.Cancelled) {
		t.Errorf("waiter who left: %v", err)
	}
	<-named
	<-joined
	for restart, lonely := range []string{"named", "next"} {
		r.clock.Advance(29 * time.Second)
		if _, cancels, _ := l.seen(); len(cancels) != 0 {
			t.Errorf("cancelled %v after 29 s", cancels)
		}
		r.clock.Advance(time.Second)
		await.True(t, func() bool { _, cancels, _ := l.seen(); return len(cancels) > 0 }, "the cancel")
		if _, cancels, _ := l.seen(); !slices.Equal(cancels, []string{lonely}) {
			t.Errorf("cancelled %v", cancels)
		}
		if restart == 0 {
			await.True(t, func() bool { r.clock.Advance(10 * time.Millisecond); return !slices.Contains(r.openCalls(), "named") }, "the end of the cancelled call")
			last := r.remote(t.Context(), Request{CallID: "next"})
			awaitSent(t, l, "next")
			r.close()
			<-last
			r.open()
			l, _ = r.sandbox("box")
		}
	}
}

// Whoever waits keeps a named call, as the caller of Remote does.
func TestWaitingKeepsACall(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	ctx, leave := context.WithCancelCause(t.Context())
	done := r.remote(ctx, Request{CallID: "c"})
	awaitSent(t, l, "c")
	waited := make(chan Info, 2)
	wait := func(timeout time.Duration) {
		info, err := r.d.Wait(context.Background(), "box", "c", timeout)
		if err != nil {
			t.Error(err)
		}
		waited <- info
	}
	go wait(-1)
	await.True(t, func() bool { r.d.mu.Lock(); defer r.d.mu.Unlock(); return r.d.table.Waiters("c") == 2 }, "two waiters")
	leave(errors.New("gone"))
	<-done
	r.clock.Advance(time.Minute)
	go wait(time.Second)
	await.True(t, func() bool { r.d.mu.Lock(); defer r.d.mu.Unlock(); return r.d.table.Waiters("c") == 2 }, "two waiters")
	r.clock.Advance(time.Second)
	if info := <-waited; info.State != Running || info.Outcome != nil {
		t.Errorf("after its time: %+v", info)
	}
	if info, err := r.d.Wait(t.Context(), "box", "c", 0); err != nil || info.State != Running {
		t.Errorf("without waiting: %+v, %v", info, err)
	}
	h.Result(jsonResult("c", "1"))
	if info := <-waited; info.State != Succeeded || string(info.Outcome.Value) != "1" {
		t.Errorf("at its end: %+v", info)
	}
	if _, cancels, _ := l.seen(); len(cancels) != 0 {
		t.Errorf("cancelled %v", cancels)
	}
}

func TestCancelCall(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	r.submit(Request{CallID: "c"})
	awaitSent(t, l, "c")
	cancelled := make(chan Info, 1)
	go func() {
		info, err := r.d.Cancel(context.Background(), "box", "c")
		if err != nil {
			t.Error(err)
		}
		cancelled <- info
	}()
	await.True(t, func() bool { _, cancels, _ := l.seen(); return len(cancels) == 1 }, "the cancel")
	h.CallError(wire.CallError{CallID: "c", Error: &wire.Error{Type: "Cancelled", Cancelled: true}})
	if info := <-cancelled; info.State != Cancelled || !info.Outcome.Error.Cancelled || info.ErrorType != wire.ErrCancelled {
		t.Errorf("got %+v", info)
	}
	if info, err := r.d.Cancel(t.Context(), "box", "c"); err != nil || info.State != Cancelled {
		t.Errorf("again: %+v, %v", info, err)
	}
	if _, err := r.d.Cancel(t.Context(), "other", "c"); !errs.Is(err, errs.NotFound) {
		t.Errorf("in another sandbox: %v", err)
	}
}

// P3: who asks for a named or submitted call after a restart gets what there was before, a
// value of any size and an error with all its parts; of an unnamed one how it ended.
func TestP3_OutcomesAfterARestart(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	code := 3
	finish := map[string]func(id string){
		"small": func(id string) { h.Result(jsonResult(id, "1")) },
		"large": func(id string) { h.Result(jsonResult(id, `"`+strings.Repeat("x", 300000)+`"`)) },
		"error": func(id string) {
			h.CallError(wire.CallError{CallID: id, Error: &wire.Error{Type: "WorkerDied", Message: "m", Returncode: &code, Cause: "EXIT"}})
		},
		"cancelled": func(id string) {
			h.CallError(wire.CallError{CallID: id, Error: &wire.Error{Type: "Cancelled", Cancelled: true}})
		},
	}
	before := map[string]Info{}
	for what, end := range finish {
		named := r.remote(t.Context(), Request{CallID: "named-" + what})
		r.submit(Request{CallID: "submitted-" + what})
		for _, id := range []string{"named-" + what, "submitted-" + what} {
			awaitSent(t, l, id)
			if got := r.get(id); got.State != Running || got.Callable != "app::run" || got.Accepted.IsZero() || !got.Finished.IsZero() {
				t.Errorf("%s runs: %+v", id, got)
			}
			end(id)
			info, err := r.d.Wait(t.Context(), "box", id, -1)
			if err != nil || info.Outcome == nil || info.Finished.IsZero() {
				t.Errorf("%s: %+v, %v", id, info, err)
			}
			before[id] = info
		}
		<-named
	}
	unnamed := r.remote(t.Context(), Request{})
	var id string
	await.True(t, func() bool { ids, _, _ := l.seen(); id = ids[len(ids)-1]; return len(ids) == 9 }, "the call")
	h.CallError(wire.CallError{CallID: id, Error: &wire.Error{Type: "Oops", Message: "m"}})
	<-unnamed
	if got := r.get(id); got.State != Failed || got.Outcome == nil {
		t.Errorf("unnamed: %+v", got)
	}
	await.True(t, func() bool { return len(r.openCalls()) == 0 }, "all to be stored")
	r.close()
	r.open()
	for id, want := range before {
		got := r.get(id)
		if text(got.Outcome) != text(want.Outcome) || got.State != want.State || got.ErrorType != want.ErrorType || got.Expired ||
			!got.Accepted.Equal(want.Accepted) || !got.Finished.Equal(want.Finished) {
			t.Errorf("%s: got %+v, want %+v", id, got, want)
		}
	}
	if got := r.get(id); got.State != Failed || got.ErrorType != "Oops" || !got.Expired || got.Outcome != nil {
		t.Errorf("unnamed: %+v", got)
	}
	// Named ones are joined, also with an outcome that is no longer kept.
	if err := r.store.ExpireOutcomes(t.Context(), start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"named-small": wire.ErrResultUnavailable, "submitted-error": "WorkerDied", "named-cancelled": "Cancelled"} {
		a := <-r.remote(t.Context(), Request{CallID: id})
		if a.err != nil || a.outcome.Error == nil || a.outcome.Error.Type != want || a.outcome.Error.Cancelled != (want == "Cancelled") {
			t.Errorf("%s: %+v, %v", id, a.outcome, a.err)
		}
		if got := r.get(id); !got.Expired || got.State != before[id].State {
			t.Errorf("%s: %+v", id, got)
		}
	}
	r.sandbox("box")
}

// A submitted call that is over its time is ended by the next daemon at the latest, whatever
// the clock did meanwhile.
func TestDeadlineOfAnEarlierDaemon(t *testing.T) {
	accepted := start
	for name, c := range map[string]struct {
		deadline, now, want time.Duration
	}{
		"none":                {0, time.Hour, 0},
		"to come":             {time.Minute, 20 * time.Second, 40*time.Second + timeoutSlack},
		"over":                {time.Minute, time.Hour, reconcileTime},
		"the clock went back": {time.Minute, -time.Hour, time.Minute + timeoutSlack},
	} {
		row := store.CallRow{Accepted: accepted}
		if c.deadline > 0 {
			row.Deadline = accepted.Add(c.deadline)
		}
		if got := timeLeft(row, accepted.Add(c.now)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	r := newRig(t)
	l, _ := r.sandbox("box")
	r.submit(Request{CallID: "c", Timeout: time.Minute})
	awaitSent(t, l, "c")
	r.close()
	r.open()
	r.sandbox("box")
	r.clock.Advance(59 * time.Second)
	if got := r.get("c"); got.State != Running {
		t.Errorf("before its end: %+v", got)
	}
	r.clock.Advance(2 * time.Second)
	if info, err := r.d.Wait(t.Context(), "box", "c", -1); err != nil || info.ErrorType != wire.ErrDeadlineExceeded {
		t.Errorf("got %+v, %v", info, err)
	}
}

// Submitting what the store cannot note is an error, and the call itself goes on.
func TestSubmitRefused(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	r.faults.set(func(s *faultyStore) { s.beforeAccept = errDisk })
	if _, err := r.d.Submit(t.Context(), filled(Request{CallID: "c"})); !errs.Is(err, errs.ResourceExhausted) {
		t.Errorf("got %v", err)
	}
	if _, err := r.d.Get(t.Context(), "box", "c"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a call that was not accepted: %v", err)
	}
	// Written and yet an error: it is not accepted, and the next try is this call.
	r.faults.set(func(s *faultyStore) { s.beforeAccept, s.afterAccept = nil, errDisk })
	if _, err := r.d.Submit(t.Context(), filled(Request{CallID: "c"})); !errs.Is(err, errs.ResourceExhausted) {
		t.Errorf("got %v", err)
	}
	if page, _, err := r.d.List(t.Context(), ListQuery{Limit: 10}); err != nil || len(page) != 0 {
		t.Errorf("listed %+v, %v", page, err)
	}
	r.faults.set(func(s *faultyStore) { s.afterAccept = nil })
	if info := r.submit(Request{CallID: "c"}); info.State != Running {
		t.Errorf("got %+v", info)
	}
	awaitSent(t, l, "c")
	h.Result(jsonResult("c", "1"))
	if info, err := r.d.Wait(t.Context(), "box", "c", -1); err != nil || info.State != Succeeded {
		t.Errorf("got %+v, %v", info, err)
	}
}

// An outcome that the store does not take is known all the same, however large it is.
func TestR13_OutcomeThatCannotBeStored(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	r.faults.set(func(s *faultyStore) { s.beforeFinish = errDisk })
	r.submit(Request{CallID: "c"})
	awaitSent(t, l, "c")
	value := `"` + strings.Repeat("x", 65<<20) + `"`
	h.Result(jsonResult("c", value))
	for range 2 {
		if info, err := r.d.Wait(t.Context(), "box", "c", -1); err != nil || info.Outcome == nil || len(info.Outcome.Value) != len(value) {
			t.Fatalf("state %v, %v", info.State, err)
		}
		if page, _, err := r.d.List(t.Context(), ListQuery{Sandbox: "box", Limit: 10}); err != nil || len(page) != 1 || page[0].State != Succeeded || page[0].Expired {
			t.Errorf("listed %+v, %v", page, err)
		}
		if a := <-r.remote(t.Context(), Request{CallID: "c"}); a.err != nil || len(a.outcome.Value) != len(value) {
			t.Errorf("asked again: %v", a.err)
		}
		r.faults.set(func(s *faultyStore) { s.beforeFinish = nil })
		await.True(t, func() bool { r.clock.Advance(time.Second); return len(r.openCalls()) == 0 }, "the outcome to be stored")
	}
	if ids, _, _ := l.seen(); len(ids) != 1 {
		t.Errorf("sent %v", ids)
	}
}
