// Package stream holds the reliable streams of a runtime as plain data: the numbered
// buffer of records for our daemon, the sequencer of what one daemon session is sent, and
// the ring of events for a neighbour's host. Nothing here locks, blocks or does I/O.
package stream

import (
	"github.com/agentixd/agentixd/runtime/wire"
)

// recordOverhead is what a record costs in memory beside its bytes.
const recordOverhead = 160

// Size is what r counts for in buffers, windows and batches.
func Size(r *wire.Record) int {
	return recordOverhead + len(r.Bytes) + len(r.Data) + len(r.CallID) + len(r.Event) + len(r.Namespace)
}

// Buffer keeps the records of one stream that the daemon has not acked. Numbers are given
// from 1 without holes; what is dropped from the front is told to each reader as a gap.
type Buffer struct {
	sid     string
	first   uint64 // the number of records[0]
	records []wire.Record
	sizes   []int
	bytes   int
	sealed  uint64 // records up to this number were handed out and do not change any more
}

// NewBuffer returns an empty stream named sid.
func NewBuffer(sid string) *Buffer {
	return &Buffer{sid: sid, first: 1}
}

// Sid names the stream.
func (b *Buffer) Sid() string { return b.sid }

// Last is the number of the newest record, 0 when there was none yet.
func (b *Buffer) Last() uint64 { return b.first + uint64(len(b.records)) - 1 }

// Bytes is the size of all records kept.
func (b *Buffer) Bytes() int { return b.bytes }

// Len is the number of records kept.
func (b *Buffer) Len() int { return len(b.records) }

// Append adds r at the end. Output that continues the newest record, of the same stream and
// call, is joined to it as long as that was not handed out and stays within wire.MaxLineBytes.
func (b *Buffer) Append(r wire.Record) {
	if b.merge(&r) {
		return
	}
	n := Size(&r)
	b.records = append(b.records, r)
	b.sizes = append(b.sizes, n)
	b.bytes += n
}

func (b *Buffer) merge(r *wire.Record) bool {
	if r.Kind != wire.RecordOutput || len(b.records) == 0 || b.Last() <= b.sealed {
		return false
	}
	i := len(b.records) - 1
	last := &b.records[i]
	if last.Kind != wire.RecordOutput || last.Stream != r.Stream || last.CallID != r.CallID ||
		len(last.Bytes)+len(r.Bytes) > wire.MaxLineBytes {
		return false
	}
	last.Bytes = append(last.Bytes, r.Bytes...)
	b.sizes[i] += len(r.Bytes)
	b.bytes += len(r.Bytes)
	return true
}

// Ack forgets everything up to seq. A seq of the future is ignored.
func (b *Buffer) Ack(seq uint64) {
	if seq <= b.Last() {
		b.forget(seq)
	}
}

// Shrink forgets the oldest records until at most limit bytes are kept, and reports how many.
func (b *Buffer) Shrink(limit int) int {
	n, bytes := 0, b.bytes
	for n < len(b.records) && bytes > limit {
		bytes -= b.sizes[n]
		n++
	}
	if n > 0 {
		b.forget(b.first + uint64(n) - 1)
	}
	return n
}

// forget drops all records up to seq.
func (b *Buffer) forget(seq uint64) {
	if seq < b.first {
		return
	}
	n := int(seq - b.first + 1)
	for _, size := range b.sizes[:n] {
		b.bytes -= size
	}
	clear(b.records[:n])
	b.records, b.sizes = b.records[n:], b.sizes[n:]
	b.first = seq + 1
	if len(b.records) == 0 {
		b.records, b.sizes = nil, nil
	}
}

// Cursor is where a reader that last had seq of stream sid goes on: 0 for a foreign stream
// or a number of the future.
func (b *Buffer) Cursor(sid string, seq uint64) uint64 {
	if sid != b.sid || seq > b.Last() {
		return 0
	}
	return seq
}

// After returns the batch that follows cursor, up to and including record upTo, and its
// size. What was dropped meanwhile is one gap record with the number of the last one
// dropped. The batch is within the limits of wire, and empty if nothing follows. Its records
// are sealed.
func (b *Buffer) After(cursor, upTo uint64, now float64) (wire.Batch, int) {
	batch, size := wire.Batch{Sid: b.sid, Seq: cursor + 1}, 0
	upTo = min(upTo, b.Last())
	if cursor+1 < b.first {
		gap := wire.Record{Kind: wire.RecordGap, Time: now, Dropped: b.first - 1 - cursor}
		batch.Seq, batch.Records, size = b.first-1, append(batch.Records, gap), Size(&gap)
		cursor = b.first - 1
	}
	for cursor < upTo && len(batch.Records) < wire.MaxBatchRecords {
		i := int(cursor + 1 - b.first)
		if len(batch.Records) > 0 && size+b.sizes[i] > wire.MaxBatchBytes {
			break
		}
		batch.Records = append(batch.Records, b.records[i])
		size += b.sizes[i]
		cursor++
	}
	b.sealed = max(b.sealed, cursor)
	return batch, size
}
