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
	if diff := cmp.Diff([]uint64{2, 3, 4, 5}, drain(r, d)); diff != "" || r.Dropped() != 2 {
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

func TestAFullRingWaitsForAHostThatAcks(t *testing.T) {
	r := NewRing("s", 3)
	d, silent := NewReader(r), NewReader(r)
	silent.Live()
	d.Resume(r, 0)
	for range 3 {
		if d.Needs(r, nil) {
			t.Fatal("it waits and is not full")
		}
		r.Append("record", nil)
	}
	if !d.Needs(r, nil) || silent.Needs(r, nil) {
		t.Fatalf("the host that acks: %v, the other: %v", d.Needs(r, nil), silent.Needs(r, nil))
	}
	d.Ack(r, 1)
	if d.Needs(r, nil) { // what goes next is acked, though others keep it
		t.Error("it waits for what is acked")
	}
	r.Append("record", nil)
	if !d.Needs(r, nil) {
		t.Error("it does not wait any more")
	}
	d.GiveUp()
	if d.Needs(r, nil) {
		t.Error("it waits for a host that was given up")
	}
	d.Ack(r, 2)
	r.Append("record", nil)
	if !d.Needs(r, nil) {
		t.Error("a host that acks again is not waited for")
	}
}

func TestNothingIsLostToAHostThatIsWaitedFor(t *testing.T) {
	for _, size := range []int{1, 333, 70_001} { // the limit of bytes is no multiple of an event's
		r := NewRing("s", 100_000)
		d := NewReader(r)
		d.Resume(r, 0)
		for i := range 250_000 {
			data := make([]byte, size)
			if i*size > 3*32<<20 {
				break
			}
			if d.Needs(r, data) {
				drain(r, d)
				d.Ack(r, d.Cursor())
				r.Free(d.Acked())
			}
			if r.Append("record", data); r.Dropped() > 0 {
				t.Fatalf("event %d of %d bytes took another's place", i, size)
			}
		}
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
	if d.cursor != 4 || !d.Blocked(r) {
		t.Fatalf("%d MiB were sent unacked, want 4; blocked: %v", d.cursor, d.Blocked(r))
	}
	d.Ack(r, 4)
	drain(r, d)
	if d.cursor != 8 {
		t.Errorf("%d MiB were sent after an ack of 4, want 8", d.cursor)
	}
	d.GiveUp()
	drain(r, d)
	if d.cursor != 20 || d.Blocked(r) {
		t.Errorf("%d MiB were sent to a host that was given up, want 20", d.cursor)
	}
}

func TestGapsAreToldOnceAndExactly(t *testing.T) {
	r := NewRing("s", 3)
	for range 10 {
		r.Append("record", nil)
	}
	d := NewReader(r)
	d.Resume(r, 2)
	e, _ := d.Next(r)
	if e.Dropped != 5 || e.Seq != 7 { // 3 to 7; 1 and 2 the host has
		t.Fatalf("gap %+v", e)
	}
	if diff := cmp.Diff([]uint64{8, 9, 10}, drain(r, d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.Resume(r, 2)
	if e, _ := d.Next(r); e.Dropped != 5 {
		t.Errorf("the gap was not acked, and comes not again: %+v", e)
	}
	d.Ack(r, 8)
	r.Free(d.Acked())
	if n := r.lostAfter(0); n != 0 {
		t.Errorf("the gap was acked, and %d are still told", n)
	}
	for range 4 { // acked events that go are no loss
		r.Append("record", nil)
		d.Ack(r, r.Last())
		r.Free(d.Acked())
	}
	other := NewReader(r)
	other.Resume(r, 0)
	if got := drain(r, other); got != nil {
		t.Errorf("a new host gets %v", got)
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
				if ok && e.Dropped == 0 && e.Seq != got+1 || ok && e.Dropped != 0 && e.Seq != got+e.Dropped {
					t.Fatalf("%+v came after %d", e, got)
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
