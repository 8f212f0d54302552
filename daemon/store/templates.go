package store

import (
	"context"
	"fmt"
)

// PutTemplate keeps a template's record in place of an earlier one; durable on return. What
// it holds is its owner's business.
func (s *Store) PutTemplate(ctx context.Context, id string, record []byte) error {
	sum := checksum("template", id, record)
	err := s.writer.do(ctx, len(record), func(tx *tx) error {
		_, err := tx.exec("INSERT INTO template (id, record, sum) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record, sum = excluded.sum", id, record, sum)
		return err
	})
	if err != nil {
		return fmt.Errorf("store template %s: %w", id, err)
	}
	return nil
}

// DeleteTemplate forgets a template; durable on return. One that is not there is no error.
func (s *Store) DeleteTemplate(ctx context.Context, id string) error {
	err := s.writer.do(ctx, 0, func(tx *tx) error {
		_, err := tx.exec("DELETE FROM template WHERE id = ?", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget template %s: %w", id, err)
	}
	return nil
}

// Templates returns all records by their ids.
func (s *Store) Templates(ctx context.Context) (map[string][]byte, error) {
	rows, err := s.reads.QueryContext(ctx, "SELECT id, record, sum FROM template")
	if err != nil {
		return nil, s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	all := map[string][]byte{}
	for rows.Next() {
		var id string
		var record []byte
		var sum int64
		if err := rows.Scan(&id, &record, &sum); err != nil {
			return nil, s.translate(err)
		}
		if err := s.verify("template", id, sum, "template", id, record); err != nil {
			return nil, err
		}
		all[id] = record
	}
	return all, s.translate(rows.Err())
}
