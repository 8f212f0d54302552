//go:build containerd

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
)

// pushArchive puts the one image of an exported archive into a registry, to be run as user.
func pushArchive(t *testing.T, host, repo, user string, files map[string][]byte) {
	t.Helper()
	send := func(method, path, mediaType string, body []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+"/v2/"+repo+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", mediaType)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode >= 300 {
			t.Fatalf("%s %s: %s", method, path, response.Status)
		}
	}
	var index struct {
		Manifests []struct{ MediaType, Digest string }
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index.json = %s, %v", files["index.json"], err)
	}
	m := index.Manifests[0]
	var manifest, config map[string]any
	blob := func(digest any) string { return "blobs/sha256/" + strings.TrimPrefix(digest.(string), "sha256:") }
	if err := json.Unmarshal(files[blob(m.Digest)], &manifest); err != nil {
		t.Fatal(err)
	}
	about := manifest["config"].(map[string]any)
	if err := json.Unmarshal(files[blob(about["digest"])], &config); err != nil {
		t.Fatal(err)
	}
	config["config"].(map[string]any)["User"] = user
	put := func(v any) (string, int) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		d := digest.FromBytes(data).String()
		files[blob(d)] = data
		return d, len(data)
	}
	about["digest"], about["size"] = put(config)
	m.Digest, _ = put(manifest)
	for name, data := range files {
		if strings.HasPrefix(name, "blobs/sha256/") && !strings.HasSuffix(name, "/") {
			send(http.MethodPost, "/blobs/uploads/?digest="+digest.FromBytes(data).String(), "application/octet-stream", data)
		}
	}
	send(http.MethodPut, "/manifests/1", m.MediaType, files["blobs/sha256/"+strings.TrimPrefix(m.Digest, "sha256:")])
}

// TestPulledImage: an image goes out by export, into a registry, and back by REST; a call runs in
// it; it can be read, and deleted once no sandbox uses it.
func TestPulledImage(t *testing.T) {
	e := daemontest.Start(t, configure)
	prepare(t, e)
	e.WriteProject(t, map[string]string{"app.py": "import os\ndef run(x):\n    return [x + 1, os.getuid(), os.getgid()]\n"})
	for _, path := range []string{e.Project, filepath.Join(e.Project, "app.py")} { // for the image's user
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := e.Images.ExportImage(t.Context(), &agentixv1.ExportImageRequest{Name: "python"})
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, readChunks(stream.Recv))
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	pushArchive(t, host, "team/python", "65534:1000", files)

	body := fmt.Sprintf(`{"reference": "%s/team/python:1", "plainHttp": true}`, host)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/v1/images:pull", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var last string
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		last = lines.Text()
	}
	name := host + "/team/python:1"
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/x-ndjson" || !strings.Contains(last, `"name":"`+name+`"`) {
		t.Fatalf("pull: HTTP %d, last line %s", response.StatusCode, last)
	}
	e.Template.Image = name
	sandbox := e.Sandbox(t)
	result, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::run", Args: "[41]"})
	if err != nil || result.GetValue() != "[42,65534,1000]" {
		t.Errorf("call = %v, %v", result, err)
	}
	rest := func(method string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, e.URL+"/v1/images/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := e.HTTP.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if code, text := rest(http.MethodGet); code != http.StatusOK || !strings.Contains(text, name) {
		t.Errorf("get: HTTP %d, %s", code, text)
	}
	if code, text := rest(http.MethodDelete); code != http.StatusBadRequest || !strings.Contains(text, "IMAGE_IN_USE") || !strings.Contains(text, strings.TrimPrefix(sandbox, "sandboxes/")) {
		t.Errorf("delete in use: HTTP %d, %s", code, text)
	}
	if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: sandbox}); err != nil {
		t.Fatal(err)
	}
	if code, text := rest(http.MethodDelete); code != http.StatusOK {
		t.Errorf("delete: HTTP %d, %s", code, text)
	}
	if code, text := rest(http.MethodGet); code != http.StatusNotFound || !strings.Contains(text, "IMAGE_NOT_FOUND") {
		t.Errorf("get after delete: HTTP %d, %s", code, text)
	}
}
