package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync/atomic"

	"github.com/agentixd/agentixd/internal/errs"
)

// syncedName is the file that tells up to which batch the database was synced. SQLite takes
// the first damaged page of its log for the log's end, and all commits behind it for never
// made; with this file a log that ends too early is noticed.
const syncedName = "agentixd.synced"

type synced struct {
	path    string
	file    *os.File
	last    atomic.Uint64 // the newest batch that was committed
	written uint64
}

// note tells of a batch that was committed.
func (y *synced) note(batch uint64) {
	for {
		last := y.last.Load()
		if batch <= last || y.last.CompareAndSwap(last, batch) {
			return
		}
	}
}

// write is called once everything up to batch was synced. It need not be synced itself: an
// older number is true as well.
func (y *synced) write(batch uint64) error {
	if y.file == nil || batch <= y.written {
		return nil
	}
	if _, err := y.file.WriteAt([]byte(syncedLine(batch)), 0); err != nil {
		return fmt.Errorf("write %s: %w", y.path, err)
	}
	y.written = batch
	return nil
}

func syncedLine(batch uint64) string {
	number := fmt.Sprintf("%020d", batch)
	return fmt.Sprintf("%s %08x\n", number, crc32.Checksum([]byte(number), castagnoli))
}

func (y *synced) close() error {
	if y.file == nil {
		return nil
	}
	return y.file.Close()
}

// open compares the file with the database, before anything is written there. lost tells that the file was
// removed: commits were lost, and the operator wants to go on without them.
func (y *synced) open(ctx context.Context, conn *sql.Conn, database string) (lost bool, err error) {
	before, exists, err := y.read()
	if err != nil {
		return false, err
	}
	var tables int
	if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'batch'").Scan(&tables); err != nil {
		return false, err
	}
	have := uint64(0)
	if tables > 0 {
		if have, err = lastBatch(ctx, conn); err != nil {
			return false, err
		}
		if lost, err = marked(ctx, conn); err != nil {
			return false, err
		}
		lost = lost && !exists
	}
	if have < before {
		return false, errs.New(errs.Internal, errs.InternalFault, "the daemon's state is damaged").WithCause(fmt.Errorf(
			"state file %s-wal is damaged: batches up to %d were synced, and it ends at %d; what was behind is lost. To go on without it, remove %s",
			database, before, have, y.path))
	}
	y.last.Store(have)
	if y.file, err = os.OpenFile(y.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return false, err
	}
	_, err = y.file.WriteAt([]byte(syncedLine(before)), 0) // there before the database says that it must be
	return lost, err
}

// read returns 0 for a file that is not there, or empty: made just before the power went.
func (y *synced) read() (batch uint64, exists bool, err error) {
	data, err := os.ReadFile(y.path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil || len(data) == 0 {
		return 0, true, err
	}
	if _, err := fmt.Sscanf(string(data), "%d", &batch); err != nil || string(data) != syncedLine(batch) {
		return 0, true, fmt.Errorf("state file %s is damaged: it tells how far the log was synced; to go on without it, remove it", y.path)
	}
	return batch, true, nil
}

// marked reports whether the database knows of such a file.
func marked(ctx context.Context, conn *sql.Conn) (bool, error) {
	var rows int
	err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM meta WHERE name = 'synced'").Scan(&rows)
	return rows > 0, err
}

// begin notes in the database that there is such a file. If commits were lost, it gives all
// cursors another owner, so that none is taken for that of an event which came later.
func (y *synced) begin(ctx context.Context, conn *sql.Conn, instance string, lost bool) (lineage string, err error) {
	if _, err := conn.ExecContext(ctx, "INSERT INTO meta VALUES ('synced', 1) ON CONFLICT DO NOTHING"); err != nil {
		return "", err
	}
	if lost {
		name := make([]byte, 16)
		if _, err := rand.Read(name); err != nil {
			return "", err
		}
		if _, err := conn.ExecContext(ctx, "UPDATE journal SET id = randomblob(8)"); err != nil {
			return "", err
		}
		_, err := conn.ExecContext(ctx, "INSERT INTO meta VALUES ('lineage', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", hex.EncodeToString(name))
		if err != nil {
			return "", err
		}
	}
	err = conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'lineage'").Scan(&lineage)
	if errors.Is(err, sql.ErrNoRows) {
		return instance, nil
	}
	return lineage, err
}
