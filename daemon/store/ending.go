package store

import (
	"context"
	"fmt"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Ending is the outcome of a call on its way into the store. It is written with the events of
// JournalWrite, or alone by FinishCall; Ended follows its commit.
type Ending struct {
	id      string
	end     CallEnd
	sum     int64
	row     outcomeRow
	written bool // by a transaction, of which the last one was committed; the writer's until then
}

// Large tells whether NewEnding has to write a file.
func (end *CallEnd) Large() bool { return end.Keep && len(end.Value) > wire.MaxRowValueBytes }

// NewEnding prepares an outcome. A large value is written to its file.
func (s *Store) NewEnding(id string, end CallEnd) (*Ending, error) {
	e := &Ending{id: id, end: end, row: outcomeRow{id: id, kept: keptNot}}
	e.sum = endSum(id, end.Finished.UnixNano(), end.State, end.ErrorType)
	if end.Keep {
		var err error
		if e.row, err = s.outcomes.put(id, end.Head, end.Value); err != nil {
			return nil, fmt.Errorf("finish call %s: %w", id, err)
		}
	}
	return e, nil
}

// Size is what its row takes.
func (e *Ending) Size() int { return len(e.row.head) + len(e.row.value) + 256 }

// write leaves a call alone that is unknown or has an outcome.
func (e *Ending) write(tx *tx) error {
	n, err := tx.exec(`UPDATE call SET state = ?, finished = ?, error_type = ?, end_sum = ?, kept = ?, size = ?, outcome_sum = ?, head = ?, value = ?
		WHERE id = ? AND finished IS NULL`,
		e.end.State, e.end.Finished.UnixNano(), e.end.ErrorType, e.sum, e.row.kept, e.row.size, e.row.sum, e.row.head, e.row.value, e.id)
	e.written = e.written || n == 1
	return err
}

// Ended notes an outcome that is committed: it counts among those that are kept.
func (s *Store) Ended(e *Ending) {
	if e.row.kept != keptNot && e.written {
		s.keepOutcome(e.row, e.end.Finished)
	}
}

// FinishCall gives a call its outcome; durable on return. The first outcome stays: for a
// finished call FinishCall returns AlreadyExists, for an unknown one NotFound.
func (s *Store) FinishCall(ctx context.Context, id string, end CallEnd) error {
	e, err := s.NewEnding(id, end)
	if err != nil {
		return err
	}
	var refused error
	err = s.writer.do(ctx, e.Size(), func(tx *tx) error {
		refused, e.written = nil, false
		err := e.write(tx)
		if err == nil && !e.written {
			refused, err = whyNotFinished(tx, id)
		}
		return err
	})
	if err == nil {
		err = refused
	}
	// With another error it may have been written all the same; what was not is found at the
	// next start.
	switch {
	case err == nil:
		s.Ended(e)
	case errs.Is(err, errs.NotFound):
		s.outcomes.drop(e.row)
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
