package calltable

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func outcome(text string) Outcome { return Outcome{Event: "call:result", Payload: []byte(text)} }

func newTable() *Table { return NewTable(Limits{Entries: 3, Bytes: 10_000}) }

func TestR2_ReplayNeverRunsTwice(t *testing.T) {
	tab := newTable()
	for i, step := range []struct {
		do   func()
		want Verdict
	}{
		{func() {}, New},
		{func() {}, Running},
		{func() { tab.Finish("a", outcome("1")) }, Retained},
		{func() { tab.Ack("a", 7) }, Finished},
		{func() {}, Finished},
	} {
		step.do()
		if got := tab.Start("a", 7); got != step.want {
			t.Errorf("step %d: got %d, want %d", i, got, step.want)
		}
	}
}

func TestFirstOutcomeWins(t *testing.T) {
	tab := newTable()
	tab.Start("a", 7)
	if owner, ok := tab.Finish("a", outcome("cancelled")); !ok || owner != 7 {
		t.Fatalf("got %d, %v", owner, ok)
	}
	if _, ok := tab.Finish("a", outcome("late")); ok {
		t.Error("a late outcome was taken")
	}
	if _, _, o := tab.Lookup("a"); string(o.Payload) != "cancelled" {
		t.Errorf("kept %q", o.Payload)
	}
}

func TestAcksOfOthersAreIgnored(t *testing.T) {
	tab := newTable()
	tab.Start("a", 7)
	tab.Finish("a", outcome("1"))
	if tab.Ack("a", 8) || tab.Ack("a", Neighbour) {
		t.Error("another session's ack was taken")
	}
	tab.Own("a", 8)
	if tab.Ack("a", 7) || !tab.Ack("a", 8) {
		t.Error("the ack did not follow the owner")
	}
}

func TestFencedCallDoesNotRun(t *testing.T) {
	tab := newTable()
	tab.Fence("a")
	if got := tab.Start("a", 7); got != Fenced {
		t.Errorf("got %d", got)
	}
	tab.Start("b", 7)
	tab.Fence("b")
	if _, ok := tab.Finish("b", outcome("1")); !ok {
		t.Error("a fence stopped a call that ran")
	}
}

func TestOwnerThatLeftOwnsNothing(t *testing.T) {
	tab := newTable()
	tab.Start("a", 7)
	tab.Start("b", 7)
	tab.Finish("b", outcome("1"))
	tab.Release(7)
	for _, id := range []string{"a", "b"} {
		if _, owner, _ := tab.Lookup(id); owner != Nobody {
			t.Errorf("%s belongs to %d", id, owner)
		}
	}
}

func TestRetainedIsBoundedInEntriesAndBytes(t *testing.T) {
	tab := newTable()
	for i := range 5 {
		id := fmt.Sprint(i)
		tab.Start(id, 7)
		tab.Finish(id, outcome("x"))
	}
	if _, n := tab.Len(); n != 3 || tab.Evicted() != 2 {
		t.Errorf("%d kept, %d evicted; want 3 and 2", n, tab.Evicted())
	}
	if state, _, _ := tab.Lookup("0"); state != StateFinished {
		t.Errorf("the oldest is in state %d", state)
	}
	tab.Start("big", 7)
	tab.Finish("big", outcome(string(make([]byte, 20_000))))
	if _, n := tab.Len(); n != 1 {
		t.Errorf("%d kept beside one that takes all bytes", n-1)
	}
	if state, _, _ := tab.Lookup("big"); state != StateRetained {
		t.Error("the newest outcome is not kept, however large")
	}
}

// TestR1_TableModel compares with the plainest table there is.
func TestR1_TableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := NewTable(Limits{Entries: 1000, Bytes: 1 << 30})
		state := map[string]State{}
		fenced := map[string]bool{}
		ran := map[string]int{}
		id := func(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id") }
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				id := id(t)
				v := tab.Start(id, 7)
				want := map[State]Verdict{StateUnknown: New, StateRunning: Running, StateRetained: Retained, StateFinished: Finished}[state[id]]
				if fenced[id] {
					want = Fenced
				}
				if v != want {
					t.Fatalf("start %s: got %d, want %d", id, v, want)
				}
				if v == New {
					state[id] = StateRunning
					ran[id]++
				}
			},
			"finish": func(t *rapid.T) {
				id := id(t)
				if _, ok := tab.Finish(id, outcome(id)); ok != (state[id] == StateRunning) {
					t.Fatalf("finish %s: %v in state %d", id, ok, state[id])
				}
				if state[id] == StateRunning {
					state[id] = StateRetained
				}
			},
			"ack": func(t *rapid.T) {
				id := id(t)
				if ok := tab.Ack(id, 7); ok != (state[id] == StateRetained) {
					t.Fatalf("ack %s: %v in state %d", id, ok, state[id])
				}
				if state[id] == StateRetained {
					state[id] = StateFinished
				}
			},
			"fence": func(t *rapid.T) {
				id := id(t)
				tab.Fence(id)
				fenced[id] = fenced[id] || state[id] == StateUnknown
			},
			"": func(t *rapid.T) {
				for id, n := range ran {
					if n > 1 {
						t.Fatalf("%s ran %d times", id, n)
					}
				}
				for id, want := range state {
					if got, _, _ := tab.Lookup(id); got != want && (!fenced[id] || want != StateUnknown) {
						t.Fatalf("%s is in state %d, want %d", id, got, want)
					}
				}
			},
		})
	})
}

func TestClaimsOfNeighbours(t *testing.T) {
	tab := newTable()
	tab.Start("a", Neighbour)
	tab.Claim("a", 7)
	tab.Claim("unknown", 7)
	tab.Start("b", 3)
	tab.Claim("b", 7) // a daemon's: nobody else can claim it
	tab.Finish("a", outcome("1"))
	if !tab.Claimed("a", 7) || tab.Claimed("a", 8) || len(tab.claims) != 1 {
		t.Error("the claims are wrong")
	}
	tab.Claim("a", 8)
	if tab.Claimed("a", 7) || !tab.Claimed("a", 8) {
		t.Error("a later session did not take over")
	}
	if !tab.Doom("a") || tab.Doom("a") || tab.Doom("b") || tab.Doom("unknown") {
		t.Error("an outcome is doomed once, if it is there")
	}
	tab.Drop("a")
	tab.Drop("a")
	if state, _, _ := tab.Lookup("a"); state != StateFinished || len(tab.claims) != 0 {
		t.Errorf("state %d, %d claims", state, len(tab.claims))
	}
}

func TestOutcomesExpire(t *testing.T) {
	now := time.Unix(1000, 0)
	tab := NewTable(Limits{Entries: 10, Bytes: 10_000, Age: time.Minute, Now: func() time.Time { return now }})
	for _, id := range []string{"a", "b"} {
		tab.Start(id, Neighbour)
		tab.Finish(id, outcome(id))
		now = now.Add(40 * time.Second)
	}
	tab.Expire()
	if state, _, _ := tab.Lookup("a"); state != StateFinished {
		t.Errorf("a is old, and its state is %d", state)
	}
	if state, _, _ := tab.Lookup("b"); state != StateRetained {
		t.Errorf("b is young, and its state is %d", state)
	}
	if got := tab.Start("a", Neighbour); got != Finished {
		t.Errorf("an expired call runs again: %d", got)
	}
}
