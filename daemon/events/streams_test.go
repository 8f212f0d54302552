package events

import (
	"fmt"
	"testing"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/runtime/wire"
)

// TestR5_NamedStreamsHaveCursorsOfTheirOwn: the streams of a neighbour's runtime do not
// disturb each other, nor after a restart.
func TestR5_NamedStreamsHaveCursorsOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, Options{})
	batch := func(stream, sid string, seq uint64, texts ...string) {
		j.AppendBatch("a", wire.Batch{Stream: stream, Sid: sid, Seq: seq, Records: outputs(texts...)}, nil)
	}
	batch("", "s", 1, "own 1")
	batch("/log", "l", 1, "log 1", "log 2")
	batch("/trace", "t", 1, "trace 1")
	batch("/log", "l", 2, "again", "log 3") // the first of both is known
	batch("/trace", "t", 4, "trace 4")      // 2 and 3 are missing
	batch("/log", "", 0, "unnumbered")      // as it comes
	batch("/log", "new", 1, "new 1")        // a new sender counts anew
	batch("/log", "", 0, "unnumbered")      // and leaves the cursor alone
	batch("/log", "new", 1, "again", "new 2")
	flush(t, j, "a")
	want := []string{"own 1", "log 1", "log 2", "trace 1", "log 3", "gap 0-0 2 runtime", "trace 4", "unnumbered", "new 1", "unnumbered", "new 2"}
	if got := lines(readAll(t, j, Query{Sandbox: "a"})); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, Options{})
	for _, want := range []position{{"", "s", 1}, {"/log", "new", 2}, {"/trace", "t", 4}, {"/none", "", 0}} {
		if sid, seq, err := j.StreamCursor(t.Context(), "a", want.stream); sid != want.sid || seq != want.seq || err != nil {
			t.Errorf("cursor of %q: got %q %d %v, want %+v", want.stream, sid, seq, err, want)
		}
	}
	batch("/trace", "t", 4, "again", "trace 5")
	flush(t, j, "a")
	if got := lines(readAll(t, j, Query{Sandbox: "a", Tail: ptr(1)})); fmt.Sprint(got) != "[trace 5]" {
		t.Errorf("after a restart: got %q", got)
	}
}
