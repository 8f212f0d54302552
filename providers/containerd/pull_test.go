//go:build containerd

package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/containerd"
	"github.com/agentixd/agentixd/providers/providertest"
)

// registryHost runs a registry until the test ends. guard, if any, sees each request first and
// answers those that it returns true for.
func registryHost(t testing.TB, guard func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard == nil || !guard(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// basicAuth admits one user.
func basicAuth(user, password string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if u, p, _ := r.BasicAuth(); u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
}

// push puts things into a registry with plain HTTP.
type push struct {
	t              testing.TB
	host           string
	user, password string
}

func (p push) do(method, url, mediaType string, body []byte) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.host+url, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaType)
	if p.user != "" {
		r.SetBasicAuth(p.user, p.password)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(response.Body)
		p.t.Fatalf("%s %s: %s %s", method, url, response.Status, text)
	}
}

func (p push) blob(repo, mediaType string, data []byte) ocispec.Descriptor {
	p.t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	p.do(http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+d.Digest.String(), "application/octet-stream", data)
	return d
}

func (p push) manifest(repo, tag, mediaType string, v any) ocispec.Descriptor {
	p.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		p.t.Fatal(err)
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	p.do(http.MethodPut, "/v2/"+repo+"/manifests/"+tag, mediaType, data)
	return d
}

// image pushes an index of an image for this platform and of one for another.
func (p push) image(repo, tag string, layers ...[]byte) {
	p.t.Helper()
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	index.Manifests = append(index.Manifests, p.single(repo, "s390x", fileLayer(p.t, "elsewhere", 1000)), p.single(repo, runtime.GOARCH, layers...))
	p.manifest(repo, tag, ocispec.MediaTypeImageIndex, index)
}

// single pushes an image for one platform.
func (p push) single(repo, arch string, layers ...[]byte) ocispec.Descriptor {
	p.t.Helper()
	config := ocispec.Image{
		Platform: ocispec.Platform{Architecture: arch, OS: "linux"},
		Config:   ocispec.ImageConfig{Env: []string{"PATH=/bin", "FROM=registry"}},
		RootFS:   ocispec.RootFS{Type: "layers"},
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, layer := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(layer))
		packed, err := io.ReadAll(gzipped(p.t, bytes.NewReader(layer)))
		if err != nil {
			p.t.Fatal(err)
		}
		m.Layers = append(m.Layers, p.blob(repo, ocispec.MediaTypeImageLayerGzip, packed))
	}
	text, err := json.Marshal(config)
	if err != nil {
		p.t.Fatal(err)
	}
	m.Config = p.blob(repo, ocispec.MediaTypeImageConfig, text)
	manifest := p.manifest(repo, arch, ocispec.MediaTypeImageManifest, m)
	manifest.Platform = &config.Platform
	return manifest
}

