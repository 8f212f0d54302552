//go:build docker

package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/docker"
	"github.com/agentixd/agentixd/providers/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const image = "empty:latest"

func open(t testing.TB, d *daemon, instance, stateDir, runtime string) *docker.Provider {
	t.Helper()
	p, err := docker.New(t.Context(), providers.Config{StateDir: stateDir, Instance: instance, RuntimePath: runtime, DockerHost: d.host})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// importEmpty makes an image with nothing but a few directories: the stub is static.
func importEmpty(t testing.TB, p *docker.Provider) {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"proc/", "sys/", "dev/", "tmp/", "etc/", "run/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ImportRootFS(t.Context(), image, &buf); err != nil {
		t.Fatal(err)
	}
}

// ask sends one request to the engine itself.
func ask(t testing.TB, d *daemon, method, path, body string, answer any) {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: d.transport()}
	req, err := http.NewRequest(method, "http://docker/v1.41"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, data, err)
	}
	if answer == nil {
		return
	}
	if err := json.Unmarshal(data, answer); err != nil {
		t.Fatal(err)
	}
}

// container is the engine's id of a sandbox's container.
func container(t testing.TB, d *daemon, id string) string {
	t.Helper()
	var list []struct {
		ID string `json:"Id"`
	}
	ask(t, d, http.MethodGet, `/containers/json?all=1&filters={"label":["agentix.dev/sandbox=`+id+`"]}`, "", &list)
	if len(list) != 1 {
		t.Fatalf("containers of %s: %v", id, list)
	}
	return list[0].ID
}

