package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/agentixd/agentixd/internal/failpoint"
)

const (
	checkpointBytes = 4 << 20  // 4 MiB: move the log into the database after about this much
	resetFrames     = 16 << 10 // 64 MiB of log: hold the writer to begin the log anew
)

// syncer makes commits durable soon after they were made, and moves the write-ahead log
// into the database file, so that neither is on anybody's path.
type syncer struct {
	store  *Store
	wal    *os.File
	db     *sql.DB
	dirty  chan struct{} // holds one token while there is something to sync
	grown  atomic.Int64  // bytes committed since the last checkpoint
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// openSyncer opens the log by itself: SQLite keeps no locks on that file that a further
// descriptor could drop.
func openSyncer(ctx context.Context, s *Store) (*syncer, error) {
	wal, err := os.OpenFile(s.path+"-wal", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	db, err := openDB(s.path, "synchronous(normal)", "wal_autocheckpoint(0)", "journal_size_limit(67108864)")
	if err != nil {
		return nil, errors.Join(err, wal.Close())
	}
	db.SetMaxOpenConns(1)
	y := &syncer{store: s, wal: wal, db: db, dirty: make(chan struct{}, 1), done: make(chan struct{})}
	y.ctx, y.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go y.serve() // ends when close cancels y.ctx
	return y, nil
}

// mark tells of a commit.
func (y *syncer) mark(bytes int) {
	y.grown.Add(int64(bytes) + 8<<10) // a commit writes at least its pages
	select {
	case y.dirty <- struct{}{}:
	default:
	}
}

func (y *syncer) close() error {
	y.cancel(errClosed)
	<-y.done
	err := y.wal.Sync()
	if err == nil {
		err = y.store.synced.write(y.store.synced.last.Load())
	}
	return errors.Join(err, y.wal.Close(), y.db.Close())
}

func (y *syncer) serve() {
	defer close(y.done)
	for {
		select {
		case <-y.dirty:
		case <-y.ctx.Done():
			return
		}
		// Syncing takes time itself, so half the interval is waited for company.
		pause := time.NewTimer(SyncInterval / 2)
		select {
		case <-pause.C:
		case <-y.ctx.Done():
			pause.Stop()
			return
		}
		if err := y.sync(); err != nil && y.ctx.Err() == nil {
			y.store.logger.Error("state could not be synced", "err", err)
		}
	}
}

func (y *syncer) sync() error {
	if err := failpoint.Inject("store/beforeSync"); err != nil {
		return err
	}
	last := y.store.synced.last.Load()
	if err := y.wal.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", y.wal.Name(), err)
	}
	if err := y.store.synced.write(last); err != nil {
		return err
	}
	if err := failpoint.Inject("store/afterSync"); err != nil {
		return err
	}
	if y.grown.Load() < checkpointBytes {
		return nil
	}
	y.grown.Store(0)
	return y.checkpoint()
}

func (y *syncer) checkpoint() error {
	frames, moved, err := checkpoint(y.ctx, y.db, "PASSIVE")
	if err != nil || frames < resetFrames || frames == moved {
		return y.store.translate(err)
	}
	// Under a steady load the log never ends where the checkpoint does: hold the writer
	// for the little that is left, so that it begins the log anew.
	return y.store.translate(y.store.writer.doAlone(y.ctx, 0, func(tx *tx) error {
		_, _, err := checkpoint(y.ctx, tx.conn, "RESTART")
		return err
	}))
}

// checkpoint returns how many frames the log holds and how many of them were moved.
func checkpoint(ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, mode string) (frames, moved int, err error) {
	var busy int
	err = db.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &frames, &moved)
	return frames, moved, err
}
