package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// JournalRow describes the journal of one sandbox. A sandbox made anew under an old id has
// a new journal; the old one stays until it is dropped.
type JournalRow struct {
	Num     int64
	Sandbox string
	ID      []byte // random: cursors name it

	Sid    string // stream of the runtime that was read last, and the last number taken from it
	Cursor uint64

	TrimmedSeq   uint64    // retention removed everything up to this event
	TrimmedBatch uint64    // and up to this batch
	Deleted      time.Time // when its sandbox was deleted; zero = it was not
	Dropped      time.Time // when its events were removed, all of them

	// Of its newest batch.
	LastSeq, LastBatch uint64
	LastCreated        time.Time
}

// BatchRow is a run of events of one journal, encoded by package events.
type BatchRow struct {
	Num              uint64 // order of commits over all journals
	Journal          int64
	FirstSeq         uint64
	LastSeq          uint64
	Created          int64 // nanoseconds since the epoch, as the next two
	MinTime, MaxTime int64
	Kinds            uint32 // a bit for each kind of event in it
	Size             int64  // of the data, once it is stored
	Data             []byte
}

// StreamCursor says how far a stream of a runtime was taken into a journal. The stream
// without a name is kept in the journal's own row.
type StreamCursor struct {
	Journal int64
	Stream  string
	Sid     string
	Seq     uint64
}

// JournalWrite is a change of journals that happens at once or not at all.
type JournalWrite struct {
	New     []JournalRow
	Batches []BatchRow
	Cursors []StreamCursor
	Ends    []*Ending // of the calls whose terminal events are among the batches
}

// WriteJournal queues a change; done is called after its commit, in the order of the calls,
// and must not block. A change that failed may be written again, even where it was made in
// spite of the error: rows whose numbers are there already stay.
func (s *Store) WriteJournal(w JournalWrite, done func(error)) {
	size, last := 0, uint64(0)
	for i := range w.Batches {
		size += len(w.Batches[i].Data)
		last = max(last, w.Batches[i].Num)
	}
	for _, e := range w.Ends {
		size += e.Size()
	}
	committed := func(err error) {
		if err == nil {
			s.synced.note(last)
		}
		done(err)
	}
	s.writer.submit(&operation{bytes: size, done: committed, run: func(tx *tx) error {
		for _, j := range w.New {
			if _, err := tx.exec("INSERT INTO journal (num, sandbox, id) VALUES (?, ?, ?) ON CONFLICT (num) DO NOTHING", j.Num, j.Sandbox, j.ID); err != nil {
				return err
			}
		}
		for i := range w.Batches {
			if err := insertBatch(tx, &w.Batches[i]); err != nil {
				return err
			}
		}
		for _, c := range w.Cursors {
			if err := moveCursor(tx, c); err != nil {
				return err
			}
		}
		for _, e := range w.Ends {
			if err := e.write(tx); err != nil {
				return err
			}
		}
		return nil
	}})
}

func moveCursor(tx *tx, c StreamCursor) error {
	if c.Stream == "" {
		_, err := tx.exec("UPDATE journal SET sid = ?, cursor = ? WHERE num = ?", c.Sid, int64(c.Seq), c.Journal)
		return err
	}
	_, err := tx.exec("INSERT INTO stream (journal, name, sid, cursor) VALUES (?, ?, ?, ?) ON CONFLICT (journal, name) DO UPDATE SET sid = excluded.sid, cursor = excluded.cursor",
		c.Journal, c.Stream, c.Sid, int64(c.Seq))
	return err
}

// Add makes the head of the batch cover one more event.
func (b *BatchRow) Add(seq uint64, time int64, kind uint32) {
	if b.LastSeq == 0 {
		b.MinTime, b.MaxTime = time, time
	}
	b.LastSeq = seq
	b.MinTime, b.MaxTime = min(b.MinTime, time), max(b.MaxTime, time)
	b.Kinds |= kind
}

