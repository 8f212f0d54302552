package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentixd/agentixd/internal/errs"
)

// schemaVersion is kept in PRAGMA user_version. A higher one is refused before anything is
// written; a lower one is brought up by the steps of migrations.
const schemaVersion = 4

// applicationID marks the file as ours ("agtx"), so that a foreign SQLite file is refused.
const applicationID = 0x61677478

// migrations[i] leads from version i to i+1. Times are nanoseconds since the epoch, `sum`
// is a checksum over the row. Tables that calls write have no further index: each would add
// a page to every commit. In `call` and `batch` the blobs come last: scans of the other
// columns then do not read them. The rows of `call` are in the order of acceptance, so that
// the pages that calls write are few, and the newest are found at the end.
var migrations = []string{`
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE sandbox (id TEXT PRIMARY KEY, record BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE call (
	id TEXT PRIMARY KEY, sandbox TEXT NOT NULL, request_hash BLOB NOT NULL, callable TEXT NOT NULL,
	accepted INTEGER NOT NULL, sum INTEGER NOT NULL,
	finished INTEGER, outcome_sum INTEGER, outcome BLOB) WITHOUT ROWID;
CREATE TABLE journal (
	num INTEGER PRIMARY KEY, sandbox TEXT NOT NULL, id BLOB NOT NULL,
	sid TEXT NOT NULL DEFAULT '', cursor INTEGER NOT NULL DEFAULT 0,
	trimmed_seq INTEGER NOT NULL DEFAULT 0, trimmed_batch INTEGER NOT NULL DEFAULT 0,
	deleted INTEGER NOT NULL DEFAULT 0, dropped INTEGER NOT NULL DEFAULT 0);
CREATE TABLE batch (
	num INTEGER PRIMARY KEY, journal INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
	created INTEGER NOT NULL, min_time INTEGER NOT NULL, max_time INTEGER NOT NULL,
	kinds INTEGER NOT NULL, size INTEGER NOT NULL, sum INTEGER NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX batch_seq ON batch (journal, last_seq);
`, `
CREATE TABLE stream (
	journal INTEGER NOT NULL, name TEXT NOT NULL, sid TEXT NOT NULL, cursor INTEGER NOT NULL,
	PRIMARY KEY (journal, name)) WITHOUT ROWID;
`, `
ALTER TABLE call RENAME TO call_2;
CREATE TABLE call (
	num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, sandbox TEXT NOT NULL, request_hash BLOB NOT NULL, callable TEXT NOT NULL,
	accepted INTEGER NOT NULL, deadline INTEGER NOT NULL, encoding TEXT NOT NULL, submitted INTEGER NOT NULL, sum INTEGER NOT NULL,
	state INTEGER NOT NULL, finished INTEGER, error_type TEXT, end_sum INTEGER,
	kept INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0, outcome_sum INTEGER, head BLOB, value BLOB);
`, `
CREATE TABLE template (id TEXT PRIMARY KEY, record BLOB NOT NULL, sum INTEGER NOT NULL);
`}

// goSteps are what a migration does besides its SQL, by the version that it leads to.
var goSteps = map[int]func(ctx context.Context, conn *sql.Conn) error{3: moveCalls}

// openDB opens the file with pragmas added to those that every connection needs.
func openDB(path string, pragmas ...string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for _, p := range append([]string{"busy_timeout(10000)", "trusted_schema(0)", "cell_size_check(1)"}, pragmas...) {
		if mode, found := strings.CutPrefix(p, "mode="); found {
			query.Set("mode", mode)
			continue
		}
		query.Add("_pragma", p)
	}
	name := url.URL{Scheme: "file", Path: abs, RawQuery: query.Encode()}
	return sql.Open("sqlite", name.String())
}

// checkVersion refuses a file that is not ours or that a newer version wrote, and leaves a
// refused one as it is.
func checkVersion(ctx context.Context, path string) error {
	version, application, err := readVersion(ctx, path)
	switch {
	case err != nil:
		return err
	case application != applicationID && (version != 0 || application != 0):
		return fmt.Errorf("%s is not a database of this daemon", path)
	case version > schemaVersion:
		return fmt.Errorf("%s was written by a newer version (schema %d, this one knows up to %d)", path, version, schemaVersion)
	}
	return nil
}

