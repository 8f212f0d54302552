package events

import (
	"math"

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
	sid := text(b.Sid, wire.MaxStreamIDBytes)
	if sid != s.sid {
		s.sid, s.seq = sid, 0
	}
	if n := len(b.Records); n > 0 && (b.Seq == 0 || b.Seq > math.MaxInt64-uint64(n)) {
		b.Seq, b.Records = s.seq+1, []wire.Record{{Kind: wire.RecordGap, Dropped: uint64(n)}}
	}
	for {
		piece := b.Records[:min(len(b.Records), wire.MaxBatchRecords)]
		last := len(piece) == len(b.Records)
		if !j.waitForRoom(s) {
			return
		}
		it, err := newItem(j.fresh(s, b.Seq, piece))
		if err != nil {
			j.opts.Logger.Error("records could not be encoded", "sandbox", sandbox, "err", err)
			it = &item{}
		}
		it.sid, it.seq, it.moved = s.sid, s.seq, true
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

// fresh converts the records that are new, of which the first has number first, and moves
// the cursor of s. The caller holds s.taking.
func (j *Journal) fresh(s *stream, first uint64, records []wire.Record) []Event {
	if known := s.seq + 1; first < known {
		skip := min(known-first, uint64(len(records)))
		records, first = records[skip:], first+skip
	}
	if len(records) == 0 {
		return nil
	}
	now := clampTime(j.opts.Clock.Now().UTC().Round(0))
	evs := make([]Event, 0, len(records)+1)
	if missing := first - s.seq - 1; missing > 0 {
		evs = appendLost(evs, Event{Time: now, Sandbox: s.sandbox}, missing)
	}
	for i := range records {
		evs = convert(evs, s.sandbox, &records[i], now)
	}
	s.seq = first + uint64(len(records)) - 1
	return evs
}

// waitForRoom returns false once the journal is closed.
func (j *Journal) waitForRoom(s *stream) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for !j.closed && (j.bytes > wire.MaxJournalQueue || s.queueBytes.Load() > wire.MaxSandboxQueue) {
		j.room.Wait()
	}
	return !j.closed
}
