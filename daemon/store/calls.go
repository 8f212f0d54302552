package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
)

// The states of a call.
const (
	CallRunning   int64 = 1
	CallSucceeded int64 = 2
	CallFailed    int64 = 3
	CallCancelled int64 = 4
)

// Where the outcome of a call is.
const (
	keptNot    int64 = 0 // nowhere: it was not to be kept, or is no longer
	keptInRow  int64 = 1
	keptInFile int64 = 2 // its value is in a file of its own
)

// CallRow is one call: what was accepted and, once it is finished, how.
type CallRow struct {
	Num         int64 // grows with each call that is accepted; set by the store
	ID          string
	Sandbox     string
	RequestHash []byte
	Callable    string
	Accepted    time.Time
	Deadline    time.Time // zero = none
	Encoding    string    // that its result was asked for in
	Submitted   bool      // it goes on without a waiter

	State     int64
	Finished  time.Time // zero while the call has no outcome
	ErrorType string    // of an outcome without a result
	Kept      bool      // its outcome can be read by Outcome
}

// CallEnd is the outcome of a call.
type CallEnd struct {
	State     int64
	ErrorType string
	Finished  time.Time
	Keep      bool   // whether the following is kept, too
	Head      []byte // everything but the value
	Value     []byte // kept as it is, in a file of its own if it is large
}

const callColumns = "num, id, sandbox, request_hash, callable, accepted, deadline, encoding, submitted, sum, state, finished, error_type, end_sum, kept"

// acceptSum is over what is known of a call when it is accepted. What schema 2 did not know
// does not count where it is empty.
func acceptSum(r *CallRow) int64 {
	parts := []any{r.ID, r.Sandbox, r.RequestHash, r.Callable, r.Accepted.UnixNano()}
	if deadline := nanos(r.Deadline); deadline != 0 || r.Encoding != "" || r.Submitted {
		parts = append(parts, deadline, r.Encoding, number(r.Submitted))
	}
	return checksum(parts...)
}

func endSum(id string, finished, state int64, errorType string) int64 {
	return checksum(id, finished, state, errorType)
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// AcceptCall writes a call down; durable on return, so that the call may be sent. It returns
// AlreadyExists if the id is taken, whatever the request was.
func (s *Store) AcceptCall(ctx context.Context, row CallRow) error {
	row.RequestHash = append([]byte{}, row.RequestHash...)
	sum := acceptSum(&row)
	fresh := false
	err := s.writer.do(ctx, 256, func(tx *tx) error {
		n, err := tx.exec(`INSERT INTO call (id, sandbox, request_hash, callable, accepted, deadline, encoding, submitted, sum, state)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
			row.ID, row.Sandbox, row.RequestHash, row.Callable, row.Accepted.UnixNano(), nanos(row.Deadline), row.Encoding, number(row.Submitted), sum, CallRunning)
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

// SubmitCall notes that a call which was accepted goes on without a waiter; durable on return.
func (s *Store) SubmitCall(ctx context.Context, id string) error {
	row, err := s.Call(ctx, id)
	if err != nil || row.Submitted {
		return err
	}
	row.Submitted = true
	sum := acceptSum(&row)
	err = s.writer.do(ctx, 256, func(tx *tx) error {
		_, err := tx.exec("UPDATE call SET submitted = 1, sum = ? WHERE id = ?", sum, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("note call %s as submitted: %w", id, err)
	}
	return nil
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
	rows, err := s.calls(ctx, "finished IS NULL ORDER BY num")
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

// CallQuery selects calls.
type CallQuery struct {
	Sandbox string  // empty = of all sandboxes
	Before  int64   // those with a lower Num; 0 = from the newest on
	States  []int64 // empty = all
	Limit   int     // at most this many
}

// Calls returns calls, the newest first.
func (s *Store) Calls(ctx context.Context, q CallQuery) ([]CallRow, error) {
	where, args := "1", []any{}
	and := func(condition string, values ...any) {
		where += " AND " + condition
		args = append(args, values...)
	}
	if q.Sandbox != "" {
		and("sandbox = ?", q.Sandbox)
	}
	if q.Before > 0 {
		and("num < ?", q.Before)
	}
	if len(q.States) > 0 {
		var mask int64
		for _, state := range q.States {
			mask |= 1 << state
		}
		and("(1 << state) & ? != 0", mask)
	}
	rows, err := s.calls(ctx, where+" ORDER BY num DESC LIMIT ?", append(args, q.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("list calls: %w", err)
	}
	return rows, nil
}

func (s *Store) calls(ctx context.Context, where string, args ...any) ([]CallRow, error) {
	rows, err := s.reads.QueryContext(ctx, "SELECT "+callColumns+" FROM call WHERE "+where, args...) //nolint:gosec // constants of this file
	if err != nil {
		return nil, s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	var all []CallRow
	for rows.Next() {
		r, err := s.scanCall(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, s.translate(rows.Err())
}

func (s *Store) scanCall(rows *sql.Rows) (CallRow, error) {
	var r CallRow
	var accepted, deadline, submitted, sum, kept int64
	var finished, end sql.NullInt64
	var errorType sql.NullString
	if err := rows.Scan(&r.Num, &r.ID, &r.Sandbox, &r.RequestHash, &r.Callable, &accepted, &deadline, &r.Encoding, &submitted, &sum,
		&r.State, &finished, &errorType, &end, &kept); err != nil {
		return r, s.translate(err)
	}
	r.Accepted, r.Submitted, r.ErrorType, r.Kept = time.Unix(0, accepted), submitted != 0, errorType.String, kept != keptNot
	if deadline != 0 {
		r.Deadline = time.Unix(0, deadline)
	}
	if got := acceptSum(&r); got != sum {
		return r, s.badSum("call", r.ID, got, sum)
	}
	if finished.Valid {
		if err := s.verify("call", r.ID, end.Int64, r.ID, finished.Int64, r.State, r.ErrorType); err != nil {
			return r, err
		}
		r.Finished = time.Unix(0, finished.Int64)
	} else if r.State != CallRunning || r.Kept {
		return r, s.badSum("call", r.ID, 0, sum)
	}
	return r, nil
}

func callNotFound(id string) error {
	return errs.New(errs.NotFound, errs.CallNotFound, "call %q does not exist", id)
}
