package stream

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentixd/agentixd/runtime/wire"
)

func logRecord(id, size int) wire.Record {
	return wire.Record{Kind: wire.RecordLog, Data: []byte(strconv.Itoa(id) + strings.Repeat("\n", size))}
}

func output(call, text string) wire.Record {
	return wire.Record{Kind: wire.RecordOutput, Stream: "stdout", CallID: call, Bytes: []byte(text)}
}

func TestOutputIsJoinedWhileQueued(t *testing.T) {
	b := NewBuffer("s")
	b.Append(output("c", "one\n"))
	b.Append(output("c", "two\n"))
	b.Append(output("", "child\n"))
	b.Append(wire.Record{Kind: wire.RecordOutput, Stream: "stderr", Bytes: []byte("e")})
	b.Append(output("c", strings.Repeat("x", wire.MaxLineBytes)))
	b.Append(output("c", "y"))
	if b.Last() != 5 {
		t.Fatalf("got %d records, want 5", b.Last())
	}
	batch, _ := b.After(0, b.Last(), 0)
	if got := string(batch.Records[0].Bytes); got != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	b.Append(output("c", "later"))
	if b.Last() != 6 {
		t.Error("output was joined to a record that had been handed out")
	}
	if got := string(batch.Records[4].Bytes); got != "y" {
		t.Errorf("a record that was handed out changed to %q", got)
	}
}

func TestDroppedRecordsAreOneGap(t *testing.T) {
	b := NewBuffer("s")
	for i := range 10 {
		b.Append(logRecord(i, 0))
	}
	b.Ack(2)
	one := recordOverhead + 1
	if n := b.Shrink(3 * one); n != 5 {
		t.Fatalf("dropped %d, want 5", n)
	}
	batch, _ := b.After(2, b.Last(), 7)
	want := []wire.Record{{Kind: wire.RecordGap, Time: 7, Dropped: 5}, logRecord(7, 0), logRecord(8, 0), logRecord(9, 0)}
	if diff := cmp.Diff(want, batch.Records); diff != "" || batch.Seq != 7 {
		t.Errorf("seq %d, want 7 (-want +got):\n%s", batch.Seq, diff)
	}
	if batch, _ := b.After(7, b.Last(), 0); batch.Seq != 8 || len(batch.Records) != 3 {
		t.Errorf("a reader that knew of the gap got %d records from %d", len(batch.Records), batch.Seq)
	}
}

func TestBatchLimits(t *testing.T) {
	b := NewBuffer("s")
	for i := range 2000 {
		b.Append(logRecord(i, 0))
	}
	if batch, _ := b.After(0, b.Last(), 0); len(batch.Records) != 1024 {
		t.Errorf("got %d records, want 1024", len(batch.Records))
	}
	b = NewBuffer("s")
	for i := range 4 {
		b.Append(logRecord(i, 1<<20))
	}
	if batch, _ := b.After(0, b.Last(), 0); len(batch.Records) != 1 {
		t.Errorf("got %d records of 1 MiB, want 1", len(batch.Records))
	}
}

func TestCursorOfAnotherStreamOrTheFutureIsZero(t *testing.T) {
	b := NewBuffer("s")
	b.Append(logRecord(0, 0))
	for _, c := range []struct {
		sid  string
		seq  uint64
		want uint64
	}{{"s", 1, 1}, {"s", 2, 0}, {"other", 1, 0}, {"", 0, 0}} {
		if got := b.Cursor(c.sid, c.seq); got != c.want {
			t.Errorf("Cursor(%q, %d) = %d, want %d", c.sid, c.seq, got, c.want)
		}
	}
	b.Ack(5)
	if b.Len() != 1 {
		t.Error("an ack of the future freed a record")
	}
}

func TestNothingIsSentBeforeResume(t *testing.T) {
	var s Sequencer
	b := NewBuffer("s")
	s.Join()
	b.Append(logRecord(1, 0))
	s.Queue(b, "call:result", []byte("r"))
	if _, _, ok := s.Next(b, 0); ok {
		t.Fatal("something was sent before _resume")
	}
	s.Resume(0)
	if batch, _, _ := s.Next(b, 0); len(batch.Records) != 1 {
		t.Fatal("the record did not come first")
	}
	if _, o, _ := s.Next(b, 0); o == nil || string(o.Payload) != "r" {
		t.Fatal("the outcome did not follow")
	}
}

