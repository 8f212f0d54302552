package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func ptr(n uint32) *uint32 { return &n }

func at(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }

// mixed fills sandbox a with events of many kinds, one a second, one a batch or all in one.
func mixed(t *testing.T, j *Journal, apart bool) {
	t.Helper()
	evs := []Event{
		{Body: &Lifecycle{State: "READY"}},
		{CallID: "c1", Body: &Call{Phase: CallAccepted}},
		{CallID: "c1", Body: &Log{Message: "debug", LevelNumber: 10}},
		{Body: &Output{Stream: Stdout, Data: []byte("out")}},
		{CallID: "c1", Body: &Log{Message: "error", LevelNumber: 40}},
		{Body: &Plugin{Namespace: "/x", Event: "e", MsgpackData: []byte{1}}},
		{CallID: "c1", Body: &Plugin{Namespace: "/y", Event: "e", MsgpackData: []byte{1}}},
		{Body: &Gap{Dropped: 2, Source: SourceRuntime}},
		{CallID: "c1", Body: &Call{Phase: CallFinished}},
	}
	for i := range evs {
		evs[i].Time = at(i + 1)
		if apart {
			j.Append("a", evs[i])
			flush(t, j, "a")
		}
	}
	if !apart {
		j.Append("a", evs...)
		flush(t, j, "a")
	}
}

func TestFiltersAndStarts(t *testing.T) {
	cases := map[string]struct {
		query Query
		want  []uint64
	}{
		"everything":          {Query{}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"kinds":               {Query{Kinds: []Kind{KindOutput, KindLifecycle}}, []uint64{1, 4, 8}},
		"unknown kind":        {Query{Kinds: []Kind{77}}, []uint64{8}},
		"level":               {Query{Kinds: []Kind{KindLog}, MinLevel: 20}, []uint64{5, 8}},
		"level, other kinds":  {Query{MinLevel: 20}, []uint64{1, 2, 4, 5, 6, 7, 8, 9}},
		"namespace":           {Query{Kinds: []Kind{KindPlugin}, Namespaces: []string{"/y", "/z"}}, []uint64{7, 8}},
		"call":                {Query{CallID: "c1"}, []uint64{2, 3, 5, 7, 8, 9}},
		"tail":                {Query{Tail: ptr(3)}, []uint64{7, 8, 9}},
		"tail of nothing":     {Query{Tail: ptr(0)}, nil},
		"tail of all":         {Query{Tail: ptr(100)}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"tail that matches":   {Query{Tail: ptr(2), Kinds: []Kind{KindLog}}, []uint64{5, 8}},
		"tail of a call":      {Query{Tail: ptr(3), CallID: "c1"}, []uint64{7, 8, 9}},
		"tail of more":        {Query{Tail: ptr(50), Kinds: []Kind{KindOutput}}, []uint64{4, 8}},
		"since":               {Query{Since: at(8)}, []uint64{8, 9}},
		"since between":       {Query{Since: at(7).Add(time.Millisecond)}, []uint64{8, 9}},
		"since the beginning": {Query{Since: at(-5)}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"since the future":    {Query{Since: at(100)}, nil},
		"since year 9999":     {Query{Since: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil},
	}
	for _, apart := range []bool{true, false} {
		j := open(t, t.TempDir(), Options{})
		mixed(t, j, apart)
		for name, c := range cases {
			for _, sandbox := range []string{"a", ""} {
				c.query.Sandbox = sandbox
				var got []uint64
				for _, ev := range readAll(t, j, c.query) {
					got = append(got, ev.Seq)
				}
				if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s of %q, batches apart %v:\n%s", name, sandbox, apart, diff)
				}
			}
		}
	}
}

func TestEveryCursorContinuesBehindItsEvent(t *testing.T) {
	for _, apart := range []bool{true, false} {
		j := open(t, t.TempDir(), Options{})
		mixed(t, j, apart)
		for _, sandbox := range []string{"a", ""} {
			all := readAll(t, j, Query{Sandbox: sandbox})
			for i, ev := range all {
				rest := readAll(t, j, Query{Sandbox: sandbox, After: ev.Cursor})
				if len(rest) != len(all)-i-1 || len(rest) > 0 && rest[0].Seq != ev.Seq+1 {
					t.Errorf("sandbox %q, after %d: got %v", sandbox, ev.Seq, lines(rest))
				}
			}
		}
	}
}

func TestManyPages(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	const n = 5000
	for i := range n {
		j.Append("a", output(fmt.Sprintf("%d %s", i, make([]byte, i%500))))
		if i%7 == 0 {
			j.Append("b", output("x"))
		}
	}
	flush(t, j, "a")
	flush(t, j, "b")
	for _, sandbox := range []string{"a", ""} {
		seen, pages := 0, 0
		err := j.Read(t.Context(), Query{Sandbox: sandbox}, func(evs []Event, _ string) error {
			pages++
			for i := range evs {
				if evs[i].Sandbox == "a" {
					if seen++; evs[i].Seq != uint64(seen) {
						return fmt.Errorf("seq %d follows %d", evs[i].Seq, seen-1)
					}
				}
			}
			return nil
		})
		if err != nil || seen != n || pages < 3 {
			t.Errorf("sandbox %q: %d events in %d pages, %v", sandbox, seen, pages, err)
		}
	}
}

// TestReadingEndsUnderAFlood appends events that match while a reader that does not follow
// has its page: it ends at what was the newest event when it began.
func TestReadingEndsUnderAFlood(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	for range 3 {
		j.Append("a", Event{Body: &Output{Stream: Stdout, Data: make([]byte, 256<<10)}})
	}
	j.Append("a", Event{Body: &Lifecycle{State: "READY"}})
	flush(t, j, "a")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("reading does not end"))
	defer cancel()
	for _, sandbox := range []string{"a", ""} {
		var last uint64
		pages := 0
		err := j.Read(ctx, Query{Sandbox: sandbox, Kinds: []Kind{KindOutput}}, func(evs []Event, _ string) error {
			last = evs[len(evs)-1].Seq
			if pages++; pages == 1 {
				fill(t, j, "a", 20)
			}
			return nil
		})
		if want := map[string]uint64{"a": 3, "": 24}[sandbox]; err != nil || pages < 2 || last != want {
			t.Errorf("sandbox %q: %d pages to %d, want to %d; %v", sandbox, pages, last, want, err)
		}
	}
}
