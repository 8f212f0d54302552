//go:build containerd

package containerd_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/namespaces"

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
