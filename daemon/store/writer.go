package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/agentixd/agentixd/internal/failpoint"
)

// groupLimit is how many operations one commit takes at most.
const groupLimit = 512

// operation is one change. run may be called again, in a transaction of its own, when
// another operation of its group failed.
type operation struct {
	run   func(tx *tx) error
	alone bool // outside any transaction
	bytes int  // roughly what it adds to the write-ahead log
	done  func(error)
}

// writer owns the only connection that writes.
type writer struct {
	path  string
	db    *sql.DB
	conn  *sql.Conn
	tx    *tx
	queue chan *operation

	stopOnce sync.Once
	stopping chan struct{} // closed by stop
	finished chan struct{} // closed once the goroutine has ended
	started  bool
}

// tx runs statements, each prepared once for the writer's life.
type tx struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func (t *tx) stmt(query string) (*sql.Stmt, error) {
	if s := t.stmts[query]; s != nil {
		return s, nil
	}
	s, err := t.conn.PrepareContext(context.Background(), query)
	if err == nil {
		t.stmts[query] = s
	}
	return s, err
}

// exec returns how many rows changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	s, err := t.stmt(query) //nolint:sqlclosecheck // kept for the writer's life
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func openWriter(ctx context.Context, path string) (*writer, error) {
	db, err := openDB(path, "auto_vacuum(incremental)", "journal_mode(wal)", "synchronous(normal)",
		"wal_autocheckpoint(0)", "journal_size_limit(67108864)")
	if err != nil {
		return nil, err
	}
	w := &writer{path: path, db: db, queue: make(chan *operation, groupLimit), stopping: make(chan struct{}), finished: make(chan struct{})}
	if w.conn, err = db.Conn(ctx); err != nil {
		return nil, errors.Join(translate(path, err), db.Close())
	}
	w.tx = &tx{conn: w.conn, stmts: map[string]*sql.Stmt{}}
	return w, nil
}

func (w *writer) begin(ctx context.Context) (epoch int64, instance string, err error) {
	if err := migrate(ctx, w.conn); err != nil {
		return 0, "", err
	}
	return countOpening(ctx, w.conn)
}

// start begins to serve the queue; committed is told how many bytes each commit added.
func (w *writer) start(committed func(bytes int)) {
	w.started = true
	go w.serve(committed) // ends after stop, once the queue is empty
}

// stop refuses new operations and waits until those in the queue are done.
func (w *writer) stop() {
	w.stopOnce.Do(func() { close(w.stopping) })
	if w.started {
		<-w.finished
	}
}

func (w *writer) close() error {
	var failures []error
	for _, s := range w.tx.stmts {
		failures = append(failures, s.Close())
	}
	return errors.Join(append(failures, w.conn.Close(), w.db.Close())...)
}

// submit queues op; its done is called once, after the commit, from the writer's goroutine
// or, when the store is closed, from the caller's.
func (w *writer) submit(op *operation) {
	select {
	case <-w.stopping:
		op.done(errClosed)
		return
	default:
	}
	select {
	case w.queue <- op:
	case <-w.stopping:
		op.done(errClosed)
	}
}

// do runs an operation and waits for its commit. When ctx ends first the change may still happen.
func (w *writer) do(ctx context.Context, bytes int, run func(*tx) error) error {
	return w.wait(ctx, &operation{run: run, bytes: bytes})
}

// doAlone is do outside any transaction.
func (w *writer) doAlone(ctx context.Context, bytes int, run func(*tx) error) error {
	return w.wait(ctx, &operation{run: run, bytes: bytes, alone: true})
}

func (w *writer) wait(ctx context.Context, op *operation) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	result := make(chan error, 1)
	op.done = func(err error) { result <- err }
	w.submit(op)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.finished:
		select { // it may have been the last one committed
		case err := <-result:
			return err
		default:
			return errClosed
		}
	}
}

func (w *writer) serve(committed func(int)) {
	defer close(w.finished)
	group := make([]*operation, 0, groupLimit)
	for {
		select {
		case op := <-w.queue:
			group = w.gather(append(group[:0], op))
		case <-w.stopping:
			if group = w.gather(group[:0]); len(group) == 0 {
				return
			}
		}
		w.commitGroup(group, committed)
		clear(group)
	}
}

// gather adds what waits in the queue already.
func (w *writer) gather(group []*operation) []*operation {
	for len(group) < groupLimit {
		select {
		case op := <-w.queue:
			group = append(group, op)
		default:
			return group
		}
	}
	return group
}

// commitGroup commits the group at once or, if any of it fails, each by itself, so that
// only what is wrong fails.
func (w *writer) commitGroup(group []*operation, committed func(int)) {
	together := group[:0:0]
	for _, op := range group {
		if op.alone {
			w.flush(together, committed)
			together = together[:0]
			err := translate(w.path, op.run(w.tx))
			if err == nil {
				committed(op.bytes)
			}
			op.done(err)
			continue
		}
		together = append(together, op)
	}
	w.flush(together, committed)
}

func (w *writer) flush(group []*operation, committed func(int)) {
	if len(group) == 0 {
		return
	}
	err := translate(w.path, w.commit(group))
	if err != nil && len(group) > 1 {
		for _, op := range group {
			w.flush([]*operation{op}, committed)
		}
		return
	}
	if err == nil {
		bytes := 0
		for _, op := range group {
			bytes += op.bytes
		}
		committed(bytes)
		err = failpoint.Inject("store/afterCommit") // done, and yet an error
	}
	for _, op := range group {
		op.done(err)
	}
}

func (w *writer) commit(group []*operation) (err error) {
	if _, err := w.tx.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = w.tx.exec("ROLLBACK") // SQLite may have rolled back itself
		}
	}()
	for _, op := range group {
		if err := op.run(w.tx); err != nil {
			return err
		}
	}
	if err := failpoint.Inject("store/beforeCommit"); err != nil {
		return err
	}
	if _, err := w.tx.exec("COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
