package store

import (
	"context"
	"fmt"
)

// SandboxRow is the record of one sandbox; what it holds is its owner's business.
type SandboxRow struct {
	ID     string
	Record []byte
}

// PutSandbox keeps a sandbox's record in place of an earlier one; durable on return.
func (s *Store) PutSandbox(ctx context.Context, id string, record []byte) error {
	if record == nil {
		record = []byte{}
	}
	sum := checksum(id, record)
	err := s.writer.do(ctx, len(record), func(tx *tx) error {
		_, err := tx.exec("INSERT INTO sandbox (id, record, sum) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record, sum = excluded.sum", id, record, sum)
		return err
	})
	if err != nil {
		return fmt.Errorf("store sandbox %s: %w", id, err)
	}
	return nil
}

// DeleteSandbox forgets a sandbox's record; durable on return. One that is not there is no error.
func (s *Store) DeleteSandbox(ctx context.Context, id string) error {
	err := s.writer.do(ctx, 0, func(tx *tx) error {
		_, err := tx.exec("DELETE FROM sandbox WHERE id = ?", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget sandbox %s: %w", id, err)
	}
	return nil
}

// Sandboxes returns all records, by id.
func (s *Store) Sandboxes(ctx context.Context) ([]SandboxRow, error) {
	rows, err := s.reads.QueryContext(ctx, "SELECT id, record, sum FROM sandbox ORDER BY id")
	if err != nil {
		return nil, s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	var all []SandboxRow
	for rows.Next() {
		var r SandboxRow
		var sum int64
		if err := rows.Scan(&r.ID, &r.Record, &sum); err != nil {
			return nil, s.translate(err)
		}
		if err := s.verify("sandbox", r.ID, sum, r.ID, r.Record); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, s.translate(rows.Err())
}
