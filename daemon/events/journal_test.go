package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/runtime/wire"
)

// open opens a store and a journal in dir, closed at the end of the test.
func open(t testing.TB, dir string, opts Options) *Journal {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, opts)
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func flush(t testing.TB, j *Journal, sandbox string) {
	t.Helper()
	if err := j.Flush(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
}

// readAll reads without following.
func readAll(t testing.TB, j *Journal, q Query) []Event {
	t.Helper()
	var all []Event
	err := j.Read(t.Context(), q, func(evs []Event, _ string) error {
		all = append(all, evs...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func outputs(texts ...string) []wire.Record {
	var all []wire.Record
	for _, s := range texts {
		all = append(all, wire.Record{Kind: wire.RecordOutput, Time: 1.5, Stream: "stdout", Bytes: []byte(s)})
	}
	return all
}

func lines(evs []Event) []string {
	var all []string
	for i := range evs {
		switch b := evs[i].Body.(type) {
		case *Output:
			all = append(all, string(b.Data))
		case *Gap:
			all = append(all, fmt.Sprintf("gap %d-%d %d %s", b.FromSeq, b.ToSeq, b.Dropped, b.Source))
		case *Lifecycle:
			all = append(all, b.State)
		case *Call:
			all = append(all, b.Phase+" "+evs[i].CallID)
		default:
			all = append(all, fmt.Sprintf("%T", b))
		}
	}
	return all
}

func TestAppendedEventsAreReadBackInOrder(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	acked := 0
	j.Append("a", Event{Body: &Lifecycle{State: "CREATING"}}, Event{Body: &Lifecycle{State: "READY"}})
	j.AppendBatch("a", wire.Batch{Sid: "s", Seq: 1, Records: outputs("one", "two")}, func() { acked++ })
	j.Append("a", Event{CallID: "c1", Body: &Call{Phase: CallFinished}})
	flush(t, j, "a")
	got := lines(readAll(t, j, Query{Sandbox: "a"}))
	want := []string{"CREATING", "READY", "one", "two", "FINISHED c1"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if sid, seq, err := j.StreamCursor(t.Context(), "a", ""); sid != "s" || seq != 2 || err != nil {
		t.Errorf("cursor: got %q %d %v", sid, seq, err)
	}
}

func TestFollowerSeesNewEventsAndEndsWithItsCall(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	j.Append("a", Event{Body: &Lifecycle{State: "READY"}}, Event{CallID: "c1", Body: &Call{Phase: CallAccepted}})
	seen := make(chan []string, 100)
	done := make(chan error, 1)
	go func() {
		done <- j.Read(t.Context(), Query{Sandbox: "a", CallID: "c1", Follow: true}, func(evs []Event, _ string) error {
			seen <- lines(evs)
			return nil
		})
	}()
	if got := <-seen; fmt.Sprint(got) != "[ACCEPTED c1]" {
		t.Errorf("first: got %v", got)
	}
	j.Append("a", Event{CallID: "c2", Body: &Call{Phase: CallFinished}}, Event{CallID: "c1", Body: &Call{Phase: CallFinished}})
	if got := <-seen; fmt.Sprint(got) != "[FINISHED c1]" {
		t.Errorf("second: got %v", got)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the follower does not end with its call")
	}
}
