package store

import (
	"context"
	"strings"
)

// BatchQuery selects batches.
type BatchQuery struct {
	Journal    int64  // 0 = of all journals, in the order of their commits
	AfterSeq   uint64 // of one journal: those that end after this event
	AfterBatch uint64 // of all journals: those from this batch on
	UpTo       uint64 // of all journals: those up to this batch; 0 = no end
	Kinds      uint32 // those with any of these kinds; 0 = all
	SinceTime  int64  // those with an event at or after this time; 0 = all
	Newest     bool   // newest first
	Limit      int    // at most this many; 0 = all
	HeadOnly   bool   // without their data
}

// Batches calls fn with each batch until fn returns false. A batch is checked before fn sees it.
func (s *Store) Batches(ctx context.Context, q BatchQuery, fn func(BatchRow) (more bool, err error)) error {
	query, args := q.build()
	rows, err := s.reads.QueryContext(ctx, query, args...)
	if err != nil {
		return s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var b BatchRow
		var sum int64
		to := []any{&b.Num, &b.Journal, &b.FirstSeq, &b.LastSeq, &b.Created, &b.MinTime, &b.MaxTime, &b.Kinds, &b.Size, &sum}
		if !q.HeadOnly {
			to = append(to, &b.Data)
		}
		if err := rows.Scan(to...); err != nil {
			return s.translate(err)
		}
		if !q.HeadOnly {
			if err := s.verify("batch", b.Num, sum, b.sumParts()...); err != nil {
				return err
			}
		}
		if more, err := fn(b); err != nil || !more {
			return err
		}
	}
	return s.translate(rows.Err())
}

func (q BatchQuery) build() (string, []any) {
	var text strings.Builder
	text.WriteString("SELECT num, journal, first_seq, last_seq, created, min_time, max_time, kinds, size, sum")
	if !q.HeadOnly {
		text.WriteString(", data")
	}
	text.WriteString(" FROM batch WHERE ")
	var args []any
	and := func(condition string, value any) {
		if len(args) > 0 {
			text.WriteString(" AND ")
		}
		text.WriteString(condition)
		args = append(args, value)
	}
	order := "num"
	if q.Journal != 0 {
		order = "last_seq"
		and("journal = ?", q.Journal)
		if q.AfterSeq > 0 {
			and("last_seq > ?", int64(q.AfterSeq))
		}
	} else {
		and("num >= ?", int64(q.AfterBatch))
		if q.UpTo > 0 {
			and("num <= ?", int64(q.UpTo))
		}
	}
	if q.Kinds != 0 {
		and("kinds & ? != 0", q.Kinds)
	}
	if q.SinceTime != 0 {
		and("max_time >= ?", q.SinceTime)
	}
	text.WriteString(" ORDER BY " + order)
	if q.Newest {
		text.WriteString(" DESC")
	}
	if q.Limit > 0 {
		text.WriteString(" LIMIT ?")
		args = append(args, q.Limit)
	}
	return text.String(), args
}
