// Package store is the embedded database of the daemon: sandbox records, calls and the
// rows of the event journal, in one SQLite file that survives SIGKILL.
//
// One goroutine writes and commits what waits together; a caller of a durable method
// returns after the commit that holds its change, which is written but not yet synced. A
// second goroutine syncs at most 50 ms later, so that power loss costs no more than that.
// Reads use connections of their own and never wait for writes.
//
// What is read back was written by this package, but a disk may damage it: each row carries
// a checksum, and a damaged one is an error that names the file.
package store

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
)

// SyncInterval bounds what power loss can cost: how long a commit may wait for its sync.
const SyncInterval = 50 * time.Millisecond

const (
	fileName = "agentixd.db"
	keyName  = "key"
	lockName = "lock"
	keyBytes = 32
)

// Store is an open state directory. Its methods are safe for concurrent use.
type Store struct {
	path     string // of the database file
	lock     *os.File
	key      []byte
	epoch    int64
	instance string
	logger   *slog.Logger
	outcomes *outcomes
	synced   *synced
	lineage  string
	lost     bool

	reads  *sql.DB
	writer *writer
	syncer *syncer

	closing sync.Once
	closed  error
}

// Open opens the state directory dir, making it if need be. It refuses a directory that
// another daemon has open, naming its process, and one that a newer version wrote.
func Open(ctx context.Context, dir string) (_ *Store, err error) {
	s := &Store{path: filepath.Join(dir, fileName), logger: slog.Default()}
	s.synced = &synced{path: filepath.Join(dir, syncedName)}
	s.outcomes = &outcomes{dir: filepath.Join(dir, outcomesName), limits: DefaultKeepLimits}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open state directory %s: %w", dir, err), s.Close())
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:gosec // the operator's own state directory, here and below
		return nil, err
	}
	if s.lock, err = lockDir(filepath.Join(dir, lockName)); err != nil {
		return nil, err
	}
	if s.key, err = loadKey(filepath.Join(dir, keyName)); err != nil {
		return nil, err
	}
	if err := createFile(s.path); err != nil {
		return nil, err
	}
	if err := checkVersion(ctx, s.path); err != nil {
		return nil, err
	}
	if s.writer, err = openWriter(ctx, s.path); err != nil {
		return nil, err
	}
	if s.lost, err = s.synced.open(ctx, s.writer.conn, s.path); err != nil {
		return nil, s.translate(err)
	}
	if s.epoch, s.instance, err = s.writer.begin(ctx); err != nil {
		return nil, s.translate(err)
	}
	if s.lineage, err = s.synced.begin(ctx, s.writer.conn, s.instance, s.lost); err != nil {
		return nil, s.translate(err)
	}
	if s.reads, err = openDB(s.path, "query_only(1)"); err != nil {
		return nil, err
	}
	s.reads.SetMaxOpenConns(8)
	s.reads.SetMaxIdleConns(2) // each has a cache of its own
	if err := s.loadOutcomes(ctx); err != nil {
		return nil, err
	}
	if s.syncer, err = openSyncer(ctx, s); err != nil {
		return nil, err
	}
	s.writer.start(s.syncer.mark)
	return s, nil
}

// Close ends the writer after what is queued, syncs and unlocks the directory.
func (s *Store) Close() error {
	s.closing.Do(func() {
		var failures []error
		if s.writer != nil {
			s.writer.stop()
		}
		if s.syncer != nil {
			failures = append(failures, s.syncer.close())
		}
		failures = append(failures, s.synced.close())
		if s.reads != nil {
			failures = append(failures, s.reads.Close())
		}
		if s.writer != nil {
			failures = append(failures, s.writer.close())
		}
		failures = append(failures, s.outcomes.close())
		if s.lock != nil {
			failures = append(failures, s.lock.Close())
		}
		s.closed = errors.Join(failures...)
	})
	return s.closed
}

// Epoch is the number of this opening: it grows with each Open.
func (s *Store) Epoch() int64 { return s.epoch }

// Instance is a random name that the state directory keeps for life.
func (s *Store) Instance() string { return s.instance }

// Lineage is a random name that changes when commits were lost: cursors of before are void.
func (s *Store) Lineage() string { return s.lineage }

// Lost reports whether commits were lost with a damaged log, and the operator wants to go on
// without them.
func (s *Store) Lost() bool { return s.lost }

// RuntimeToken is the secret that sandbox id's runtime asks of its callers. It is derived
// from the directory's key, so that it is stored nowhere.
func (s *Store) RuntimeToken(id string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte("runtime-token\x00" + id))
	return hex.EncodeToString(mac.Sum(nil))
}

// loadKey reads the key file or makes it. A key of another length is refused: going on with
// a new one would lock the daemon out of every running sandbox.
func loadKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path) //nolint:gosec // as above
	switch {
	case errors.Is(err, os.ErrNotExist):
		return makeKey(path)
	case err != nil:
		return nil, err
	case len(key) != keyBytes:
		return nil, fmt.Errorf("key file %s is damaged: it has %d bytes, not %d", path, len(key), keyBytes)
	}
	return key, nil
}

func makeKey(path string) ([]byte, error) {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	if err := writeSynced(path+".new", key); err != nil {
		return nil, err
	}
	return key, os.Rename(path+".new", path) //nolint:gosec // as above
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // as above
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// createFile makes an empty database file for the owner's eyes only; SQLite gives its other
// files the same mode.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// errClosed is what a closed store answers.
var errClosed = errs.New(errs.Unavailable, errs.Stopping, "the daemon is stopping")
