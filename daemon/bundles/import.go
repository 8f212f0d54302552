package bundles

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
)

const maxTitleBytes = 256

// Import takes a bundle as a tar, plain or compressed by gzip or zstd. If claimed is not empty,
// it must be the digest of what came. The same bundle again is no error.
func (s *Store) Import(ctx context.Context, claimed string, archive io.Reader) (_ Bundle, err error) {
	if claimed = strings.TrimPrefix(claimed, "sha256:"); claimed != "" && !validDigest(claimed) {
		return Bundle{}, errs.Invalid("header.digest", "must be empty or sha256:, then %d hexadecimal digits", DigestDigits)
	}
	dir, err := os.MkdirTemp(s.dir, importFrom)
	if err != nil {
		return Bundle{}, fmt.Errorf("import bundle: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plain, err := decompress(contextReader{ctx, archive})
	if err != nil {
		return Bundle{}, err
	}
	defer plain.Close()
	tree, err := extract(dir, plain)
	if err != nil {
		return Bundle{}, importError(ctx, err)
	}
	bundle, err := tree.describe(filepath.Join(dir, treeName))
	if err != nil {
		return Bundle{}, err
	}
	if claimed != "" && claimed != bundle.Digest {
		return Bundle{}, errs.Invalid("header.digest", "is %s, but what came has the digest %s", claimed, bundle.Digest)
	}
	bundle.Created = time.Now().UTC()
	return s.keep(dir, bundle)
}

// importError is the caller's fault if it is one of the archive's; a full disk is not.
func importError(ctx context.Context, err error) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known):
		return err
	case context.Cause(ctx) != nil:
		return fmt.Errorf("import bundle: %w", context.Cause(ctx))
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return errs.New(errs.ResourceExhausted, errs.LimitExceeded, "the disk of the daemon's state directory is full").WithCause(err).WithMeta("limit", "disk")
	}
	return fmt.Errorf("import bundle: %w", err)
}

// keep gives an extracted bundle its name, unless it is there already. What is written is on
// the disk before the name is: a power loss leaves no half of a bundle.
func (s *Store) keep(dir string, b Bundle) (Bundle, error) {
	if have, err := s.Get(b.Digest); err == nil {
		return have, nil
	}
	data, err := json.Marshal(b)
	if err != nil {
		return Bundle{}, fmt.Errorf("encode bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, infoName), data, 0o600); err != nil {
		return Bundle{}, fmt.Errorf("import bundle: %w", err)
	}
	if err := syncFS(dir); err != nil {
		return Bundle{}, fmt.Errorf("import bundle: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = os.Rename(dir, filepath.Join(s.dir, b.Digest))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) { // another import was faster
		return s.Get(b.Digest)
	}
	if err != nil {
		return Bundle{}, fmt.Errorf("import bundle: %w", err)
	}
	return b, nil
}

func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// describe makes the bundle's record of an extracted tree; it refuses one without a server and
// without a Python.
func (t *tree) describe(root string) (Bundle, error) {
	digest, err := t.digest(root)
	if err != nil {
		return Bundle{}, fmt.Errorf("import bundle: %w", err)
	}
	b := Bundle{Digest: digest, SizeBytes: t.bytes, Entries: int64(len(t.entries)), SkippedLinks: t.skipped, Title: t.title()}
	b.Server = t.isProgram("runtime/bootstrap.sh")
	for _, python := range []string{"runtime/venv/bin/python", "runtime/venv/bin/python3", "runtime/bin/python3"} {
		if t.isProgram(python) {
			b.Python = "/nix/" + python
			break
		}
	}
	if !b.Server && b.Python == "" {
		return Bundle{}, errs.Invalid("archive", "holds neither nix/runtime/bootstrap.sh nor nix/runtime/venv/bin/python, with permission to be run")
	}
	return b, nil
}

// title is name:tag of the manifest, bounded and without what could steer a terminal.
func (t *tree) title() string {
	var m struct{ Name, Tag string }
	if json.Unmarshal(t.manifest, &m) != nil || m.Name == "" {
		return ""
	}
	title := m.Name
	if m.Tag != "" {
		title += ":" + m.Tag
	}
	title = strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, title)
	return title[:min(len(title), maxTitleBytes)]
}

// decompress reads gzip and zstd by their first bytes.
func decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err //nolint:wrapcheck // The sender's.
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, errs.Invalid("archive", "is no gzip: %v", err)
		}
		return plain, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		const window = 128 << 20 // 128 MiB
		plain, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return nil, errs.Invalid("archive", "is no zstd: %v", err)
		}
		return plain.IOReadCloser(), nil
	}
	return io.NopCloser(buffered), nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context //nolint:containedctx // A running import.
	r   io.Reader
}

// Read reads unless the context has ended.
func (r contextReader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(b) //nolint:wrapcheck // As a reader does.
}
