package dispatch

import (
	"slices"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
)

var errDisk = errs.New(errs.ResourceExhausted, errs.LimitExceeded, "disk full")

func TestStoreRefusesACall(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	r.faults.set(func(s *faultyStore) { s.beforeAccept = errDisk })
	if a := <-r.remote(t.Context(), Request{CallID: "c"}); !errs.Is(a.err, errs.ResourceExhausted) {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
	if ids, _, _ := l.seen(); len(ids) != 0 {
		t.Errorf("sent %v", ids)
	}
	r.faults.set(func(s *faultyStore) { s.beforeAccept = nil })
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	h.Result(jsonResult("c", "1"))
	if a := <-done; a.err != nil || string(a.outcome.Value) != "1" {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}

// The store wrote the call down and yet said no: nothing was sent, and the next try with the
// same id is this call.
func TestR2_AcceptedAndYetAnError(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	r.faults.set(func(s *faultyStore) { s.afterAccept = errDisk })
	for _, id := range []string{"c", ""} {
		if a := <-r.remote(t.Context(), Request{CallID: id}); !errs.Is(a.err, errs.ResourceExhausted) {
			t.Errorf("got %+v, %v", a.outcome, a.err)
		}
	}
	if ids, _, _ := l.seen(); len(ids) != 0 {
		t.Errorf("sent %v", ids)
	}
	if got := r.openCalls(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("open %v", got)
	}
	if a := <-r.remote(t.Context(), Request{CallID: "c", Args: "[2]"}); !errs.Is(a.err, errs.AlreadyExists) {
		t.Errorf("other arguments: %v", a.err)
	}
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	h.Result(jsonResult("c", "1"))
	if a := <-done; a.err != nil || string(a.outcome.Value) != "1" {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
}

// An outcome that cannot be stored is told all the same, and the runtime keeps it until it
// is stored.
func TestOutcomeIsStoredLater(t *testing.T) {
	r := newRig(t)
	l, h := r.sandbox("box")
	r.faults.set(func(s *faultyStore) { s.beforeFinish = errDisk })
	done := r.remote(t.Context(), Request{CallID: "c"})
	awaitSent(t, l, "c")
	h.Result(jsonResult("c", "1"))
	if a := <-done; a.err != nil || string(a.outcome.Value) != "1" {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
	if _, _, acks := l.seen(); len(acks) != 0 {
		t.Errorf("acked %v", acks)
	}
	r.faults.set(func(s *faultyStore) { s.beforeFinish = nil })
	await.True(t, func() bool {
		r.clock.Advance(time.Second)
		_, _, acks := l.seen()
		return slices.Equal(acks, []string{"c"})
	}, "the ack")
	if got := r.openCalls(); len(got) != 0 {
		t.Errorf("open %v", got)
	}
}
