// Package bundles keeps bundles: trees with a Python interpreter and code that sandboxes get
// mounted read-only at /nix. A bundle comes as a tar from a client, and every byte of that is
// hostile: it is extracted below one directory by rules that know no way out of it, bounded,
// and named by the digest of what came, whatever it says of itself.
package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Names in the cache. One that begins with a dot is being made or removed.
const (
	infoName    = "bundle.json"
	treeName    = "nix"
	importFrom  = ".import-"
	trashPrefix = ".trash-"
)

// DigestDigits is the length of a digest: SHA-256 in hexadecimal digits.
const DigestDigits = 64

// Bundle is what is known of one bundle.
type Bundle struct {
	Digest string `json:"digest"` // of the tree, as the public protocol computes it; 64 hexadecimal digits
	// Title is what the bundle calls itself. Not to be trusted.
	Title        string    `json:"title,omitempty"`
	SizeBytes    int64     `json:"size_bytes"` // of all files
	Entries      int64     `json:"entries"`
	SkippedLinks int64     `json:"skipped_links,omitempty"` // symbolic links that lead out of /nix
	Server       bool      `json:"server"`                  // brings its own runtime server
	Python       string    `json:"python,omitempty"`        // path of its interpreter inside a sandbox
	Created      time.Time `json:"created"`
}

// Store is the cache of bundles in one directory.
type Store struct {
	dir string

	mu sync.Mutex // held while a bundle appears or goes
}

// Open opens the cache and removes what a killed daemon left half-made.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open bundles: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open bundles: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), importFrom) || strings.HasPrefix(e.Name(), trashPrefix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("open bundles: %w", err)
			}
		}
	}
	return &Store{dir: dir}, nil
}

func notFound(digest string) error {
	return errs.New(errs.NotFound, errs.BundleNotFound, "no bundle %s; import it first", digest).WithMeta("bundle", digest)
}

func validDigest(digest string) bool {
	return len(digest) == DigestDigits && strings.Trim(digest, "0123456789abcdef") == ""
}

// Get returns one bundle; NotFound (BUNDLE_NOT_FOUND).
func (s *Store) Get(digest string) (Bundle, error) {
	if !validDigest(digest) {
		return Bundle{}, notFound(digest)
	}
	data, err := os.ReadFile(filepath.Join(s.dir, digest, infoName))
	if errors.Is(err, fs.ErrNotExist) {
		return Bundle{}, notFound(digest)
	}
	if err != nil {
		return Bundle{}, fmt.Errorf("read bundle %s: %w", digest, err)
	}
	var b Bundle
	if err := json.Unmarshal(data, &b); err != nil || b.Digest != digest {
		return Bundle{}, fmt.Errorf("read bundle %s: its %s is damaged; delete and import it again", digest, infoName)
	}
	return b, nil
}

// List returns all bundles in the order of their digests.
func (s *Store) List() ([]Bundle, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list bundles: %w", err)
	}
	var all []Bundle
	for _, e := range entries {
		if !validDigest(e.Name()) {
			continue
		}
		b, err := s.Get(e.Name())
		switch {
		case errs.Is(err, errs.NotFound): // it goes right now
		case err != nil:
			all = append(all, Bundle{Digest: e.Name()}) // damaged; shown, so that it can be deleted
		default:
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b Bundle) int { return strings.Compare(a.Digest, b.Digest) })
	return all, nil
}

// Open opens a bundle for a sandbox. The caller closes the descriptor. NotFound (BUNDLE_NOT_FOUND).
func (s *Store) Open(digest string) (*providers.Bundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.Get(digest)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, digest, treeName)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open bundle %s: %w", digest, err)
	}
	return &providers.Bundle{Dir: providers.Dir{Path: path, FD: fd}, Server: b.Server, Python: b.Python}, nil
}

// Delete removes a bundle, unless user names what has it: a sandbox or a template. A sandbox that is about to
// be made either is named by user already, or finds no bundle when it opens it.
func (s *Store) Delete(_ context.Context, digest string, user func(digest string) (kind, id string)) error {
	if !validDigest(digest) {
		return notFound(digest)
	}
	trash, err := s.takeAway(digest, user)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("delete bundle %s: %w", digest, err)
	}
	return nil
}

func (s *Store) takeAway(digest string, user func(string) (string, string)) (trash string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind, id := user(digest); id != "" {
		return "", errs.New(errs.FailedPrecondition, errs.BundleInUse, "bundle %s is in use by %s %s; delete that first", digest, kind, id).
			WithMeta("bundle", digest).WithMeta(kind, id)
	}
	trash, err = os.MkdirTemp(s.dir, trashPrefix)
	if err != nil {
		return "", fmt.Errorf("delete bundle %s: %w", digest, err)
	}
	err = os.Rename(filepath.Join(s.dir, digest), filepath.Join(trash, digest))
	if errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(trash)
		return "", notFound(digest)
	}
	if err != nil {
		return "", fmt.Errorf("delete bundle %s: %w", digest, err)
	}
	return trash, nil
}