func TestContract(t *testing.T) {
	d := startDocker(t)
	p := open(t, d, "test-instance", t.TempDir(), "/proc/self/exe")
	importEmpty(t, p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	providertest.Run(t, providertest.Features{
		New: func(t testing.TB, stateDir, runtime string) providers.Provider {
			return open(t, d, "test-instance", stateDir, runtime)
		},
		Image:    image,
		Limits:   true,
		Isolated: true,
		Bundles:  true,
		NoDisk:   true, NoUserNamespace: true, NoBridge: true,
		Kill: func(t testing.TB, _ providers.Provider, id string) {
			ask(t, d, http.MethodPost, "/containers/"+container(t, d, id)+"/kill?signal=KILL", "", nil)
		},
	})
}

// TestTwoDaemons: two daemons on one engine never see or touch each other's sandboxes, nor a
// container of somebody else's that carries their labels.
func TestTwoDaemons(t *testing.T) {
	d := startDocker(t)
	stub := providertest.Stub(t)
	a, b := open(t, d, "instance-a", t.TempDir(), stub), open(t, d, "instance-b", t.TempDir(), stub)
	defer a.Close() //nolint:errcheck // checked by goleak
	defer b.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, a)
	for _, p := range []*docker.Provider{a, b} {
		if _, err := p.Create(t.Context(), providers.Spec{ID: "same", Image: image}); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, d, http.MethodPost, "/containers/create?name=foreign",
		`{"Image":"empty","Cmd":["/x"],"Labels":{"agentix.dev/instance":"instance-a","agentix.dev/sandbox":"foreign"}}`, nil)
	if err := a.Delete(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
	if list, err := a.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("list of a = %v, %v", list, err)
	}
	if list, err := b.List(t.Context()); err != nil || len(list) != 1 || !list[0].Running {
		t.Errorf("list of b = %v, %v", list, err)
	}
	if err := b.Delete(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
	ask(t, d, http.MethodDelete, "/containers/foreign", "", nil)
}

// TestDockerRestarts: with live-restore sandboxes go on while the engine is away, and exits are
// told afterwards, also those that it did not see.
func TestDockerRestarts(t *testing.T) {
	d := startDocker(t)
	p := open(t, d, "test-instance", t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	exits, err := p.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	handles := map[string]providers.Handle{}
	for _, id := range []string{"stays", "dies"} {
		if handles[id], err = p.Create(t.Context(), providers.Spec{ID: id, Image: image}); err != nil {
			t.Fatal(err)
		}
		await.True(t, func() bool { return answers(t, handles[id], "/health") }, "the runtime of "+id)
	}
	d.leave(t)
	if !answers(t, handles["stays"], "/health") {
		t.Error("it does not answer without the engine")
	}
	if _, err := p.List(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("list without the engine: %v, want Unavailable", err)
	}
	answers(t, handles["dies"], "/exit?code=3")
	d.start(t)
	await.True(t, func() bool {
		select {
		case e := <-exits:
			return e.ID == "dies"
		default:
			return false
		}
	}, "the exit")
	if !answers(t, handles["stays"], "/health") {
		t.Error("it does not answer any more")
	}
	for id := range handles {
		if err := p.Delete(t.Context(), id); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
}

func answers(t testing.TB, h providers.Handle, path string) bool {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return h.Dial(ctx) },
	}}
	resp, err := client.Get("http://sandbox" + path)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// TestImageOfSandbox: an image of a sandbox has no values of its variables and none of its labels.
func TestImageOfSandbox(t *testing.T) {
	d := startDocker(t)
	p := open(t, d, "test-instance", t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	spec := providers.Spec{ID: "origin", Image: image, Env: map[string]string{"SECRET": "of the sandbox"}}
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Snapshot(t.Context(), "origin", "made"); err != nil {
		t.Fatal(err)
	}
	var made struct{ Config any }
	ask(t, d, http.MethodGet, "/images/made/json", "", &made)
	if text := fmt.Sprint(made.Config); strings.Contains(text, "of the sandbox") || strings.Contains(text, "test-instance") {
		t.Errorf("config of the image: %s", text)
	}
	if err := p.Delete(t.Context(), "origin"); err != nil {
		t.Fatal(err)
	}
}

// TestImportUnderAName: the names inside an archive stay with whom they were.
func TestImportUnderAName(t *testing.T) {
	d := startDocker(t)
	p := open(t, d, "test-instance", t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	old, err := p.GetImage(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := p.ExportImage(t.Context(), image, &archive); err != nil {
		t.Fatal(err)
	}
	spec := providers.Spec{ID: "other", Image: image}
	if _, err := p.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Snapshot(t.Context(), "other", image); err != nil { // another of that name
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	now, err := p.GetImage(t.Context(), image)
	if err != nil || now.Digest == old.Digest {
		t.Fatalf("%+v, %v: not another", now, err)
	}
	list, err := p.ImportArchive(t.Context(), "named", bytes.NewReader(archive.Bytes()))
	if err != nil || len(list) != 1 || list[0].Name != "named:latest" || list[0].Digest != old.Digest {
		t.Errorf("imported %+v, %v; want named:latest, %s", list, err, old.Digest)
	}
	if again, err := p.GetImage(t.Context(), image); err != nil || again.Digest != now.Digest {
		t.Errorf("%s is %+v, %v; want %s", image, again, err, now.Digest)
	}
	if _, err := p.ImportArchive(t.Context(), "", strings.NewReader("no archive")); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("import nonsense: %v, want InvalidArgument", err)
	}
}

// TestRefusesOtherHosts: only an engine on a socket of this host will do.
func TestRefusesOtherHosts(t *testing.T) {
	for _, host := range []string{"tcp://127.0.0.1:2375", "unix://relative", "/var/run/docker.sock"} {
		_, err := docker.New(t.Context(), providers.Config{StateDir: t.TempDir(), RuntimePath: "/proc/self/exe", DockerHost: host})
		if err == nil || !strings.Contains(err.Error(), "--docker-host") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestUserOfImage: whoever the image's user is, the runtime can make its socket.
func TestUserOfImage(t *testing.T) {
	d := startDocker(t)
	p := open(t, d, "test-instance", t.TempDir(), providertest.Stub(t))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(t, p)
	if _, err := p.Create(t.Context(), providers.Spec{ID: "origin", Image: image}); err != nil {
		t.Fatal(err)
	}
	ask(t, d, http.MethodPost, "/commit?repo=user&changes=USER%201000:1000&container="+container(t, d, "origin"), "{}", nil)
	h, err := p.Create(t.Context(), providers.Spec{ID: "user", Image: "user"})
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return answers(t, h, "/health") }, "the runtime")
	if answers(t, h, "/write?path=/etc/new&size=1") {
		t.Error("it can write to /etc")
	}
	for _, id := range []string{"origin", "user"} {
		if err := p.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}
