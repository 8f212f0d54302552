package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// KeepLimits bound the outcomes that are kept. Beyond them the oldest go.
type KeepLimits struct {
	Count int
	Bytes int64
}

// DefaultKeepLimits are those of a daemon.
var DefaultKeepLimits = KeepLimits{Count: wire.MaxKeptOutcomes, Bytes: wire.MaxKeptBytes}

const outcomesName = "outcomes"

// errGone tells that an outcome is no longer kept.
var errGone = errs.New(errs.NotFound, errs.CallNotFound, "the outcome is no longer kept")

// outcomes are the kept outcomes of finished calls, oldest first. Large values are files of
// dir, written whole before the row that tells of them, and removed after it.
type outcomes struct {
	dir    string
	root   *os.Root // of dir
	limits KeepLimits

	mu    sync.Mutex
	queue []keptOutcome
	bytes int64
}

type keptOutcome struct {
	id       string
	finished int64
	size     int64
	file     bool
}

// outcomeRow is the outcome of a call as its row has it.
type outcomeRow struct {
	id          string
	kept, size  int64
	sum         int64
	head, value []byte
}

func (o *outcomes) open() (err error) {
	if err = os.MkdirAll(o.dir, 0o700); err == nil { //nolint:gosec // below the operator's own state directory
		o.root, err = os.OpenRoot(o.dir)
	}
	return err
}

func (o *outcomes) close() error {
	if o.root == nil {
		return nil
	}
	return o.root.Close()
}

// put writes a large value to its file and returns what the row holds.
func (o *outcomes) put(id string, head, value []byte) (outcomeRow, error) {
	row := outcomeRow{
		id: id, kept: keptInRow, size: int64(len(head) + len(value)),
		sum: checksum(id, head, value), head: notNil(head), value: notNil(value),
	}
	if len(value) <= wire.MaxRowValueBytes {
		return row, nil
	}
	row.kept, row.value = keptInFile, nil
	err := o.write(id+newSuffix, value)
	if err == nil {
		err = o.root.Rename(id+newSuffix, id)
	}
	if err != nil {
		_ = o.root.Remove(id + newSuffix)
		return row, fileError(err)
	}
	return row, nil
}

func (o *outcomes) write(name string, value []byte) error {
	f, err := o.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	return errors.Join(err, f.Sync(), f.Close())
}

// newSuffix is of a file that is being written; ids have no dot.
const newSuffix = ".new"

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// fileError gives a full disk its kind.
func fileError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errs.New(errs.ResourceExhausted, errs.LimitExceeded, "the state directory cannot take more data").
			WithMeta("limit", "state_disk").WithCause(err)
	}
	return err
}

func (o *outcomes) drop(row outcomeRow) {
	if row.kept == keptInFile {
		_ = o.root.Remove(row.id)
	}
}

// over takes the oldest outcomes off the list: those that finished before a time and, if
// there are more than the limits allow, so many that an eighth is free again.
func (o *outcomes) over(before int64) []keptOutcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, bytes := 0, o.bytes
	full := len(o.queue) > o.limits.Count || bytes > o.limits.Bytes
	for _, k := range o.queue {
		crowded := full && (len(o.queue)-n > o.limits.Count-o.limits.Count/8 || bytes > o.limits.Bytes-o.limits.Bytes/8)
		if k.finished >= before && !crowded {
			break
		}
		n++
		bytes -= k.size
	}
	out := append([]keptOutcome{}, o.queue[:n]...)
	o.queue = append([]keptOutcome{}, o.queue[n:]...)
	o.bytes = bytes
	return out
}

// keepOutcome notes an outcome that is written, and lets others go for it.
func (s *Store) keepOutcome(row outcomeRow, finished time.Time) {
	o := s.outcomes
	o.mu.Lock()
	o.queue = append(o.queue, keptOutcome{id: row.id, finished: finished.UnixNano(), size: row.size, file: row.kept == keptInFile})
	o.bytes += row.size
	full := len(o.queue) > o.limits.Count || o.bytes > o.limits.Bytes
	o.mu.Unlock()
	if !full {
		return
	}
	if err := s.forgetOutcomes(context.Background(), o.over(0)); err != nil {
		s.logger.Error("old outcomes not removed", "err", err)
	}
}

// ExpireOutcomes lets the outcomes of calls go that finished before a time. How the calls
// ended stays known.
func (s *Store) ExpireOutcomes(ctx context.Context, before time.Time) error {
	return s.forgetOutcomes(ctx, s.outcomes.over(before.UnixNano()))
}

func (s *Store) forgetOutcomes(ctx context.Context, old []keptOutcome) error {
	if len(old) == 0 {
		return nil
	}
	err := s.writer.do(ctx, 0, func(tx *tx) error {
		for _, k := range old {
			if _, err := tx.exec("UPDATE call SET kept = 0, size = 0, outcome_sum = NULL, head = NULL, value = NULL WHERE id = ?", k.id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil { // they stay on disk until the next start, which counts them again
		return fmt.Errorf("remove old outcomes: %w", err)
	}
	for _, k := range old {
		if k.file {
			_ = s.outcomes.root.Remove(k.id)
		}
	}
	return nil
}

// Outcome returns head and value of a finished call; NotFound if they are not kept, or no
// longer.
func (s *Store) Outcome(ctx context.Context, id string) (head, value []byte, err error) {
	var kept, sum int64
	row := s.reads.QueryRowContext(ctx, "SELECT kept, ifnull(outcome_sum, 0), head, value FROM call WHERE id = ? AND kept != 0", id)
	if err := row.Scan(&kept, &sum, &head, &value); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil, errGone
		}
		return nil, nil, fmt.Errorf("read outcome of call %s: %w", id, s.translate(err))
	}
	path := s.path
	if kept == keptInFile {
		path = filepath.Join(s.outcomes.dir, id)
		if value, err = s.outcomes.root.ReadFile(id); err != nil {
			if errors.Is(err, os.ErrNotExist) { // removed meanwhile
				return nil, nil, errGone
			}
			return nil, nil, fmt.Errorf("read outcome of call %s: %w", id, err)
		}
	}
	if got := checksum(id, head, value); got != sum {
		return nil, nil, damaged(path, fmt.Errorf("the outcome of call %s has checksum %08x, not %08x", id, got, sum))
	}
	return head, value, nil
}

// loadOutcomes counts what is kept, and removes the files of outcomes that are not: what a
// killed daemon wrote before the row, or did not remove after it.
func (s *Store) loadOutcomes(ctx context.Context) error {
	o := s.outcomes
	if err := o.open(); err != nil {
		return err
	}
	rows, err := s.reads.QueryContext(ctx, "SELECT id, finished, size, kept FROM call WHERE kept != 0 ORDER BY finished")
	if err != nil {
		return s.translate(err)
	}
	defer func() { _ = rows.Close() }()
	files := map[string]bool{}
	for rows.Next() {
		var k keptOutcome
		var kept int64
		if err := rows.Scan(&k.id, &k.finished, &k.size, &kept); err != nil {
			return s.translate(err)
		}
		if k.file = kept == keptInFile; k.file {
			files[k.id] = true
		}
		o.queue = append(o.queue, k)
		o.bytes += k.size
	}
	if err := rows.Err(); err != nil {
		return s.translate(err)
	}
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !files[e.Name()] {
			if err := o.root.RemoveAll(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
