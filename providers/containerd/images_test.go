//go:build containerd

package containerd_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/containerd"
	"github.com/agentixd/agentixd/providers/providertest"
)

func gzipped(t testing.TB, r io.Reader) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// export writes an image as an archive that is OCI's and docker's at once.
func export(t testing.TB, d *containerdtest.Daemon, name string) []byte {
	t.Helper()
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	var buf bytes.Buffer
	if err := c.Export(namespaces.WithNamespace(t.Context(), containerd.Namespace), &buf, archive.WithImage(c.ImageService(), name)); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func names(list []providers.Image) []string {
	var all []string
	for _, i := range list {
		all = append(all, i.Name)
	}
	return all
}

func TestImages(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	made, err := p.ImportRootFS(t.Context(), "docker.io/library/base:1", gzipped(t, emptyRootFS(t)))
	if err != nil {
		t.Fatal(err)
	}
	if made.Name != "docker.io/library/base:1" || !strings.HasPrefix(made.Digest, "sha256:") || made.SizeBytes <= 0 || made.Created.IsZero() {
		t.Errorf("image = %+v", made)
	}
	again, err := p.ImportRootFS(t.Context(), "docker.io/library/base:1", emptyRootFS(t))
	if err != nil || again.Name != made.Name {
		t.Errorf("a second import = %+v, %v", again, err)
	}
	full := export(t, d, "docker.io/library/base:1")

	other := containerdtest.Start(t)
	q := open(t, other, testInstance, t.TempDir(), providertest.Stub(t))
	defer q.Close() //nolint:errcheck // checked by goleak
	for name, tt := range map[string]struct {
		name    string
		archive io.Reader
		want    string
	}{
		"name inside":         {"", bytes.NewReader(full), "docker.io/library/base:1"},
		"other name":          {"mine", bytes.NewReader(full), "mine"},
		"other name, gzipped": {"mine:2", gzipped(t, bytes.NewReader(full)), "mine:2"},
	} {
		got, err := q.ImportArchive(t.Context(), tt.name, tt.archive)
		if err != nil || !slices.Equal(names(got), []string{tt.want}) {
			t.Errorf("%s: %+v, %v; want %s", name, got, err, tt.want)
			continue
		}
		if _, err := q.Create(t.Context(), providers.Spec{ID: "user", Image: tt.want}); err != nil {
			t.Errorf("%s: create from it: %v", name, err)
		}
		if err := q.Delete(t.Context(), "user"); err != nil {
			t.Error(err)
		}
	}
	list, err := q.ListImages(t.Context())
	if want := []string{"docker.io/library/base:1", "mine", "mine:2"}; err != nil || !slices.Equal(names(list), want) {
		t.Errorf("list = %v, %v; want %v", names(list), err, want)
	}
}

func TestBadImages(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	rubbish := strings.Repeat("no tar at all ", 1000)
	if _, err := p.ImportArchive(t.Context(), "x", strings.NewReader(rubbish)); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("rubbish as an archive: %v, want InvalidArgument", err)
	}
	if _, err := p.ImportArchive(t.Context(), "x", emptyRootFS(t)); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("a tar that is no archive: %v, want InvalidArgument", err)
	}
	if _, err := p.ImportRootFS(t.Context(), "x", strings.NewReader(rubbish)); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("rubbish as a root file system: %v, want InvalidArgument", err)
	}
	if _, err := p.ImportRootFS(t.Context(), "", emptyRootFS(t)); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("without a name: %v, want InvalidArgument", err)
	}
	if list, err := p.ListImages(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: "a", Image: "none"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("create from a missing image: %v, want NotFound", err)
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: "a"}); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("create without an image: %v, want InvalidArgument", err)
	}
}

// ociArchive is an archive of images made by hand: each a layer, a config and a manifest.
func ociArchive(t testing.TB, config ocispec.ImageConfig, names ...string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	put := func(path string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(mediaType string, data []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		put("blobs/sha256/"+d.Digest.Encoded(), data)
		return d
	}
	text := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	rootfs, err := io.ReadAll(emptyRootFS(t))
	if err != nil {
		t.Fatal(err)
	}
	layer := blob(ocispec.MediaTypeImageLayer, rootfs)
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, name := range names {
		c := blob(ocispec.MediaTypeImageConfig, text(ocispec.Image{
			Author: name, Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"}, Config: config,
			RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
		}))
		m := blob(ocispec.MediaTypeImageManifest, text(ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: c, Layers: []ocispec.Descriptor{layer},
		}))
		if name != "" {
			m.Annotations = map[string]string{"io.containerd.image.name": name}
		}
		index.Manifests = append(index.Manifests, m)
	}
	put("index.json", text(index))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// TestImageConfig: the image's environment and working directory are honoured, and what the
// runtime owns is not to be had.
func TestImageConfig(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	config := ocispec.ImageConfig{
		Env: []string{"PATH=/image/bin", "FROM=image", "OVER=image", "AGENTIX_BIND_PORT=1"}, WorkingDir: "/tmp",
		Entrypoint: []string{"/never"}, User: "1234",
	}
	if _, err := p.ImportArchive(t.Context(), "configured", ociArchive(t, config, "")); err != nil {
		t.Fatal(err)
	}
	h, err := p.Create(t.Context(), providers.Spec{ID: "c", Image: "configured", Env: map[string]string{"OVER": "own"}})
	if err != nil {
		t.Fatal(err)
	}
	waitRunning(t, h)
	pid, _ := mainPID(t, d, "c")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimRight(string(environ), "\x00"), "\x00")
	for _, want := range []string{"PATH=/image/bin", "FROM=image", "OVER=own"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if strings.Contains(string(environ), "AGENTIX_") || strings.Contains(string(environ), "OVER=image") {
		t.Errorf("environment = %q", got)
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil || !strings.Contains(string(status), "\nUid:\t1234\t1234\t1234\t1234\n") {
		t.Errorf("status = %s, %v", status, err)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || cwd != "/tmp" {
		t.Errorf("working directory = %q, %v", cwd, err)
	}
	if err := p.Delete(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
}

// TestSeveralImages: an archive of two images comes in under their names, not under one.
func TestSeveralImages(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	if _, err := p.ImportArchive(t.Context(), "one", ociArchive(t, ocispec.ImageConfig{}, "a:1", "b:1")); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("two images under one name: %v, want InvalidArgument", err)
	}
	got, err := p.ImportArchive(t.Context(), "", ociArchive(t, ocispec.ImageConfig{}, "a:1", "b:1"))
	if err != nil || len(got) != 2 {
		t.Errorf("two images: %v, %v", got, err)
	}
	if _, err := p.ImportArchive(t.Context(), "", ociArchive(t, ocispec.ImageConfig{}, "")); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("no name at all: %v, want InvalidArgument", err)
	}
	list, err := p.ListImages(t.Context())
	if want := []string{"a:1", "b:1"}; err != nil || !slices.Equal(names(list), want) {
		t.Errorf("list = %v, %v; want %v", names(list), err, want)
	}
}