// TestR6_SequencerModel plays a sandbox that writes, a daemon that may lose its connection
// at any moment, acks late, and a buffer that overflows while it is away.
func TestR6_SequencerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newModel().run(t) })
}

type model struct {
	b        *Buffer
	s        *Sequencer
	written  int
	outcomes int
	marks    map[int]uint64 // the newest record when an outcome was queued
	cursor   uint64         // the daemon's
	seen     int            // the highest id it got
	lost     bool           // a gap came since
	acked    uint64
}

func newModel() *model {
	m := &model{b: NewBuffer("s"), marks: map[int]uint64{}, seen: -1}
	m.connect()
	return m
}

func (m *model) connect() {
	m.s = &Sequencer{}
	m.s.Join()
	m.s.Resume(m.b.Cursor("s", m.cursor))
	m.b.Ack(m.cursor)
}

func (m *model) run(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"log": func(t *rapid.T) {
			m.b.Append(logRecord(m.written, rapid.SampledFrom([]int{0, 100, 400_000}).Draw(t, "size")))
			m.written++
		},
		"print": func(t *rapid.T) {
			call := rapid.SampledFrom([]string{"", "a"}).Draw(t, "call")
			m.b.Append(output(call, fmt.Sprintf("%d\n", m.written)))
			m.written++
		},
		"finish": func(*rapid.T) {
			m.marks[m.outcomes] = m.b.Last()
			m.s.Queue(m.b, "call:result", []byte(strconv.Itoa(m.outcomes)))
			m.outcomes++
		},
		"send":      func(t *rapid.T) { m.send(t) },
		"ack":       func(*rapid.T) { m.acked = m.cursor; m.s.Ack(m.cursor); m.b.Ack(m.cursor) },
		"reconnect": func(*rapid.T) { m.connect() },
		"overflow":  func(*rapid.T) { m.b.Shrink(500_000); m.connect() },
		"":          m.check,
	})
	for m.send(t) { // all is delivered once nothing stands in the way
		m.s.Ack(m.cursor)
		m.b.Ack(m.cursor)
	}
	if m.cursor != m.b.Last() || !m.lost && m.seen != m.written-1 {
		t.Fatalf("the daemon is at %d of %d and saw %d of %d", m.cursor, m.b.Last(), m.seen, m.written-1)
	}
}

func (m *model) send(t *rapid.T) bool {
	batch, outcome, ok := m.s.Next(m.b, 0)
	if outcome != nil {
		id, err := strconv.Atoi(string(outcome.Payload))
		if err != nil || m.marks[id] > m.cursor {
			t.Fatalf("outcome %d came at record %d, before record %d", id, m.cursor, m.marks[id])
		}
		return true
	}
	for i, r := range batch.Records {
		seq := batch.Seq + uint64(i)
		if r.Kind == wire.RecordGap {
			if m.cursor+r.Dropped != seq || i != 0 {
				t.Fatalf("a gap of %d after %d has number %d", r.Dropped, m.cursor, seq)
			}
			m.cursor, m.lost = seq, true
			continue
		}
		if seq != m.cursor+1 {
			t.Fatalf("record %d came after %d", seq, m.cursor)
		}
		m.cursor = seq
		m.read(t, &r)
	}
	return ok
}

// read checks that the ids in a record go on where the last ones ended.
func (m *model) read(t *rapid.T, r *wire.Record) {
	for _, field := range bytes.Fields(append(bytes.Clone(r.Bytes), r.Data...)) {
		id, err := strconv.Atoi(string(field))
		if err != nil || id <= m.seen || id != m.seen+1 && !m.lost {
			t.Fatalf("%d came after %d", id, m.seen)
		}
		m.seen = id
	}
}

func (m *model) check(t *rapid.T) {
	sum := 0
	for i := range m.b.records {
		size := Size(&m.b.records[i])
		if size != m.b.sizes[i] {
			t.Fatalf("record %d counts %d, is %d", i, m.b.sizes[i], size)
		}
		sum += size
	}
	if sum != m.b.Bytes() {
		t.Fatalf("the buffer counts %d, holds %d", m.b.Bytes(), sum)
	}
	if m.s.inFlight > wire.StreamWindowBytes+wire.MaxBatchBytes {
		t.Fatalf("%d bytes are in flight", m.s.inFlight)
	}
}
