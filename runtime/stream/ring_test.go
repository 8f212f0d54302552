package stream

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func drain(r *Ring, d *Reader) []uint64 {
	var seqs []uint64
	for e, ok := d.Next(r); ok; e, ok = d.Next(r) {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

func TestLiveEventsWaitForResume(t *testing.T) {
	r := NewRing("s", 10)
	r.Append("record", []byte("1"))
	d := NewReader(r)
	r.Append("record", []byte("2"))
	if got := drain(r, d); got != nil {
		t.Fatalf("sent %v before _resume", got)
	}
	d.Resume(r, 0)
	if diff := cmp.Diff([]uint64{1, 2}, drain(r, d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Append("record", []byte("3"))
	if diff := cmp.Diff([]uint64{3}, drain(r, d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWithoutResumeItGoesOnWhereItJoined(t *testing.T) {
	r := NewRing("s", 10)
	r.Append("record", nil)
	d := NewReader(r)
	r.Append("record", nil)
	d.Live()
	if diff := cmp.Diff([]uint64{2}, drain(r, d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCursorsOfAnOlderStreamAreIgnored(t *testing.T) {
	r := NewRing("s", 10)
	r.Append("record", nil)
	d := NewReader(r)
	d.Resume(r, 99)
	if diff := cmp.Diff([]uint64{1}, drain(r, d)); diff != "" {
		t.Errorf("since_seq 99 (-want +got):\n%s", diff)
	}
	d.Ack(r, 99)
	if d.Acked() != 0 {
		t.Error("an ack of 99 counted")
	}
	r.Free(99)
	if r.Last() != 1 || len(r.events) != 1 {
		t.Error("an ack of 99 freed an event")
	}
}

func TestRingDropsTheOldest(t *testing.T) {
	r := NewRing("s", 3)
	d := NewReader(r)
	for range 5 {
		r.Append("record", nil)
	}
	d.Resume(r, 0)
	if diff := cmp.Diff([]uint64{3, 4, 5}, drain(r, d)); diff != "" || r.Dropped() != 2 {
		t.Errorf("dropped %d (-want +got):\n%s", r.Dropped(), diff)
	}
}

func TestEmptyRingAfterFree(t *testing.T) {
	r := NewRing("s", 3)
	r.Append("record", nil)
	r.Free(1)
	d := NewReader(r)
	d.Resume(r, 0)
	if got := drain(r, d); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestWindowOfANeighbour(t *testing.T) {
	r := NewRing("s", 1000)
	d := NewReader(r)
	d.Resume(r, 0)
	for range 20 {
		r.Append("record", make([]byte, 1<<20))
		drain(r, d)
	}
	if d.cursor != 4 {
		t.Fatalf("%d MiB were sent unacked, want 4", d.cursor)
	}
	d.Ack(r, 4)
	drain(r, d)
	if d.cursor != 8 {
		t.Errorf("%d MiB were sent after an ack of 4, want 8", d.cursor)
	}
}

func TestRingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRing("s", 5)
		d := NewReader(r)
		d.Resume(r, 0)
		got := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(*rapid.T) { r.Append("e", nil) },
			"send": func(t *rapid.T) {
				e, ok := d.Next(r)
				if ok && e.Seq <= got {
					t.Fatalf("%d came after %d", e.Seq, got)
				}
				if ok && e.Seq != got+1 && r.Dropped() == 0 {
					t.Fatalf("%d came after %d and nothing was dropped", e.Seq, got)
				}
				if ok {
					got = e.Seq
				}
			},
			"ack":    func(*rapid.T) { d.Ack(r, got); r.Free(d.Acked()) },
			"resume": func(*rapid.T) { d.Resume(r, got) },
		})
	})
}

func TestLines(t *testing.T) {
	cases := []struct {
		in   []string
		want []string
	}{
		{[]string{"a\nb\n"}, []string{"a", "b"}},
		{[]string{"a", "b", "\n"}, []string{"ab"}},
		{[]string{"a\r\n\n"}, []string{"a", ""}},
		{[]string{"caf\xc3", "\xa9\n"}, []string{"café"}},
		{[]string{"\xff\xfe\n"}, []string{"\uFFFD"}},
		{[]string{"no end"}, nil},
		{[]string{strings.Repeat("x", 65536) + "y\n"}, []string{strings.Repeat("x", 65536), "y"}},
	}
	for _, c := range cases {
		var l Lines
		var got []string
		for _, b := range c.in {
			l.Add([]byte(b), func(line string) { got = append(got, line) })
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", c.in, diff)
		}
	}
}
