package store

import (
	"context"
	"database/sql"

	"github.com/agentixd/agentixd/runtime/wire"
)

// oldCall is a row of schema 2.
type oldCall struct {
	id, sandbox, callable        string
	hash, outcome                []byte
	accepted, sum                int64
	finished, outcomeSum         sql.NullInt64
	state, kept, endSum, keptSum int64
	errorType                    string
}

// moveCalls takes the calls of schema 2 on: how each of them ended is in its outcome there.
// A row that is damaged stays so.
func moveCalls(ctx context.Context, conn *sql.Conn) error {
	rows, err := conn.QueryContext(ctx, "SELECT id, sandbox, request_hash, callable, accepted, sum, finished, outcome_sum, outcome FROM call_2 ORDER BY accepted")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	insert, err := conn.PrepareContext(ctx, `INSERT INTO call
		(id, sandbox, request_hash, callable, accepted, deadline, encoding, submitted, sum, state, finished, error_type, end_sum, kept, size, outcome_sum, head)
		VALUES (?, ?, ?, ?, ?, 0, '', 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	for rows.Next() {
		var c oldCall
		if err := rows.Scan(&c.id, &c.sandbox, &c.hash, &c.callable, &c.accepted, &c.sum, &c.finished, &c.outcomeSum, &c.outcome); err != nil {
			return err
		}
		if c.state = CallRunning; c.finished.Valid {
			c.end()
		}
		_, err := insert.ExecContext(ctx, c.id, c.sandbox, c.hash, c.callable, c.accepted, c.sum,
			c.state, c.finished, c.errorType, c.endSum, c.kept, len(c.outcome), c.keptSum, c.outcome)
		if err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "DROP TABLE call_2")
	return err
}

// end reads how a call ended from its outcome.
func (c *oldCall) end() {
	var outcome struct {
		Error *struct {
			Type      string `msgpack:"type"`
			Cancelled bool   `msgpack:"cancelled"`
		} `msgpack:"error"`
		Dropped int `msgpack:"dropped"`
	}
	good := checksum(c.id, c.finished.Int64, c.outcome) == c.outcomeSum.Int64 && wire.Unmarshal(c.outcome, &outcome) == nil
	c.state, c.kept = CallSucceeded, keptInRow
	if e := outcome.Error; e != nil {
		c.state, c.errorType = CallFailed, e.Type
		if e.Cancelled {
			c.state = CallCancelled
		}
	}
	if outcome.Dropped > 0 {
		c.kept, c.outcome = keptNot, nil
	}
	c.endSum = endSum(c.id, c.finished.Int64, c.state, c.errorType)
	c.keptSum = checksum(c.id, c.outcome, []byte(nil))
	if !good {
		c.endSum = ^c.endSum
	}
}
