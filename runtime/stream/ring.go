package stream

import "github.com/agentixd/agentixd/runtime/wire"

// Event is one numbered event of a neighbour's stream; Data is msgpack. One with Dropped is a
// gap: that many events up to its number were lost.
type Event struct {
	Seq     uint64
	Name    string
	Data    []byte
	Dropped uint64
}

// span is a run of numbers, both ends included.
type span struct{ from, to uint64 }

// maxLost bounds the separate runs of lost events that are remembered.
const maxLost = 64

// Ring keeps the newest unacked events for a neighbour's hosts, bounded in number and bytes.
type Ring struct {
	sid     string
	max     int
	first   uint64
	events  []Event
	bytes   int
	dropped uint64
	lost    []span // what was pushed out and not told to everyone yet
}

// NewRing returns an empty stream named sid that keeps at most limit events.
func NewRing(sid string, limit int) *Ring {
	return &Ring{sid: sid, max: limit, first: 1}
}

// Sid names the stream.
func (r *Ring) Sid() string { return r.sid }

// First is the number of the oldest event kept.
func (r *Ring) First() uint64 { return r.first }

// Last is the number of the newest event, 0 when there was none yet.
func (r *Ring) Last() uint64 { return r.first + uint64(len(r.events)) - 1 }

// Dropped counts the events that were pushed out before all hosts acked them.
func (r *Ring) Dropped() uint64 { return r.dropped }

// Full reports whether an event with this data pushes out the oldest.
func (r *Ring) Full(data []byte) bool {
	return len(r.events) >= r.max || len(r.events) > 0 && r.bytes+eventSize(data) > wire.MaxStreamBytes
}

// Append numbers and keeps one event, and pushes out the oldest when full.
func (r *Ring) Append(name string, data []byte) {
	r.events = append(r.events, Event{Seq: r.Last() + 1, Name: name, Data: data})
	r.bytes += eventSize(data)
	for len(r.events) > r.max || r.bytes > wire.MaxStreamBytes && len(r.events) > 1 {
		r.dropped++
		r.lose(r.first)
		r.shift()
	}
}

// lose notes that the event with this number, the highest lost so far, is pushed out.
func (r *Ring) lose(seq uint64) {
	if n := len(r.lost); n > 0 && (r.lost[n-1].to == seq-1 || n == maxLost) {
		r.lost[n-1].to = seq
		return
	}
	r.lost = append(r.lost, span{seq, seq})
}

// lostAfter counts what was lost after cursor.
func (r *Ring) lostAfter(cursor uint64) uint64 {
	n := uint64(0)
	for _, s := range r.lost {
		if from := max(s.from, cursor+1); from <= s.to {
			n += s.to - from + 1
		}
	}
	return n
}

func (r *Ring) shift() {
	r.bytes -= eventSize(r.events[0].Data)
	r.events[0] = Event{}
	r.events = r.events[1:]
	r.first++
}

func eventSize(data []byte) int { return recordOverhead + len(data) }

// Free forgets everything up to seq; a seq of the future is ignored.
func (r *Ring) Free(seq uint64) {
	if seq > r.Last() {
		return
	}
	for len(r.events) > 0 && r.first <= seq {
		r.shift()
	}
	for len(r.lost) > 0 && r.lost[0].to <= seq {
		r.lost = r.lost[1:]
	}
}

// After returns the event that follows cursor: a gap, if some that followed it were lost.
func (r *Ring) After(cursor uint64) (Event, bool) {
	if n := r.lostAfter(cursor); n > 0 {
		return Event{Seq: r.lost[len(r.lost)-1].to, Dropped: n}, true
	}
	next := max(cursor+1, r.first)
	if next > r.Last() {
		return Event{}, false
	}
	return r.events[next-r.first], true
}

// Reader is one neighbour's session on a ring. Live events are held until its _resume is
// served, so that its cursor never passes what it has not seen.
type Reader struct {
	resumed bool
	acks    bool   // it is a host that acks, as far as can be told
	start   uint64 // where it goes on if no _resume comes
	cursor  uint64
	acked   uint64
	sent    []sentBatch // unacked
	bytes   int         // of sent
}

// NewReader returns a session that joins r now.
func NewReader(r *Ring) *Reader { return &Reader{start: r.Last(), cursor: r.Last()} }

// Resume starts after since; a number of the future is of an older stream and counts as 0.
func (d *Reader) Resume(r *Ring, since uint64) {
	if since > r.Last() {
		since = 0
	}
	d.resumed, d.acks, d.cursor = true, true, since
	d.sent, d.bytes = nil, 0
	d.acked = max(d.acked, since)
}

// Live starts without a _resume, with what came since the session joined.
func (d *Reader) Live() {
	if !d.resumed {
		d.resumed, d.cursor = true, d.start
	}
}

// Ack notes that the host has everything up to seq; a number of the future is ignored.
func (d *Reader) Ack(r *Ring, seq uint64) {
	if seq > r.Last() {
		return
	}
	d.acks, d.acked = true, max(d.acked, seq)
	n := 0
	for n < len(d.sent) && d.sent[n].last <= seq {
		d.bytes -= d.sent[n].size
		n++
	}
	d.sent = d.sent[n:]
}

// Acked is the highest number the host confirmed.
func (d *Reader) Acked() uint64 { return d.acked }

// Resumed reports whether the host asked for the stream from a number on, or acked it.
func (d *Reader) Resumed() bool { return d.acks || d.acked > 0 }

// Needs reports whether an event with this data would push out one that a host, which acks
// what it gets, has not acked.
func (d *Reader) Needs(r *Ring, data []byte) bool {
	return d.acks && d.acked < r.First() && r.Full(data)
}

// GiveUp takes it that the host acks nothing, until it does.
func (d *Reader) GiveUp() { d.acks, d.sent, d.bytes = false, nil, 0 }

// Blocked reports whether there is something to send and the host must first ack what it has:
// a host that reads without end would ack too late.
func (d *Reader) Blocked(r *Ring) bool {
	return d.resumed && d.acks && d.bytes >= wire.StreamWindowBytes && d.cursor < r.Last()
}

// Next returns the event to send now, if there is one and the window is open.
func (d *Reader) Next(r *Ring) (Event, bool) {
	if !d.resumed || d.Blocked(r) {
		return Event{}, false
	}
	e, ok := r.After(d.cursor)
	if ok {
		d.cursor = e.Seq
	}
	if ok && d.acks {
		size := eventSize(e.Data)
		d.sent, d.bytes = append(d.sent, sentBatch{last: e.Seq, size: size}), d.bytes+size
	}
	return e, ok
}

// Cursor is the number of the last event sent.
func (d *Reader) Cursor() uint64 { return d.cursor }