func insertBatch(tx *tx, b *BatchRow) error {
	_, err := tx.exec("INSERT INTO batch (num, journal, first_seq, last_seq, created, min_time, max_time, kinds, size, sum, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (num) DO NOTHING",
		int64(b.Num), b.Journal, int64(b.FirstSeq), int64(b.LastSeq), b.Created, b.MinTime, b.MaxTime, b.Kinds, len(b.Data), b.sum(), b.Data)
	return err
}

func (b *BatchRow) sum() int64 { return checksum(b.sumParts()...) }

func (b *BatchRow) sumParts() []any {
	return []any{b.Num, b.Journal, b.FirstSeq, b.LastSeq, b.Created, b.MinTime, b.MaxTime, uint64(b.Kinds), b.Data}
}

// Journals returns all journals. It looks at no more than the newest batch of each, so that
// a daemon with long journals starts at once.
func (s *Store) Journals(ctx context.Context) ([]JournalRow, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT j.num, j.sandbox, j.id, j.sid, j.cursor, j.trimmed_seq, j.trimmed_batch, j.deleted, j.dropped,
		COALESCE(b.last_seq, 0), COALESCE(b.num, 0), COALESCE(b.created, 0)
		FROM journal j LEFT JOIN batch b ON b.journal = j.num AND b.last_seq = (SELECT MAX(last_seq) FROM batch WHERE journal = j.num)
		ORDER BY j.num`)
	if err != nil {
		return nil, s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	var all []JournalRow
	for rows.Next() {
		var j JournalRow
		var cursor, deleted, dropped, created int64
		if err := rows.Scan(&j.Num, &j.Sandbox, &j.ID, &j.Sid, &cursor, &j.TrimmedSeq, &j.TrimmedBatch, &deleted, &dropped,
			&j.LastSeq, &j.LastBatch, &created); err != nil {
			return nil, s.translate(err)
		}
		j.Cursor = uint64(cursor)
		j.Deleted, j.Dropped, j.LastCreated = timeOf(deleted), timeOf(dropped), timeOf(created)
		all = append(all, j)
	}
	return all, s.translate(rows.Err())
}

// StreamCursors returns how far the named streams of all journals were taken.
func (s *Store) StreamCursors(ctx context.Context) ([]StreamCursor, error) {
	rows, err := s.reads.QueryContext(ctx, "SELECT journal, name, sid, cursor FROM stream ORDER BY journal, name")
	if err != nil {
		return nil, s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	var all []StreamCursor
	for rows.Next() {
		var c StreamCursor
		var cursor int64
		if err := rows.Scan(&c.Journal, &c.Stream, &c.Sid, &cursor); err != nil {
			return nil, s.translate(err)
		}
		c.Seq = uint64(cursor)
		all = append(all, c)
	}
	return all, s.translate(rows.Err())
}

// BatchOverhead is about what a batch takes besides its data.
const BatchOverhead = 128

// JournalBytes is what the batches of a journal up to event seq take.
func (s *Store) JournalBytes(ctx context.Context, num int64, seq uint64) (int64, error) {
	var bytes int64
	err := s.reads.QueryRowContext(ctx, "SELECT COALESCE(SUM(size + ?), 0) FROM batch WHERE journal = ? AND last_seq <= ?",
		BatchOverhead, num, int64(seq)).Scan(&bytes)
	return bytes, s.translate(err)
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// TrimJournal removes the batches of a journal up to batch number through, which ends with
// event seq.
func (s *Store) TrimJournal(ctx context.Context, num int64, through, seq uint64) error {
	return s.changeJournal(ctx, num, func(tx *tx) error {
		if _, err := tx.exec("DELETE FROM batch WHERE journal = ? AND last_seq <= ?", num, int64(seq)); err != nil {
			return err
		}
		_, err := tx.exec("UPDATE journal SET trimmed_seq = MAX(trimmed_seq, ?), trimmed_batch = MAX(trimmed_batch, ?) WHERE num = ?",
			int64(seq), int64(through), num)
		return err
	})
}

// MarkJournalDeleted notes when a journal's sandbox was deleted.
func (s *Store) MarkJournalDeleted(ctx context.Context, num int64, at time.Time) error {
	return s.changeJournal(ctx, num, func(tx *tx) error {
		_, err := tx.exec("UPDATE journal SET deleted = ? WHERE num = ? AND deleted = 0", at.UnixNano(), num)
		return err
	})
}

// DropJournal removes all events of a journal and keeps its row, so that readers of all
// sandboxes can be told of the gap.
func (s *Store) DropJournal(ctx context.Context, num int64, at time.Time) error {
	return s.changeJournal(ctx, num, func(tx *tx) error {
		_, err := tx.exec(`UPDATE journal SET dropped = ?,
			trimmed_seq = MAX(trimmed_seq, (SELECT COALESCE(MAX(last_seq), 0) FROM batch WHERE journal = ?)),
			trimmed_batch = MAX(trimmed_batch, (SELECT COALESCE(MAX(num), 0) FROM batch WHERE journal = ?)) WHERE num = ?`,
			at.UnixNano(), num, num, num)
		if err != nil {
			return err
		}
		_, err = tx.exec("DELETE FROM batch WHERE journal = ?", num)
		return err
	})
}

// ForgetJournal removes the last trace of a dropped journal, but for the numbers of its
// batches, which are never used again.
func (s *Store) ForgetJournal(ctx context.Context, num int64) error {
	return s.changeJournal(ctx, num, func(tx *tx) error {
		_, err := tx.exec(`INSERT INTO meta SELECT 'batch_floor', trimmed_batch FROM journal WHERE num = ? AND dropped != 0
			ON CONFLICT (name) DO UPDATE SET value = MAX(value, excluded.value)`, num)
		if err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM stream WHERE journal IN (SELECT num FROM journal WHERE num = ? AND dropped != 0)", num); err != nil {
			return err
		}
		_, err = tx.exec("DELETE FROM journal WHERE num = ? AND dropped != 0", num)
		return err
	})
}

// NextBatch is the least number that no batch ever had.
func (s *Store) NextBatch(ctx context.Context) (uint64, error) {
	last, err := lastBatch(ctx, s.reads)
	return last + 1, s.translate(err)
}

// lastBatch is the highest number that a batch ever had.
func lastBatch(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (last uint64, err error) {
	err = db.QueryRowContext(ctx, `SELECT MAX((SELECT COALESCE(MAX(num), 0) FROM batch),
		(SELECT COALESCE(MAX(trimmed_batch), 0) FROM journal),
		COALESCE((SELECT value FROM meta WHERE name = 'batch_floor'), 0))`).Scan(&last)
	return last, err
}

func (s *Store) changeJournal(ctx context.Context, num int64, run func(*tx) error) error {
	if err := s.writer.do(ctx, 0, run); err != nil {
		return fmt.Errorf("change journal %d: %w", num, err)
	}
	return nil
}

const (
	spareBytes  = 32 << 20 // 32 MiB: freed space that is kept for what comes
	vacuumPages = 256      // pages that one step gives back, so that writers wait little
)

// ReleaseSpace gives space that deletes have freed back to the file system, unless it is little.
func (s *Store) ReleaseSpace(ctx context.Context) error {
	for {
		var pages, size int64
		err := s.reads.QueryRowContext(ctx, "SELECT f.freelist_count, p.page_size FROM pragma_freelist_count f, pragma_page_size p").
			Scan(&pages, &size)
		if err != nil || pages*size <= spareBytes {
			return s.translate(err)
		}
		err = s.writer.doAlone(ctx, vacuumPages*int(size), func(tx *tx) error {
			rows, err := tx.conn.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages))
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() { // each step frees one page
				continue
			}
			return rows.Err()
		})
		if err != nil {
			return s.translate(err)
		}
	}
}
