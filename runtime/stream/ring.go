package stream

import "github.com/agentixd/agentixd/runtime/wire"

// Event is one numbered event of a neighbour's stream; Data is msgpack.
type Event struct {
	Seq  uint64
	Name string
	Data []byte
}

// Ring keeps the newest unacked events for a neighbour's hosts, bounded in number and bytes.
type Ring struct {
	sid     string
	max     int
	first   uint64
	events  []Event
	bytes   int
	dropped uint64
}

// NewRing returns an empty stream named sid that keeps at most limit events.
func NewRing(sid string, limit int) *Ring {
	return &Ring{sid: sid, max: limit, first: 1}
}

// Sid names the stream.
func (r *Ring) Sid() string { return r.sid }

// Last is the number of the newest event, 0 when there was none yet.
func (r *Ring) Last() uint64 { return r.first + uint64(len(r.events)) - 1 }

// Dropped counts the events that were pushed out before any host acked them.
func (r *Ring) Dropped() uint64 { return r.dropped }

// Append numbers and keeps one event, and pushes out the oldest when full.
func (r *Ring) Append(name string, data []byte) {
	r.events = append(r.events, Event{Seq: r.Last() + 1, Name: name, Data: data})
	r.bytes += eventSize(data)
	for len(r.events) > r.max || r.bytes > wire.MaxStreamBytes && len(r.events) > 1 {
		r.dropped++
		r.shift()
	}
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
	for seq <= r.Last() && len(r.events) > 0 && r.first <= seq {
		r.shift()
	}
}

// After returns the event that follows cursor, or the oldest kept one after it.
func (r *Ring) After(cursor uint64) (Event, bool) {
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
	start   uint64 // where it goes on if no _resume comes
	cursor  uint64
	acked   uint64
	sent    []sentBatch
	bytes   int
}

// NewReader returns a session that joins r now.
func NewReader(r *Ring) *Reader { return &Reader{start: r.Last(), cursor: r.Last()} }

// Resume starts after since; a number of the future is of an older stream and counts as 0.
func (d *Reader) Resume(r *Ring, since uint64) {
	if since > r.Last() {
		since = 0
	}
	d.resumed, d.cursor, d.sent, d.bytes = true, since, nil, 0
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
	d.acked = max(d.acked, seq)
	n := 0
	for n < len(d.sent) && d.sent[n].last <= seq {
		d.bytes -= d.sent[n].size
		n++
	}
	d.sent = d.sent[n:]
}

// Acked is the highest number the host confirmed.
func (d *Reader) Acked() uint64 { return d.acked }

// Next returns the event to send now, if there is one and the window is open.
func (d *Reader) Next(r *Ring) (Event, bool) {
	if !d.resumed || d.bytes >= wire.StreamWindowBytes || len(d.sent) >= wire.MaxStreamRing {
		return Event{}, false
	}
	e, ok := r.After(d.cursor)
	if ok {
		d.cursor = e.Seq
		size := eventSize(e.Data)
		d.sent, d.bytes = append(d.sent, sentBatch{last: e.Seq, size: size}), d.bytes+size
	}
	return e, ok
}

// Cursor is the number of the last event sent.
func (d *Reader) Cursor() uint64 { return d.cursor }
