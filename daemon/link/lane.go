package link

import (
	"math"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Bounds of what waits for the records before it.
const (
	maxHeldRecords = wire.MaxStreamRing
	maxHeldBytes   = 8388608 // 8 MiB
)

// lane hands over the records of one stream of a neighbour in the order of their numbers. A
// record that comes too early waits: those before it come with the replay. When they do not,
// the journal sees the hole in the numbers and tells it as a gap.
type lane struct {
	n         *neighbour
	s         *session
	namespace string
	sid       string // of the sender
	next      uint64 // the number that is due
	held      map[uint64]wire.Record
	bytes     int
	until     time.Time // when the hole is given up; zero = there is none
}

func newLane(n *neighbour, s *session, namespace string, at Position) *lane {
	if at.Sid != "" {
		s.out.setSender(namespace, at.Sid)
	}
	return &lane{n: n, s: s, namespace: namespace, sid: at.Sid, next: at.Seq + 1, held: map[uint64]wire.Record{}}
}

// neighbourLimit is how long an attachment on a namespace may be.
func neighbourLimit(namespace string) int {
	switch namespace {
	case wire.NamespaceRPC:
		return wire.MaxMessageBytes
	case wire.NamespaceLog, wire.NamespaceTrace:
		return wire.MaxEventBytes
	}
	return 0
}

// headBytes is what is kept of an attachment over its limit: it holds the names in it.
const headBytes = 4096

// take takes one event.
func (a *lane) take(i inbound) error {
	e, numbered := parseEnvelope(i)
	if !numbered {
		r, ok := a.record(i.event, e.Data, i.cut)
		if i.cut || !ok {
			return a.s.charge()
		}
		a.n.l.opts.Handler.Records(wire.Batch{Stream: a.namespace, Records: []wire.Record{r}})
		return nil
	}
	r, ok := a.record(i.event, e.Data, i.cut)
	if !ok {
		r = wire.Record{Kind: wire.RecordGap, Dropped: 1}
	}
	if e.Sid != a.sid {
		a.change(e)
	}
	_, again := a.held[e.Seq]
	switch {
	case e.Seq <= a.next: // due, or known and to be acked again
		a.hand(e.Seq, []wire.Record{r})
		a.next = max(a.next, e.Seq+1)
		a.drain()
	case again: // the replay has come as far as what overtook it: it is over
		a.release()
	default:
		a.hold(e.Seq, r, len(i.data))
	}
	return nil
}

// change begins with a new sender: the worker was replaced. Its first records may have been
// sent while nobody was there.
func (a *lane) change(e wire.Envelope) {
	a.release()
	a.sid, a.next = e.Sid, 1
	a.s.out.setSender(a.namespace, e.Sid)
	if e.Seq > 1 {
		a.n.askAll(a.s, a.namespace)
	}
}

func (a *lane) hold(seq uint64, r wire.Record, size int) {
	if len(a.held) == 0 {
		a.until = a.n.wake(a.s, a.s.timing.hold)
	}
	a.held[seq] = r
	a.bytes += size
	if len(a.held) >= maxHeldRecords || a.bytes > maxHeldBytes {
		a.release()
	}
}

// drain hands over what is due now.
func (a *lane) drain() {
	if len(a.held) == 0 {
		return
	}
	var run []wire.Record
	first := a.next
	for {
		r, ok := a.held[a.next]
		if !ok {
			break
		}
		delete(a.held, a.next)
		run = append(run, r)
		a.next++
	}
	if len(run) > 0 {
		a.hand(first, run)
	}
	if len(a.held) == 0 {
		a.bytes, a.until = 0, time.Time{}
	}
}

// release hands over all that waits, over the holes.
func (a *lane) release() {
	for len(a.held) > 0 {
		least := uint64(math.MaxUint64)
		for seq := range a.held {
			least = min(least, seq)
		}
		a.next = least
		a.drain()
	}
}

// expire gives up a hole whose time is over.
func (a *lane) expire(now time.Time) {
	if !a.until.IsZero() && !now.Before(a.until) {
		a.release()
	}
}

func (a *lane) hand(first uint64, records []wire.Record) {
	for len(records) > 0 {
		n := min(len(records), wire.MaxBatchRecords)
		a.n.l.opts.Handler.Records(wire.Batch{Stream: a.namespace, Sid: a.sid, Seq: first, Records: records[:n:n]})
		records, first = records[n:], first+uint64(n)
	}
}

// parseEnvelope reads the envelope of an event; of one that is cut only the names in it.
// What is no envelope is the data itself.
func parseEnvelope(i inbound) (e wire.Envelope, numbered bool) {
	var seq int64
	envelope := false
	wire.Peek(i.data, func(key string, raw []byte) {
		envelope = envelope || key == "_sid" || key == "_seq"
		switch key {
		case "_sid":
			e.Sid, _ = wire.Text(raw)
		case "_seq":
			seq, _ = wire.Int(raw)
		case "data":
			e.Data = raw
		}
	})
	if seq < 1 || seq > math.MaxInt64-maxHeldRecords {
		if !envelope {
			e.Data = i.data
		}
		return wire.Envelope{Data: e.Data}, false
	}
	e.Seq = uint64(seq)
	if e.Sid = cut(e.Sid, maxSidBytes); e.Sid == "" {
		e.Sid = "?"
	}
	return e, true
}

// record makes a record of one event; false if it makes no sense.
func (a *lane) record(event string, data []byte, isCut bool) (wire.Record, bool) {
	var r wire.Record
	switch {
	case isCut || wire.Check(data, wire.MaxDepth) != nil:
		return r, false
	case a.namespace == wire.NamespaceLog && event == wire.EventRecord:
		r = logRecord(data)
	case a.namespace == wire.NamespaceTrace:
		r = wire.Record{Kind: wire.RecordSpan, Event: event, Data: data}
		if id, ok := peekText(data, "call_id"); ok {
			if own, mine := a.s.inID(id); mine {
				r.CallID = own
			}
		}
	default: // not in the protocol; hosts ignore it, the journal need not
		r = wire.Record{Kind: wire.RecordPlugin, Namespace: a.namespace, Event: event, Data: data}
	}
	return r, validRecord(r)
}

// logRecord makes a record of a /log event; a captured line of output is output, as it is
// from our own runtimes, with the end of line that it had.
func logRecord(data []byte) wire.Record {
	r := wire.Record{Kind: wire.RecordLog, Data: data}
	var name, message, stream string
	wire.Peek(data, func(key string, raw []byte) {
		switch key {
		case "name":
			name, _ = wire.Text(raw)
		case "message":
			message, _ = wire.Text(raw)
		case "created":
			r.Time, _ = wire.Float(raw)
		case "extras":
			stream, _ = peekText(raw, "agentix_stream")
		}
	})
	r.Time = finite(r.Time)
	if (stream == "stdout" || stream == "stderr") && name == "agentix.sandbox."+stream {
		return wire.Record{Kind: wire.RecordOutput, Time: r.Time, Stream: stream, Bytes: []byte(message + "\n")}
	}
	return r
}

// peekText is the text under key in a map, which may be cut.
func peekText(data []byte, key string) (text string, ok bool) {
	wire.Peek(data, func(k string, raw []byte) {
		if k == key {
			text, ok = wire.Text(raw)
		}
	})
	return text, ok
}
