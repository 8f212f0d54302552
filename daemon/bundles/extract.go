package bundles

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentixd/agentixd/internal/errs"
)

// Limits of one bundle.
const (
	maxEntries       = 400000    // files, directories and links
	maxBytes         = 16 << 30  // 16 GiB: all files
	maxPathBytes     = 1024      // a path below nix/
	maxDepth         = 64        // directories in each other
	maxTargetBytes   = 4096      // what a symbolic link says
	maxManifestBytes = 1 << 20   // 1 MiB
	tarOverhead      = 4096      // of one entry in the tar: headers, also long ones, and padding
	maxLinkHops      = 40        // as the kernel has it
	fileModes        = 0o777     // what of a mode is kept
	maxUnixTime      = 1<<32 - 1 // of a file, in seconds: the year 2106
	special          = 0o7000    // setuid, setgid, sticky
	dirMode          = os.FileMode(0o755)
)

// kinds of entries.
const (
	file = 'F'
	dir  = 'D'
	link = 'L'
)

// entry is one path of a bundle.
type entry struct {
	kind    byte
	mode    int64 // of the tar: permission bits
	size    int64 // of a file
	target  string
	skipped bool // a link that leads out of /nix, which is not on the disk
}

// tree is what was extracted. Its paths are relative to nix/.
type tree struct {
	root     *os.Root
	entries  map[string]entry
	bytes    int64
	skipped  int64
	manifest []byte

	// The limits, which tests lower.
	maxEntries int
	maxBytes   int64
}

// extract unpacks a tar below dir/nix. Each rule is checked in memory against what came
// before; that the names stay below dir is held by os.Root once more.
func extract(where string, r io.Reader) (*tree, error) {
	return extractLimited(where, r, maxEntries, maxBytes)
}

func extractLimited(where string, r io.Reader, entries int, size int64) (_ *tree, err error) {
	outer, err := os.OpenRoot(where)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, outer.Close()) }()
	if err := outer.Mkdir(treeName, dirMode); err != nil {
		return nil, err
	}
	root, err := outer.OpenRoot(treeName)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	t := &tree{root: root, entries: map[string]entry{}, maxEntries: entries, maxBytes: size}
	counted := &limitedReader{r: r, left: size + int64(entries)*tarOverhead}
	for archive := tar.NewReader(counted); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return t, t.finish()
		}
		if err != nil {
			return nil, badTar(counted, err)
		}
		if err := t.add(header, archive); err != nil {
			return nil, badTar(counted, err)
		}
	}
}

// limitedReader fails once too much was read.
type limitedReader struct {
	r    io.Reader
	left int64
	err  error // of r
}

// Read reads what is left.
func (l *limitedReader) Read(b []byte) (int, error) {
	if l.left <= 0 {
		l.err = errs.New(errs.ResourceExhausted, errs.LimitExceeded, "the unpacked archive is over the limit").WithMeta("limit", "bundle_bytes")
		return 0, l.err
	}
	n, err := l.r.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err //nolint:wrapcheck // As a reader does.
}

// badTar tells an archive that is wrong from a sender who failed.
func badTar(r *limitedReader, err error) error {
	var known *errs.Error
	switch {
	case errors.As(err, &known):
		return err
	case r.err != nil && errors.As(r.err, &known):
		return r.err
	case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrFieldTooLong), r.err != nil:
		return errs.Invalid("archive", "is no tar, plain or compressed by gzip or zstd, or is cut off: %v", err).WithCause(err)
	}
	return err
}

func refused(name, format string, args ...any) error {
	return errs.Invalid("archive", "%.200q: %s", name, fmt.Sprintf(format, args...))
}

// add takes one entry of the tar.
func (t *tree) add(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if name == "manifest.json" {
		return t.readManifest(h, r)
	}
	name, below := strings.CutPrefix(name, treeName+"/")
	if !below {
		if name == treeName && h.Typeflag == tar.TypeDir {
			return nil
		}
		return refused(h.Name, "is neither manifest.json nor below nix/")
	}
	if h.Typeflag != tar.TypeSymlink && h.Mode&special != 0 { // a link's mode means nothing
		return refused(h.Name, "has mode %#o; setuid, setgid and sticky are refused", h.Mode)
	}
	if err := t.makeParents(h.Name, name); err != nil {
		return err
	}
	before, taken := t.entries[name]
	if taken && (before.kind != dir || h.Typeflag != tar.TypeDir) {
		return refused(h.Name, "comes twice")
	}
	if len(t.entries) >= t.maxEntries {
		return errs.OverLimit("bundle_entries", int64(t.maxEntries), int64(len(t.entries)+1))
	}
	e := entry{mode: h.Mode & fileModes}
	switch h.Typeflag {
	case tar.TypeDir:
		return t.addDir(name, e, taken)
	case tar.TypeReg:
		return t.addFile(name, e, h, r)
	case tar.TypeSymlink:
		return t.addSymlink(name, e, h)
	case tar.TypeLink:
		return t.addLink(name, h)
	}
	return refused(h.Name, "is of type %q; only files, directories and links may be in a bundle", h.Typeflag)
}

// cleanName is a path of the tar without `./` and a slash at the end. Everything else that is
// not the plain form of a path is refused, not repaired.
func cleanName(name string) (string, error) {
	short := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	switch {
	case len(short) > maxPathBytes:
		return "", refused(name, "is longer than %d bytes", maxPathBytes)
	case strings.ContainsRune(short, 0) || !utf8.ValidString(short):
		return "", refused(name, "must be UTF-8 without NUL")
	case short == "" || path.IsAbs(short) || path.Clean(short) != short || short == ".." || strings.HasPrefix(short, "../"):
		return "", refused(name, "must be a plain relative path")
	case strings.Count(short, "/") > maxDepth:
		return "", refused(name, "is more than %d directories deep", maxDepth)
	}
	for part := range strings.SplitSeq(short, "/") {
		if len(part) > 255 {
			return "", refused(name, "has a part of more than 255 bytes")
		}
	}
	return short, nil
}

