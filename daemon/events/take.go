package events

import (
	"math"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// AppendBatch adds the records of a runtime, in the order of their numbers. Records that
// were taken before are skipped; numbers that are missing become a gap. done (which may be
// nil, and must not block) is called once they are committed, in the order of the calls.
// AppendBatch waits while too much is waiting to be committed. b belongs to the journal from
// then on.
func (j *Journal) AppendBatch(sandbox string, b wire.Batch, done func()) {
	if j.loaded != nil {
		return
	}
	s := j.streamFor(sandbox, nil)
	s.taking.Lock()
	defer s.taking.Unlock()
	at := s.taken[b.Stream]
	if sid := text(b.Sid, wire.MaxStreamIDBytes); sid != at.sid && !unnumbered(&b) {
		at = position{stream: b.Stream, sid: sid}
	}
	if n := len(b.Records); n > 0 && (b.Seq == 0 || b.Seq > math.MaxInt64-uint64(n)) && !unnumbered(&b) {
		b.Seq, b.Records = at.seq+1, []wire.Record{{Kind: wire.RecordGap, Dropped: uint64(n)}}
	}
	for {
		piece := b.Records[:min(len(b.Records), wire.MaxBatchRecords)]
		last := len(piece) == len(b.Records)
		if !j.waitForRoom(s) {
			return
		}
		var evs []Event
		if unnumbered(&b) {
			evs = j.converted(s, nil, piece)
		} else {
			evs = j.fresh(s, &at, b.Seq, piece)
		}
		it, err := newItem(evs)
		if err != nil {
			j.opts.Logger.Error("records could not be encoded", "sandbox", sandbox, "err", err)
			it = &item{}
		}
		if !unnumbered(&b) {
			s.taken[b.Stream] = at
			it.moved = &position{stream: b.Stream, sid: at.sid, seq: at.seq}
		}
		if last {
			it.done = done
		}
		s.mu.Lock()
		j.enqueue(s, it)
		s.mu.Unlock()
		if last {
			return
		}
		b.Seq, b.Records = b.Seq+uint64(len(piece)), b.Records[len(piece):]
	}
}

// unnumbered batches of a neighbour's stream are taken as they come.
func unnumbered(b *wire.Batch) bool { return b.Stream != "" && b.Sid == "" }

// fresh converts the records that are new, of which the first has number first, and moves
// at. The caller holds s.taking.
func (j *Journal) fresh(s *stream, at *position, first uint64, records []wire.Record) []Event {
	if known := at.seq + 1; first < known {
		skip := min(known-first, uint64(len(records)))
		records, first = records[skip:], first+skip
	}
	if len(records) == 0 {
		return nil
	}
	evs := make([]Event, 0, len(records)+1)
	if missing := first - at.seq - 1; missing > 0 {
		evs = appendLost(evs, Event{Time: j.now(), Sandbox: s.sandbox}, missing)
	}
	at.seq = first + uint64(len(records)) - 1
	return j.converted(s, evs, records)
}

// converted appends the events of records to evs.
func (j *Journal) converted(s *stream, evs []Event, records []wire.Record) []Event {
	now := j.now()
	for i := range records {
		evs = convert(evs, s.sandbox, &records[i], now)
	}
	return evs
}

// now is the time as it will be read back.
func (j *Journal) now() time.Time { return clampTime(j.opts.Clock.Now().UTC().Round(0)) }

// waitForRoom returns false once the journal is closed.
func (j *Journal) waitForRoom(s *stream) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for !j.closed && (j.bytes > wire.MaxJournalQueue || s.queueBytes.Load() > wire.MaxSandboxQueue) {
		j.room.Wait()
	}
	return !j.closed
}
