package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// pruneRows is how many rows one commit looks at: calls that are accepted meanwhile wait for
// no more than that.
const pruneRows = 2000

// PruneCalls forgets calls that finished before a time and, of calls without a name, those
// beyond wire.MaxCallRecords. It returns how many.
func (s *Store) PruneCalls(ctx context.Context, before time.Time) (int64, error) {
	return s.pruneCalls(ctx, before, wire.MaxCallRecords)
}

func (s *Store) pruneCalls(ctx context.Context, before time.Time, records int64) (deleted int64, err error) {
	if err := s.ExpireOutcomes(ctx, before); err != nil {
		return 0, err
	}
	var newest sql.NullInt64
	if err := s.reads.QueryRowContext(ctx, "SELECT max(num) FROM call").Scan(&newest); err != nil {
		return 0, fmt.Errorf("prune calls: %w", s.translate(err))
	}
	at, crowded := before.UnixNano(), newest.Int64-records
	for from := int64(0); ; {
		// Rows are in the order of acceptance: behind a part that was accepted after the time
		// nothing finished before it, unless the clock was set.
		last, oldest, err := s.prunable(ctx, from)
		if err != nil || last == 0 || (from >= crowded && oldest >= at) {
			return deleted, err
		}
		err = s.writer.do(ctx, 0, func(tx *tx) error {
			n, err := tx.exec("DELETE FROM call WHERE num > ? AND num <= ? AND (finished < ? OR finished IS NOT NULL AND num <= ? AND length(request_hash) = 0)", from, last, at, crowded)
			deleted += n
			return err
		})
		if err != nil {
			return deleted, fmt.Errorf("prune calls: %w", err)
		}
		from = last
	}
}

// prunable returns the last number of the rows behind from that one commit looks at, and when
// the first of them was accepted; 0 if there are none.
func (s *Store) prunable(ctx context.Context, from int64) (last, oldest int64, err error) {
	row := s.reads.QueryRowContext(ctx, "SELECT ifnull(max(num), 0), ifnull(min(accepted), 0) FROM (SELECT num, accepted FROM call WHERE num > ? ORDER BY num LIMIT ?)", from, pruneRows)
	if err := row.Scan(&last, &oldest); err != nil {
		return 0, 0, fmt.Errorf("prune calls: %w", s.translate(err))
	}
	return last, oldest, nil
}