// readVersion reads the header of the file or, if a log belongs to it that may hold a newer
// one, asks SQLite, which then uses the files that are there already.
func readVersion(ctx context.Context, path string) (version, application int64, err error) {
	if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > 0 {
		return askVersion(ctx, path)
	}
	header := make([]byte, 100)
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	n, err := io.ReadFull(f, header)
	if err := errors.Join(ignoreEOF(err), f.Close()); err != nil {
		return 0, 0, err
	}
	if n == 0 {
		return 0, 0, nil // made just now
	}
	if n < len(header) || !strings.HasPrefix(string(header), "SQLite format 3\x00") {
		return 0, 0, fmt.Errorf("%s is damaged, or not a database", path)
	}
	return int64(binary.BigEndian.Uint32(header[60:])), int64(binary.BigEndian.Uint32(header[68:])), nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

func askVersion(ctx context.Context, path string) (version, application int64, err error) {
	db, err := openDB(path, "mode=ro")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRowContext(ctx, "SELECT v.user_version, a.application_id FROM pragma_user_version v, pragma_application_id a").
		Scan(&version, &application)
	return version, application, translate(path, err)
}

// migrate brings the schema up to date, in one transaction.
func migrate(ctx context.Context, conn *sql.Conn) error {
	var version int
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version == schemaVersion {
		return nil
	}
	if err := migrateFrom(ctx, conn, version); err != nil {
		_, _ = conn.ExecContext(ctx, "ROLLBACK")
		return fmt.Errorf("migrate from schema %d: %w", version, err)
	}
	return nil
}

func migrateFrom(ctx context.Context, conn *sql.Conn, version int) error {
	run := func(step string) error {
		_, err := conn.ExecContext(ctx, step)
		return err
	}
	if err := run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for i, step := range migrations[version:] {
		if err := run(step); err != nil {
			return err
		}
		if more := goSteps[version+i+1]; more != nil {
			if err := more(ctx, conn); err != nil {
				return err
			}
		}
	}
	return errors.Join(
		run(fmt.Sprintf("PRAGMA application_id = %d", applicationID)),
		run(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)),
		run("COMMIT"))
}

// countOpening raises the epoch and makes the instance name at the first opening.
func countOpening(ctx context.Context, conn *sql.Conn) (epoch int64, instance string, err error) {
	name := make([]byte, 16)
	if _, err := rand.Read(name); err != nil {
		return 0, "", err
	}
	_, err = conn.ExecContext(ctx, "INSERT INTO meta VALUES ('instance', ?) ON CONFLICT DO NOTHING", hex.EncodeToString(name))
	if err != nil {
		return 0, "", err
	}
	err = conn.QueryRowContext(ctx, "INSERT INTO meta VALUES ('epoch', 1) ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value").
		Scan(&epoch)
	if err != nil {
		return 0, "", err
	}
	err = conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'instance'").Scan(&instance)
	return epoch, instance, err
}

func (s *Store) translate(err error) error { return translate(s.path, err) }

// translate gives the errors of SQLite a kind: a full disk is ResourceExhausted, a damaged
// file is Internal and named. Others keep what they are.
func translate(path string, err error) error {
	var e *sqlite.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	switch e.Code() {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_TRUNCATE:
		return errs.New(errs.ResourceExhausted, errs.LimitExceeded, "the state directory cannot take more data").
			WithMeta("limit", "state_disk").WithCause(err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT_INDEX, sqlite3.SQLITE_IOERR_SHORT_READ:
		return damaged(path, err)
	}
	return err
}

func damaged(path string, cause error) error {
	return errs.New(errs.Internal, errs.InternalFault, "the daemon's state is damaged").
		WithCause(fmt.Errorf("state file %s is damaged: %w", path, cause))
}