func rootFSBytes(t testing.TB) []byte {
	t.Helper()
	data, err := io.ReadAll(emptyRootFS(t))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fileLayer is a layer with one file of random-looking bytes that hardly compress.
func fileLayer(t testing.TB, name string, size int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(size)}); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	state := uint32(1)
	for i := range data {
		state = state*1664525 + 1013904223
		data[i] = byte(state >> 24)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// leftovers is how many blobs containerd holds for us, and how many snapshots.
func leftovers(t testing.TB, d *containerdtest.Daemon) (blobs, snaps int) {
	t.Helper()
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	ctx := namespaces.WithNamespace(t.Context(), containerd.Namespace)
	if err := c.ContentStore().Walk(ctx, func(content.Info) error { blobs++; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := c.SnapshotService("overlayfs").Walk(ctx, func(context.Context, snapshots.Info) error { snaps++; return nil }); err != nil {
		t.Fatal(err)
	}
	active, err := c.ContentStore().ListStatuses(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	return blobs + len(active), snaps
}

func noProgress(providers.PullProgress) {}

// TestPull: an image comes from a registry under its completed name, with progress, for this
// platform alone; sandboxes run from it, and its configuration is honoured.
func TestPull(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	host := registryHost(t, nil)
	push{t: t, host: host}.image("team/app", "1", rootFSBytes(t), fileLayer(t, "etc/data", 3<<20))
	var seen []providers.PullProgress
	image, err := p.PullImage(t.Context(), providers.Pull{Reference: host + "/team/app:1", PlainHTTP: true}, func(pr providers.PullProgress) { seen = append(seen, pr) })
	if err != nil {
		t.Fatal(err)
	}
	if image.Name != host+"/team/app:1" || image.SizeBytes < 3<<20 || !strings.HasPrefix(image.Digest, "sha256:") {
		t.Errorf("image = %+v", image)
	}
	first, last := seen[0], seen[len(seen)-1]
	if first.Phase != providers.Resolving || last.Phase != providers.Unpacking || last.DoneBytes != last.TotalBytes || last.TotalBytes < 3<<20 {
		t.Errorf("progress from %+v to %+v", first, last)
	}
	h, err := p.Create(t.Context(), providers.Spec{ID: "c", Image: host + "/team/app:1"})
	if err != nil {
		t.Fatal(err)
	}
	waitRunning(t, h)
	pid, _ := mainPID(t, d, "c")
	if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || !strings.Contains(string(environ), "FROM=registry") {
		t.Errorf("environment %q, %v", environ, err)
	}
	if info, err := os.Stat(fmt.Sprintf("/proc/%d/root/etc/data", pid)); err != nil || info.Size() != 3<<20 {
		t.Errorf("file of the second layer: %v, %v", info, err)
	}

	// The same again under another name, and by digest.
	other, err := p.PullImage(t.Context(), providers.Pull{Reference: host + "/team/app:1", Name: "mine", PlainHTTP: true}, noProgress)
	if err != nil || other.Name != "mine" || other.Digest != image.Digest {
		t.Errorf("by another name: %+v, %v", other, err)
	}
	if by, err := p.PullImage(t.Context(), providers.Pull{Reference: host + "/team/app@" + image.Digest, PlainHTTP: true}, noProgress); err != nil || by.Digest != image.Digest {
		t.Errorf("by digest: %+v, %v", by, err)
	}

	// In use: refused, and unharmed. Another name of it may go.
	if err := p.DeleteImage(t.Context(), image.Name); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("delete an image in use: %v, want FailedPrecondition", err)
	}
	for _, name := range []string{"mine", host + "/team/app@" + image.Digest} {
		if err := p.DeleteImage(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	waitRunning(t, h)
	if err := p.Delete(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteImage(t.Context(), image.Name); err != nil {
		t.Fatal(err)
	}
	if blobs, snapshots := leftovers(t, d); blobs != 0 || snapshots != 0 {
		t.Errorf("after the last name went: %d blobs, %d snapshots", blobs, snapshots)
	}
	if err := p.DeleteImage(t.Context(), image.Name); !errs.Is(err, errs.NotFound) {
		t.Errorf("delete it again: %v, want NotFound", err)
	}
}

// TestR11_RegistryCredentials: a registry that wants credentials gets those of the request, else
// the operator's; no other host gets them; wrong ones are told of without showing them.
func TestR11_RegistryCredentials(t *testing.T) {
	const user, password = "someone", "CANARY-password"
	d := containerdtest.Start(t)
	host := registryHost(t, basicAuth(user, password))
	push{t, host, user, password}.image("private/app", "1", rootFSBytes(t))
	var mu sync.Mutex
	var strayed []string
	other := registryHost(t, func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if got := r.Header.Get("Authorization"); got != "" {
			strayed = append(strayed, got)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="other"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	config := filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stub := providertest.Stub(t)
	plain := open(t, d, testInstance, t.TempDir(), stub)
	defer plain.Close() //nolint:errcheck // checked by goleak
	configured, err := containerd.New(t.Context(), providers.Config{
		StateDir: t.TempDir(), Instance: "other", RuntimePath: stub, ContainerdAddress: d.Address, RegistryConfig: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer configured.Close() //nolint:errcheck // checked by goleak
	good := providers.RegistryCredentials{Username: user, Password: password}
	for name, tt := range map[string]struct {
		p         *containerd.Provider
		reference string
		creds     providers.RegistryCredentials
		kind      errs.Kind
	}{
		"none":           {plain, host + "/private/app:1", providers.RegistryCredentials{}, errs.PermissionDenied},
		"wrong":          {plain, host + "/private/app:1", providers.RegistryCredentials{Username: user, Password: "CANARY-wrong"}, errs.PermissionDenied},
		"right":          {plain, host + "/private/app:1", good, 0},
		"the operator's": {configured, host + "/private/app:1", providers.RegistryCredentials{}, 0},
		"elsewhere":      {configured, other + "/private/app:1", providers.RegistryCredentials{}, errs.PermissionDenied},
		"no such tag":    {plain, host + "/private/app:2", good, errs.NotFound},
	} {
		_, err := tt.p.PullImage(t.Context(), providers.Pull{Reference: tt.reference, Credentials: tt.creds, PlainHTTP: true}, noProgress)
		if (err == nil) != (tt.kind == 0) || err != nil && !errs.Is(err, tt.kind) {
			t.Errorf("%s: %v, want kind %d", name, err, tt.kind)
		}
		if err != nil && strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
	if len(strayed) > 0 {
		t.Errorf("credentials of one registry reached another: %q", strayed)
	}
}

// TestBadPulls: each refusal is of its kind, and nothing of it stays.
func TestBadPulls(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	layer := fileLayer(t, "etc/data", 1<<20)
	swap := 0 // size of what comes instead of the layer
	host := registryHost(t, func(w http.ResponseWriter, r *http.Request) bool {
		if swap > 0 && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			_, _ = w.Write(bytes.Repeat([]byte{'x'}, swap))
			return true
		}
		return false
	})
	push{t: t, host: host}.image("team/app", "1", rootFSBytes(t), layer)
	data := []byte("no tar")
	push{t: t, host: host}.image("team/broken", "1", data)
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	gone := strings.TrimPrefix(down.URL, "http://")
	swap = 1000
	for name, tt := range map[string]struct {
		pull providers.Pull
		kind errs.Kind
	}{
		"no reference":      {providers.Pull{}, errs.InvalidArgument},
		"a flag":            {providers.Pull{Reference: "--help"}, errs.InvalidArgument},
		"a URL":             {providers.Pull{Reference: "http://" + host + "/team/app"}, errs.InvalidArgument},
		"plain HTTP abroad": {providers.Pull{Reference: "registry.example/app", PlainHTTP: true}, errs.InvalidArgument},
		"plain HTTP faked":  {providers.Pull{Reference: "127.0.0.1.example/app", PlainHTTP: true}, errs.InvalidArgument},
		"metadata address":  {providers.Pull{Reference: "169.254.169.254/app"}, errs.Unavailable},
		"nobody there":      {providers.Pull{Reference: gone + "/app", PlainHTTP: true}, errs.Unavailable},
		"TLS wanted":        {providers.Pull{Reference: host + "/team/app:1"}, errs.Unavailable},
		"no repository":     {providers.Pull{Reference: host + "/none/such:1", PlainHTTP: true}, errs.NotFound},
		"short content":     {providers.Pull{Reference: host + "/team/app:1", PlainHTTP: true}, errs.Unavailable},
	} {
		if _, err := p.PullImage(t.Context(), tt.pull, noProgress); !errs.Is(err, tt.kind) {
			t.Errorf("%s: %v, want kind %d", name, err, tt.kind)
		}
	}
	packed, err := io.ReadAll(gzipped(t, bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	swap = len(packed)
	if _, err := p.PullImage(t.Context(), providers.Pull{Reference: host + "/team/broken:1", PlainHTTP: true}, noProgress); !errs.Is(err, errs.Unavailable) {
		t.Errorf("other content of the same size: %v, want Unavailable", err)
	}
	swap = 0
	if _, err := p.PullImage(t.Context(), providers.Pull{Reference: host + "/team/broken:1", PlainHTTP: true}, noProgress); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("a layer that is no tar: %v, want InvalidArgument", err)
	}
	if list, err := p.ListImages(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if blobs, snapshots := leftovers(t, d); blobs != 0 || snapshots != 0 {
		t.Errorf("left: %d blobs, %d snapshots", blobs, snapshots)
	}
}

// TestExport: what is exported can be imported elsewhere, and reads as a docker archive.
func TestExport(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	host := registryHost(t, nil)
	push{t: t, host: host}.image("team/app", "1", rootFSBytes(t), fileLayer(t, "etc/data", 3000))
	image, err := p.PullImage(t.Context(), providers.Pull{Reference: host + "/team/app:1", Name: "docker.io/team/app:1", PlainHTTP: true}, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := p.ExportImage(t.Context(), "team/app:1", &archive); err != nil { // the short name finds it
		t.Fatal(err)
	}
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive.Bytes()))
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var docker []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &docker); err != nil || len(docker) != 1 || !slices.Equal(docker[0].RepoTags, []string{"team/app:1"}) || len(docker[0].Layers) != 2 {
		t.Fatalf("manifest.json = %s, %v", files["manifest.json"], err)
	}
	for _, name := range append(docker[0].Layers, docker[0].Config, "index.json", "oci-layout") {
		if len(files[name]) == 0 {
			t.Errorf("the archive has no %s", name)
		}
	}
	for _, digest := range []string{"index.json"} {
		if strings.Contains(string(files[digest]), "s390x") {
			t.Errorf("%s names another platform", digest)
		}
	}
	if err := p.DeleteImage(t.Context(), image.Name); err != nil {
		t.Fatal(err)
	}
	back, err := p.ImportArchive(t.Context(), "", &archive)
	if err != nil || len(back) != 1 || back[0].Name != "docker.io/team/app:1" {
		t.Fatalf("imported again: %+v, %v", back, err)
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: "back", Image: "team/app:1"}); err != nil {
		t.Error(err)
	}
	if err := p.Delete(t.Context(), "back"); err != nil {
		t.Error(err)
	}
	if err := p.ExportImage(t.Context(), "none", io.Discard); !errs.Is(err, errs.NotFound) {
		t.Errorf("export of a missing image: %v, want NotFound", err)
	}
}

// TestR9_WorkLeftOver: what a killed daemon was fetching or looking at is removed by the next, and
// that of another daemon is not.
func TestR9_WorkLeftOver(t *testing.T) {
	d := containerdtest.Start(t)
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	ctx := namespaces.WithNamespace(t.Context(), containerd.Namespace)
	for _, instance := range []string{testInstance, "another"} {
		lease, err := c.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithLabels(map[string]string{
			"agentix.dev/instance": instance, "agentix.dev/work": "1",
		}))
		if err != nil {
			t.Fatal(err)
		}
		data := []byte("fetched for " + instance)
		desc := ocispec.Descriptor{Digest: digest.FromBytes(data), Size: int64(len(data))}
		if err := content.WriteBlob(leases.WithLease(ctx, lease.ID), c.ContentStore(), instance, bytes.NewReader(data), desc); err != nil {
			t.Fatal(err)
		}
	}
	state := t.TempDir()
	view := filepath.Join(state, ".view-1")
	if err := os.Mkdir(view, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("view", view, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(view, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, d, testInstance, state, providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	left, err := c.LeasesService().List(ctx)
	if err != nil || len(left) != 1 || left[0].Labels["agentix.dev/instance"] != "another" {
		t.Errorf("leases = %v, %v", left, err)
	}
	if blobs, _ := leftovers(t, d); blobs != 1 {
		t.Errorf("%d blobs are left, want that of the other daemon", blobs)
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) != 0 {
		t.Errorf("state directory: %v, %v", entries, err)
	}
	if list, err := p.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("sandboxes: %v, %v", list, err)
	}
}