func (t *tree) readManifest(h *tar.Header, r io.Reader) error {
	switch {
	case h.Typeflag != tar.TypeReg || t.manifest != nil:
		return refused(h.Name, "must be one file")
	case h.Size > maxManifestBytes:
		return errs.OverLimit("bundle_manifest_bytes", maxManifestBytes, h.Size)
	}
	var err error
	t.manifest, err = io.ReadAll(io.LimitReader(r, maxManifestBytes))
	return err //nolint:wrapcheck // badTar looks at it.
}

// makeParents makes the directories above name. None of them may be anything else.
func (t *tree) makeParents(full, name string) error {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		parent := name[:i]
		e, there := t.entries[parent]
		if !there {
			if len(t.entries) >= t.maxEntries {
				return errs.OverLimit("bundle_entries", int64(t.maxEntries), int64(len(t.entries)+1))
			}
			if err := t.addDir(parent, entry{mode: -1}, false); err != nil {
				return err
			}
			continue
		}
		if e.kind != dir {
			return refused(full, "%.200q above it is no directory", parent)
		}
	}
	return nil
}

// addDir makes a directory; its mode counts for the digest and is not applied. One that the
// tar did not name before has mode -1.
func (t *tree) addDir(name string, e entry, there bool) error {
	e.kind = dir
	if !there {
		if err := t.root.Mkdir(name, dirMode); err != nil {
			return err //nolint:wrapcheck // It names the path.
		}
	}
	t.entries[name] = e
	return nil
}

func (t *tree) addFile(name string, e entry, h *tar.Header, r io.Reader) error {
	if h.Size < 0 || h.Size > t.maxBytes-t.bytes {
		return errs.OverLimit("bundle_bytes", t.maxBytes, t.bytes+h.Size)
	}
	f, err := t.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(e.mode)|0o400) //nolint:gosec // Nine bits.
	if err != nil {
		return err //nolint:wrapcheck // It names the path.
	}
	n, err := io.Copy(f, io.LimitReader(r, h.Size))
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = f.Chmod(os.FileMode(e.mode) | 0o400) //nolint:gosec // Nine bits; the umask does not count.
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	at := h.ModTime // compiled Python looks at it
	if at.Unix() < 0 || at.Unix() > maxUnixTime {
		at = time.Unix(0, 0)
	}
	if err := t.root.Chtimes(name, at, at); err != nil {
		return err //nolint:wrapcheck // It names the path.
	}
	t.bytes += n
	e.kind, e.size = file, n
	t.entries[name] = e
	return nil
}

// addSymlink makes a symbolic link, unless it leads out of /nix. What it leads to need not exist.
func (t *tree) addSymlink(name string, e entry, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxTargetBytes || strings.ContainsRune(h.Linkname, 0) {
		return refused(h.Name, "its target must have from 1 to %d bytes without NUL", maxTargetBytes)
	}
	e.kind, e.target = link, h.Linkname
	if _, inside := insideOf(name, h.Linkname); !inside {
		e.skipped = true
		t.skipped++
		t.entries[name] = e
		return nil
	}
	t.entries[name] = e
	return t.root.Symlink(h.Linkname, name) //nolint:wrapcheck // It names the path.
}

// insideOf is what a link's target means, relative to nix/, as far as its text says.
func insideOf(name, target string) (string, bool) {
	full := target
	if !path.IsAbs(target) {
		full = path.Join("/"+treeName, path.Dir(name)) + "/" + target
	}
	full = path.Clean(full)
	if full == "/"+treeName {
		return ".", true
	}
	return strings.CutPrefix(full, "/"+treeName+"/")
}

// addLink makes a hard link to a file that came before.
func (t *tree) addLink(name string, h *tar.Header) error {
	target, err := cleanName(h.Linkname)
	if err != nil {
		return err
	}
	target, below := strings.CutPrefix(target, treeName+"/")
	e, there := t.entries[target]
	if !below || !there || e.kind != file {
		return refused(h.Name, "is a hard link to %.200q, which is no file that came before", h.Linkname)
	}
	// It counts as one more file: what is mounted read-only need not know that they are one.
	if e.size > t.maxBytes-t.bytes {
		return errs.OverLimit("bundle_bytes", t.maxBytes, t.bytes+e.size)
	}
	t.bytes += e.size
	t.entries[name] = e
	return t.root.Link(target, name) //nolint:wrapcheck // It names the path.
}

// finish refuses a tar without a tree.
func (t *tree) finish() error {
	if len(t.entries) == 0 {
		return errs.Invalid("archive", "holds nothing below nix/")
	}
	return nil
}

// isProgram tells whether a path is, through links inside of /nix, a file that may be run.
func (t *tree) isProgram(name string) bool {
	for range maxLinkHops {
		next, e := t.step(name)
		if next == "" {
			return e.kind == file && e.mode&0o111 != 0
		}
		name = next
	}
	return false
}

// step follows the first symbolic link in a path; next is empty if there is none.
func (t *tree) step(name string) (next string, at entry) {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		e, there := t.entries[name[:i]]
		if !there || e.skipped {
			return "", entry{}
		}
		if e.kind == link {
			to, _ := insideOf(name[:i], e.target)
			return path.Join(to, name[i:]), e
		}
		at = e
	}
	return "", at
}
