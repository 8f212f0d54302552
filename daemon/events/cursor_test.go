package events

import (
	"math"
	"testing"

	"github.com/agentixd/agentixd/internal/errs"
)

func FuzzCursor(f *testing.F) {
	for _, c := range []cursor{{form: formOne, owner: owner{1, 2}, a: 3}, {form: formAll, a: math.MaxUint64, b: math.MaxUint64}} {
		f.Add(c.String())
	}
	f.Add("")
	f.Add("AAAA")
	f.Add("====")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err != nil {
			if !errs.Is(err, errs.OutOfRange) {
				t.Errorf("%q: got %v, want OutOfRange", text, err)
			}
			return
		}
		if again := c.String(); again != text {
			t.Errorf("%q reads as %+v, which is %q", text, c, again)
		}
	})
}

func TestCursorsOfOthersAreRefused(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	other := open(t, t.TempDir(), Options{})
	for _, x := range []*Journal{j, other} {
		for _, s := range []string{"a", "b"} {
			x.Append(s, Event{Body: &Lifecycle{State: "READY"}})
			flush(t, x, s)
		}
	}
	one, all := readAll(t, j, Query{Sandbox: "a"})[0].Cursor, readAll(t, j, Query{})[0].Cursor
	ahead := cursor{form: formOne, owner: j.lookup("a").owner, a: 2}.String()
	allAhead := cursor{form: formAll, owner: j.all.owner, a: 4}.String()
	flipped := []byte(one)
	flipped[3] ^= 1
	for name, q := range map[string]struct {
		journal *Journal
		query   Query
	}{
		"no cursor at all":     {j, Query{Sandbox: "a", After: "hello"}},
		"a bit is wrong":       {j, Query{Sandbox: "a", After: string(flipped)}},
		"cut":                  {j, Query{Sandbox: "a", After: one[:len(one)-1]}},
		"longer":               {j, Query{Sandbox: "a", After: one + one}},
		"another sandbox":      {j, Query{Sandbox: "b", After: one}},
		"another server":       {other, Query{Sandbox: "a", After: one}},
		"all for one":          {j, Query{Sandbox: "a", After: all}},
		"one for all":          {j, Query{After: one}},
		"all of another":       {other, Query{After: all}},
		"ahead":                {j, Query{Sandbox: "a", After: ahead}},
		"ahead of all":         {j, Query{After: allAhead}},
		"with Follow, foreign": {other, Query{Sandbox: "a", After: one, Follow: true}},
	} {
		err := q.journal.Read(t.Context(), q.query, func([]Event, string) error { return nil })
		if !errs.Is(err, errs.OutOfRange) {
			t.Errorf("%s: got %v, want OutOfRange", name, err)
		}
	}
	err := j.Read(t.Context(), Query{Sandbox: "nobody"}, func([]Event, string) error { return nil })
	if !errs.Is(err, errs.NotFound) {
		t.Errorf("unknown sandbox: got %v, want NotFound", err)
	}
}

func FuzzDecodeBatch(f *testing.F) {
	evs := []Event{
		{CallID: "c", Body: &Log{Logger: "a", Message: "m", Extras: `{"a":1}`}}, {Body: &Output{Stream: Stdout, Data: []byte("x")}},
		{Body: &Span{Phase: SpanEnd, Name: "s"}}, {Body: &Plugin{Namespace: "/p", Event: "e", MsgpackData: []byte{0x01}}},
		{Body: &Lifecycle{State: "READY"}}, {Body: &Call{Phase: CallFinished}}, {Body: &Gap{Dropped: 3, Source: SourceRuntime}},
	}
	data, _, err := encode(evs)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{batchVersion}, data...), uint64(1), uint64(len(evs)))
	f.Add([]byte{batchVersion, 0x9e, 1}, uint64(1), uint64(1))
	f.Add([]byte{batchVersion, 0x95, 2, 0, 0xa0, 0xa0, 0xc6, 0xff, 0xff, 0xff, 0xff}, uint64(5), uint64(5))
	f.Fuzz(func(t *testing.T, data []byte, first, last uint64) {
		evs, err := decode("a", data, first, last)
		if err != nil {
			return
		}
		if uint64(len(evs)) != last-first+1 {
			t.Errorf("%d events from %d to %d", len(evs), first, last)
		}
		if _, _, err := encode(evs); err != nil {
			t.Errorf("cannot be encoded again: %v", err)
		}
	})
}
