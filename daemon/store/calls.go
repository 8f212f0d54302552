package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
)

// CallRow is one call: what was accepted and, once it is finished, its outcome.
type CallRow struct {
	ID          string
	Sandbox     string
	RequestHash []byte
	Callable    string
	Accepted    time.Time
	Finished    time.Time // zero while the call has no outcome
	Outcome     []byte
}

const callColumns = "id, sandbox, request_hash, callable, accepted, sum, finished, outcome_sum, outcome"

// AcceptCall writes a call down; durable on return, so that the call may be sent. It returns
// AlreadyExists if the id is taken, whatever the request was.
func (s *Store) AcceptCall(ctx context.Context, row CallRow) error {
	accepted := row.Accepted.UnixNano()
	hash := append([]byte{}, row.RequestHash...)
	sum := checksum(row.ID, row.Sandbox, hash, row.Callable, accepted)
	fresh := false
	err := s.writer.do(ctx, 256, func(tx *tx) error {
		n, err := tx.exec("INSERT INTO call (id, sandbox, request_hash, callable, accepted, sum) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
			row.ID, row.Sandbox, hash, row.Callable, accepted, sum)
		fresh = n == 1
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("accept call %s: %w", row.ID, err)
	case !fresh:
		return errs.New(errs.AlreadyExists, errs.CallIDConflict, "call %q exists", row.ID)
	}
	return nil
}

// FinishCall gives a call its outcome; durable on return. The first outcome stays: for a
// finished call FinishCall returns AlreadyExists, for an unknown one NotFound.
func (s *Store) FinishCall(ctx context.Context, id string, outcome []byte, finished time.Time) error {
	if outcome == nil {
		outcome = []byte{}
	}
	at := finished.UnixNano()
	sum := checksum(id, at, outcome)
	var refused error
	err := s.writer.do(ctx, len(outcome)+256, func(tx *tx) error {
		refused = nil
		n, err := tx.exec("UPDATE call SET finished = ?, outcome_sum = ?, outcome = ? WHERE id = ? AND finished IS NULL", at, sum, outcome, id)
		if err == nil && n == 0 {
			refused, err = whyNotFinished(tx, id)
		}
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return fmt.Errorf("finish call %s: %w", id, err)
	}
	return nil
}

func whyNotFinished(tx *tx, id string) (refused, err error) {
	n, err := tx.exec("UPDATE call SET finished = finished WHERE id = ?", id)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return callNotFound(id), nil
	}
	return errs.New(errs.AlreadyExists, errs.CallIDConflict, "call %q has an outcome", id), nil
}

// Call returns one call; NotFound if there is none.
func (s *Store) Call(ctx context.Context, id string) (CallRow, error) {
	rows, err := s.calls(ctx, "id = ?", id)
	if err != nil {
		return CallRow{}, fmt.Errorf("look up call %s: %w", id, err)
	}
	if len(rows) == 0 {
		return CallRow{}, callNotFound(id)
	}
	return rows[0], nil
}

// OpenCalls returns the calls without an outcome, in order of acceptance.
func (s *Store) OpenCalls(ctx context.Context) ([]CallRow, error) {
	rows, err := s.calls(ctx, "finished IS NULL ORDER BY accepted")
	if err != nil {
		return nil, fmt.Errorf("list open calls: %w", err)
	}
	return rows, nil
}

// LastCalls returns for each sandbox when its last call was accepted or ended, as far as
// calls are kept.
func (s *Store) LastCalls(ctx context.Context) (map[string]time.Time, error) {
	rows, err := s.reads.QueryContext(ctx, "SELECT sandbox, max(max(accepted, coalesce(finished, 0))) FROM call GROUP BY sandbox")
	if err != nil {
		return nil, fmt.Errorf("list last calls: %w", s.translate(err))
	}
	defer func() { _ = rows.Close() }()
	last := map[string]time.Time{}
	for rows.Next() {
		var sandbox string
		var at int64
		if err := rows.Scan(&sandbox, &at); err != nil {
			return nil, s.translate(err)
		}
		last[sandbox] = time.Unix(0, at)
	}
	return last, s.translate(rows.Err())
}

// PruneCalls forgets calls that finished before a time, and returns how many.
func (s *Store) PruneCalls(ctx context.Context, before time.Time) (int64, error) {
	var n int64
	err := s.writer.do(ctx, 0, func(tx *tx) (err error) {
		n, err = tx.exec("DELETE FROM call WHERE finished < ?", before.UnixNano())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("prune calls: %w", err)
	}
	return n, nil
}

func (s *Store) calls(ctx context.Context, where string, args ...any) ([]CallRow, error) {
	rows, err := s.reads.QueryContext(ctx, "SELECT "+callColumns+" FROM call WHERE "+where, args...) //nolint:gosec // constants of this file
	if err != nil {
		return nil, s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	var all []CallRow
	for rows.Next() {
		var r CallRow
		var accepted, sum int64
		var finished, outcomeSum sql.NullInt64
		if err := rows.Scan(&r.ID, &r.Sandbox, &r.RequestHash, &r.Callable, &accepted, &sum, &finished, &outcomeSum, &r.Outcome); err != nil {
			return nil, s.translate(err)
		}
		if err := s.verify("call", r.ID, sum, r.ID, r.Sandbox, r.RequestHash, r.Callable, accepted); err != nil {
			return nil, err
		}
		r.Accepted = time.Unix(0, accepted)
		if finished.Valid {
			if err := s.verify("call", r.ID, outcomeSum.Int64, r.ID, finished.Int64, r.Outcome); err != nil {
				return nil, err
			}
			r.Finished = time.Unix(0, finished.Int64)
		}
		all = append(all, r)
	}
	return all, s.translate(rows.Err())
}

func callNotFound(id string) error {
	return errs.New(errs.NotFound, errs.CallNotFound, "call %q does not exist", id)
}
