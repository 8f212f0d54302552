package bundles

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
)

// item is one entry of a tar; its type is a file's if it has none.
type item struct {
	name, body, link string
	kind             byte
	mode             int64
}

func tarOf(t testing.TB, items ...item) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Typeflag: i.kind, Linkname: i.link, Mode: i.mode, ModTime: time.Unix(1700000000, 0)}
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(i.body))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, i.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// good is a small bundle, and what comes with it.
func good(more ...item) []item {
	return append([]item{
		{name: "manifest.json", body: `{"name": "demo", "tag": "1\u001b", "digest": "sha256:0000"}`},
		{name: "nix/runtime/", kind: tar.TypeDir},
		{name: "nix/runtime/venv/bin/python", kind: tar.TypeSymlink, link: "../../python/bin/python3", mode: 0o777},
		{name: "nix/runtime/python/bin/python3", body: "#!interpreter"},
	}, more...)
}

func open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func nobody(string) (kind, id string) { return "", "" }

// files lists what is below a directory.
func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestImport(t *testing.T) {
	s := open(t)
	data := tarOf(t, good(
		item{name: "nix/lib/a.so", body: "library", mode: 0o644},
		item{name: "nix/lib/b.so", kind: tar.TypeLink, link: "nix/lib/a.so"},
		item{name: "nix/out", kind: tar.TypeSymlink, link: "/etc/ssl", mode: 0o777},
		item{name: "nix/in", kind: tar.TypeSymlink, link: "/nix/lib", mode: 0o777},
	)...)
	b, err := s.Import(t.Context(), "", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if b.Title != "demo:1?" || b.Server || b.Python != "/nix/runtime/venv/bin/python" || b.SizeBytes != 13+2*7 || b.SkippedLinks != 1 || b.Created.IsZero() {
		t.Errorf("bundle = %+v", b)
	}
	opened, err := s.Open(b.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(opened.Dir.FD) //nolint:errcheck // a directory
	root := opened.Dir.Path
	info, err := os.Stat(root + "/lib/b.so")
	if err != nil || info.Mode() != 0o644 || info.ModTime().Unix() != 1700000000 {
		t.Errorf("hard link: %v, %v", info, err)
	}
	if got, err := os.Readlink(root + "/in"); err != nil || got != "/nix/lib" {
		t.Errorf("link inside: %q, %v", got, err)
	}
	if _, err := os.Lstat(root + "/out"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link that leads out is there: %v", err)
	}

	// The same again, compressed, with and without the right claim.
	var zipped, zstded bytes.Buffer
	g := gzip.NewWriter(&zipped)
	z, err := zstd.NewWriter(&zstded)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for claim, r := range map[string]io.Reader{"sha256:" + b.Digest: &zipped, b.Digest: &zstded} {
		if again, err := s.Import(t.Context(), claim, r); err != nil || again != b {
			t.Errorf("again: %+v, %v", again, err)
		}
	}
	if list, err := s.List(); err != nil || len(list) != 1 || list[0] != b {
		t.Errorf("list = %+v, %v", list, err)
	}
}

// TestDigestIsComputed: the name is made from what came, a wrong claim is refused, and other
// content, modes or links have other names.
func TestDigestIsComputed(t *testing.T) {
	s := open(t)
	if _, err := s.Import(t.Context(), strings.Repeat("0", 64), bytes.NewReader(tarOf(t, good()...))); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("a wrong claim: %v, want InvalidArgument", err)
	}
	if _, err := s.Import(t.Context(), "../../etc", bytes.NewReader(tarOf(t, good()...))); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("no digest: %v, want InvalidArgument", err)
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	seen := map[string]string{}
	for name, items := range map[string][]item{
		"plain":   good(),
		"file":    good(item{name: "nix/x", body: "1"}),
		"content": good(item{name: "nix/x", body: "2"}),
		"mode":    good(item{name: "nix/x", body: "1", mode: 0o644}),
		"link":    good(item{name: "nix/x", kind: tar.TypeSymlink, link: "1"}),
		"dir":     good(item{name: "nix/x", kind: tar.TypeDir}),
	} {
		b, err := s.Import(t.Context(), "", bytes.NewReader(tarOf(t, items...)))
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[b.Digest]; taken {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[b.Digest] = name
	}
	// By hand, as the public protocol says.
	b, err := s.Import(t.Context(), "", bytes.NewReader(tarOf(t, item{name: "nix/runtime/bootstrap.sh", body: "hi"})))
	// printf 'runtime\0493\0D\0runtime/bootstrap.sh\0493\0F\02\0hi' | sha256sum
	const want = "6fb06f0f008874b717e8eab788d1e6664116bd6093037e161b5c98e1a14aec9a"
	if err != nil || b.Digest != want || !b.Server {
		t.Errorf("%+v, %v; want digest %s", b, err, want)
	}
}

// TestR10_HostileBundles: each is refused with a clear error, and leaves nothing inside or out.
func TestR10_HostileBundles(t *testing.T) {
	outside := t.TempDir()
	deep := "nix/" + strings.Repeat("d/", 70) + "f"
	for name, items := range map[string][]item{
		"parent":               good(item{name: "nix/../../evil", body: "x"}),
		"parent at once":       good(item{name: "../evil", body: "x"}),
		"dots inside":          good(item{name: "nix/a/./b", body: "x"}),
		"double slash":         good(item{name: "nix//b", body: "x"}),
		"absolute":             good(item{name: "/nix/evil", body: "x"}),
		"beside nix":           good(item{name: "etc/passwd", body: "x"}),
		"nix is a file":        {{name: "nix", body: "x"}},
		"nix is a link":        {{name: "nix", kind: tar.TypeSymlink, link: outside}, {name: "nix/evil", body: "x"}},
		"through a link":       good(item{name: "nix/l", kind: tar.TypeSymlink, link: "runtime"}, item{name: "nix/l/evil", body: "x"}),
		"through a link out":   good(item{name: "nix/l", kind: tar.TypeSymlink, link: outside}, item{name: "nix/l/evil", body: "x"}),
		"over a link":          good(item{name: "nix/l", kind: tar.TypeSymlink, link: "runtime"}, item{name: "nix/l", body: "x"}),
		"over a directory":     good(item{name: "nix/runtime", kind: tar.TypeSymlink, link: outside}),
		"file below a file":    good(item{name: "nix/f", body: "x"}, item{name: "nix/f/evil", body: "x"}),
		"twice":                good(item{name: "nix/f", body: "x"}, item{name: "nix/f", body: "y"}),
		"hard link out":        good(item{name: "nix/h", kind: tar.TypeLink, link: "/etc/passwd"}),
		"hard link up":         good(item{name: "nix/h", kind: tar.TypeLink, link: "../../etc/passwd"}),
		"hard link to a link":  good(item{name: "nix/l", kind: tar.TypeSymlink, link: "x"}, item{name: "nix/h", kind: tar.TypeLink, link: "nix/l"}),
		"hard link to later":   good(item{name: "nix/h", kind: tar.TypeLink, link: "nix/later"}, item{name: "nix/later", body: "x"}),
		"character device":     good(item{name: "nix/d", kind: tar.TypeChar}),
		"block device":         good(item{name: "nix/d", kind: tar.TypeBlock}),
		"pipe":                 good(item{name: "nix/d", kind: tar.TypeFifo}),
		"setuid":               good(item{name: "nix/s", body: "x", mode: 0o4755}),
		"setgid directory":     good(item{name: "nix/s", kind: tar.TypeDir, mode: 0o2755}),
		"deep":                 good(item{name: deep, body: "x"}),
		"long":                 good(item{name: "nix/" + strings.Repeat("x", 300), body: "x"}),
		"longer":               good(item{name: "nix/" + strings.Repeat("x/", 600) + "x", body: "x"}),
		"not UTF-8":            good(item{name: "nix/\xff", body: "x"}),
		"two manifests":        good(item{name: "manifest.json", body: "{}"}),
		"manifest is a link":   {{name: "manifest.json", kind: tar.TypeSymlink, link: "/etc/passwd"}},
		"no interpreter":       {{name: "nix/x", body: "x"}},
		"interpreter is a dir": {{name: "nix/runtime/venv/bin/python", kind: tar.TypeDir}},
		"interpreter outside":  {{name: "nix/runtime/venv/bin/python", kind: tar.TypeSymlink, link: "/usr/bin/python3"}},
		"links in a ring": {
			{name: "nix/runtime/bootstrap.sh", kind: tar.TypeSymlink, link: "b"}, {name: "nix/runtime/b", kind: tar.TypeSymlink, link: "bootstrap.sh"},
		},
		"server without x": {{name: "nix/runtime/bootstrap.sh", body: "x", mode: 0o644}},
		"nothing":          {},
	} {
		parent := t.TempDir()
		s, err := Open(filepath.Join(parent, "cache"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Import(t.Context(), "", bytes.NewReader(tarOf(t, items...)))
		var known *errs.Error
		if !errors.As(err, &known) || known.Kind != errs.InvalidArgument || len(known.Violations) != 1 || known.Violations[0].Field != "archive" {
			t.Errorf("%s: %v, want InvalidArgument about the archive", name, err)
		}
		if got := files(t, parent); len(got) != 2 {
			t.Errorf("%s: left %q", name, got)
		}
	}
	if got := files(t, outside); len(got) != 1 {
		t.Errorf("written outside: %q", got)
	}
	for name, data := range map[string][]byte{
		"rubbish": bytes.Repeat([]byte("no tar "), 1000), "cut": tarOf(t, good()...)[:1500], "bad gzip": {0x1f, 0x8b, 1, 2, 3}, "bad zstd": {0x28, 0xb5, 0x2f, 0xfd, 9, 9, 9},
	} {
		s := open(t)
		if _, err := s.Import(t.Context(), "", bytes.NewReader(data)); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
}

// TestR12_BundleLimits: each limit by its value, and the error names it.
func TestR12_BundleLimits(t *testing.T) {
	if maxEntries != 400000 || maxBytes != 17179869184 || maxManifestBytes != 1048576 || maxPathBytes != 1024 {
		t.Errorf("limits are %d, %d, %d, %d", maxEntries, int64(maxBytes), maxManifestBytes, maxPathBytes)
	}
	for name, tt := range map[string]struct {
		items   []item
		entries int
		size    int64
		limit   string
	}{
		"as many entries as fit":    {[]item{{name: "nix/a/b", body: "x"}, {name: "nix/a/c", body: "x"}}, 3, 100, ""},
		"an entry too many":         {[]item{{name: "nix/a/b", body: "x"}, {name: "nix/a/c", body: "x"}}, 2, 100, "bundle_entries"},
		"a directory too many":      {[]item{{name: "nix/a/b/c/d", body: "x"}}, 2, 100, "bundle_entries"},
		"as many bytes as fit":      {[]item{{name: "nix/a", body: "12345"}, {name: "nix/b", body: "12345"}}, 9, 10, ""},
		"a byte too many":           {[]item{{name: "nix/a", body: "12345"}, {name: "nix/b", body: "123456"}}, 9, 10, "bundle_bytes"},
		"hard links count":          {[]item{{name: "nix/a", body: "12345"}, {name: "nix/b", kind: tar.TypeLink, link: "nix/a"}}, 9, 9, "bundle_bytes"},
		"directories for ever":      {repeated(item{name: "nix/a", kind: tar.TypeDir}, 100), 2, 10, "bundle_bytes"},
		"a large manifest":          {[]item{{name: "manifest.json", body: strings.Repeat(" ", 1048577)}}, 9, 1 << 30, "bundle_manifest_bytes"},
		"a manifest that just fits": {[]item{{name: "manifest.json", body: strings.Repeat(" ", 1048576)}, {name: "nix/a", body: "x"}}, 9, 1 << 30, ""},
	} {
		_, err := extractLimited(t.TempDir(), bytes.NewReader(tarOf(t, tt.items...)), tt.entries, tt.size)
		var known *errs.Error
		switch {
		case tt.limit == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.limit != "" && (!errors.As(err, &known) || known.Kind != errs.ResourceExhausted || known.Metadata["limit"] != tt.limit):
			t.Errorf("%s: %v, want the limit %s", name, err, tt.limit)
		}
	}
	// A sparse file says that it is large; a bomb is.
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "nix/zeros", Mode: 0o644, Size: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	for range 1024 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	plain, err := decompress(&bomb)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := extractLimited(t.TempDir(), plain, 10, 1<<20); !errs.Is(err, errs.ResourceExhausted) {
		t.Errorf("a bomb: %v", err)
	}
}

func repeated(i item, n int) []item {
	all := make([]item, n)
	for k := range all {
		all[k] = i
	}
	return all
}

// TestDelete: one in use is kept; what is deleted is gone; many at once do no harm.
func TestDelete(t *testing.T) {
	s := open(t)
	b, err := s.Import(t.Context(), "", bytes.NewReader(tarOf(t, good()...)))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Delete(t.Context(), b.Digest, func(digest string) (string, string) { return "sandbox", "user-of-" + digest[:4] })
	var known *errs.Error
	if !errors.As(err, &known) || known.Reason != errs.BundleInUse || known.Metadata["sandbox"] != "user-of-"+b.Digest[:4] {
		t.Errorf("in use: %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Delete(t.Context(), b.Digest, nobody); err != nil && !errs.Is(err, errs.NotFound) {
				t.Errorf("delete: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := s.Import(t.Context(), "", bytes.NewReader(tarOf(t, good()...))); err != nil && !errs.Is(err, errs.NotFound) {
				t.Errorf("import: %v", err)
			}
		})
		wg.Go(func() {
			if opened, err := s.Open(b.Digest); err == nil {
				_ = unix.Close(opened.Dir.FD)
			} else if !errs.Is(err, errs.NotFound) {
				t.Errorf("open: %v", err)
			}
		})
	}
	wg.Wait()
	if err := s.Delete(t.Context(), b.Digest, nobody); err != nil && !errs.Is(err, errs.NotFound) {
		t.Fatal(err)
	}
	for _, digest := range []string{b.Digest, "", "..", "../../etc", strings.Repeat("z", 64)} {
		if _, err := s.Get(digest); !errs.Is(err, errs.NotFound) {
			t.Errorf("get %q: %v", digest, err)
		}
		if err := s.Delete(t.Context(), digest, nobody); !errs.Is(err, errs.NotFound) {
			t.Errorf("delete %q: %v", digest, err)
		}
		if _, err := s.Open(digest); !errs.Is(err, errs.NotFound) {
			t.Errorf("open %q: %v", digest, err)
		}
	}
	if got := files(t, s.dir); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
}

// TestR9_HalfMadeBundles: what a killed daemon left is removed by the next.
func TestR9_HalfMadeBundles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".import-1/nix/x", ".trash-2/y/nix"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
}

// TestImportEnds: a sender who fails or leaves ends the import, and nothing stays.
func TestImportEnds(t *testing.T) {
	s := open(t)
	lost := errs.New(errs.Cancelled, errs.CallerLeft, "the caller left")
	data := tarOf(t, good(item{name: "nix/big", body: strings.Repeat("x", 1<<20)})...)
	if _, err := s.Import(t.Context(), "", io.MultiReader(bytes.NewReader(data[:len(data)/2]), failing{lost})); !errors.Is(err, lost) {
		t.Errorf("a failing sender: %v, want %v", err, lost)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(lost)
	if _, err := s.Import(ctx, "", bytes.NewReader(data)); !errors.Is(err, lost) {
		t.Errorf("a caller who left: %v, want %v", err, lost)
	}
	if got := files(t, s.dir); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzExtract: whatever comes, nothing is written outside of the directory, and what is inside
// has no special files and no special modes.
func FuzzExtract(f *testing.F) {
	f.Add(tarOf(f, good()...))
	f.Add(tarOf(f, good(item{name: "nix/l", kind: tar.TypeSymlink, link: "../../.."}, item{name: "nix/h", kind: tar.TypeLink, link: "nix/runtime/python/bin/python3"})...))
	f.Add(tarOf(f, item{name: "nix/a/b", body: "x"}, item{name: "nix/../x", body: "x"}))
	f.Add([]byte{0x1f, 0x8b})
	parent := f.TempDir()
	n := 0
	f.Fuzz(func(t *testing.T, data []byte) {
		n++
		where := filepath.Join(parent, fmt.Sprint(n), "inner")
		if err := os.MkdirAll(where, 0o700); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(filepath.Dir(where)) //nolint:errcheck // below the temporary directory
		tree, err := extractLimited(where, bytes.NewReader(data), 100, 1<<20)
		if err == nil {
			if _, err := tree.digest(filepath.Join(where, treeName)); err != nil {
				t.Errorf("no digest: %v", err)
			}
		}
		entries, err := os.ReadDir(filepath.Dir(where))
		if err != nil || len(entries) != 1 {
			t.Errorf("written outside: %v, %v", entries, err)
		}
		err = filepath.WalkDir(where, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && (!d.IsDir() && !info.Mode().IsRegular() && d.Type() != fs.ModeSymlink || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0) {
				t.Errorf("%s is %s", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
