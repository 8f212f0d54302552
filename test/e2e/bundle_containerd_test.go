//go:build containerd

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// bundleProject is the code in the bundle.
const bundleProject = `
import ctypes, multiprocessing, os, sqlite3, ssl, subprocess, sys

def square(x):
    return x * x

def where() -> list:
    return [sys.prefix, sys.executable, os.path.exists("/usr/bin/python3")]

def child() -> str:
    code = "import sys, ctypes, sqlite3; print(sys.executable, sqlite3.connect(':memory:').execute('select 6*7').fetchone()[0])"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

def spawn() -> list:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pool.map(square, [1, 2, 3])

def extension() -> list:
    pid = ctypes.CDLL(None).getpid()
    return [pid == os.getpid(), sqlite3.connect(":memory:").execute("select 6*7").fetchone()[0], ssl.OPENSSL_VERSION.split()[0]]

def own(argv: list) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

def write() -> str:
    try:
        open("/nix/runtime/x", "w")
    except OSError as e:
        return e.__class__.__name__ + str(e.errno)
    return "written"
`

// command builds the agentix command.
func command(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentix")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../daemon/cmd/agentix")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build agentix: %v\n%s", err, out)
	}
	return path
}

// rootFS makes a tar of files; those without content are directories.
func rootFS(t *testing.T, files map[string][]byte, links map[string]string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"proc/", "sys/", "dev/", "tmp/", "etc/", "run/", "bin/", "lib/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777}); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func hostFile(t *testing.T, path, needs string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (apt-get install %s)", err, needs)
	}
	return data
}

// musl is an image with nothing but musl and a program that is linked against it.
func musl(t *testing.T) io.Reader {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "hello.c")
	if err := os.WriteFile(source, []byte("#include <stdio.h>\nint main(void) { puts(\"hello from musl\"); return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "musl-gcc", "-o", filepath.Join(dir, "hello"), source).CombinedOutput(); err != nil {
		t.Fatalf("musl-gcc: %v: %s (apt-get install musl-tools gcc)", err, out)
	}
	loader, err := filepath.Glob("/lib/ld-musl-*.so.1")
	if err != nil || len(loader) == 0 {
		t.Fatal("no loader of musl (apt-get install musl)")
	}
	return rootFS(t, map[string][]byte{
		strings.TrimPrefix(loader[0], "/"): hostFile(t, loader[0], "musl"),
		"bin/hello":                        hostFile(t, filepath.Join(dir, "hello"), "musl-tools"),
	}, nil)
}

func importRootFS(t *testing.T, e *daemontest.Env, name string, r io.Reader) {
	t.Helper()
	stream, err := e.Images.ImportImage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	header := &agentixv1.ImportImageHeader{Name: name, Format: agentixv1.ImageFormat_IMAGE_FORMAT_ROOTFS}
	err = stream.Send(&agentixv1.ImportImageRequest{Message: &agentixv1.ImportImageRequest_Header{Header: header}})
	for chunk := make([]byte, 1<<20); err == nil; {
		var n int
		if n, err = io.ReadFull(r, chunk); n > 0 {
			if sendErr := stream.Send(&agentixv1.ImportImageRequest{Message: &agentixv1.ImportImageRequest_Chunk{Chunk: chunk[:n]}}); sendErr != nil {
				break
			}
		}
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
}

// importBundle imports a tar and returns the bundle.
func importBundle(t *testing.T, e *daemontest.Env, digest string, data []byte) (*agentixv1.Bundle, error) {
	t.Helper()
	stream, err := agentixv1.NewBundleServiceClient(e.Conn).ImportBundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&agentixv1.ImportBundleRequest{Message: &agentixv1.ImportBundleRequest_Header{Header: &agentixv1.ImportBundleHeader{Digest: digest}}})
	for len(data) > 0 && err == nil {
		n := min(len(data), 1<<20)
		err = stream.Send(&agentixv1.ImportBundleRequest{Message: &agentixv1.ImportBundleRequest_Chunk{Chunk: data[:n]}})
		data = data[n:]
	}
	return stream.CloseAndRecv()
}

// TestBundle: one bundle, made by the command, runs in an image with nothing, in Debian, and in
// one with another C library; what it starts runs, and so do the image's own programs.
func TestBundle(t *testing.T) {
	e := daemontest.Start(t, configure)
	agentix, project, file := command(t), t.TempDir(), filepath.Join(t.TempDir(), "b.tar")
	if err := os.WriteFile(filepath.Join(project, "probe.py"), []byte(bundleProject), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(file string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), agentix, "bundle", "build", "--python", "/usr/bin/python3", "--project", project, "--name", "demo", "-o", file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("bundle build: %v\n%s", err, out)
		}
	}
	build(file)
	data := hostFile(t, file, "")
	build(file)
	if again := hostFile(t, file, ""); !bytes.Equal(data, again) {
		t.Error("the same input gave another bundle")
	}
	var manifest struct{ Digest string }
	first := tar.NewReader(bytes.NewReader(data))
	if header, err := first.Next(); err != nil || header.Name != "manifest.json" || decode(first, &manifest) != nil {
		t.Fatalf("first in the tar: %v, %v", header, err)
	}
	if _, err := importBundle(t, e, "sha256:"+strings.Repeat("0", 64), data); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("with a wrong digest: %v", err)
	}
	bundle, err := importBundle(t, e, manifest.Digest, data)
	if err != nil {
		t.Fatal(err)
	}
	if bundle.GetTitle() != "demo:latest" || bundle.GetServer() || bundle.GetSkippedLinks() != 0 {
		t.Errorf("bundle = %v", bundle)
	}
	debian := containerdtest.Image(t)
	for name, image := range map[string]struct {
		rootfs io.Reader
		own    []string
		says   string
	}{
		"busybox": {rootFS(t, map[string][]byte{"bin/busybox": hostFile(t, "/bin/busybox", "busybox-static")}, map[string]string{"bin/sh": "busybox"}),
			[]string{"/bin/sh", "-c", "echo hello from busybox"}, "hello from busybox"},
		"debian": {debian, []string{"/usr/bin/python3", "-I", "-c", "import sys, ssl; print(sys.prefix)"}, "/usr"},
		"musl":   {musl(t), []string{"/bin/hello"}, "hello from musl"},
	} {
		t.Run(name, func(t *testing.T) {
			importRootFS(t, e, name, image.rootfs)
			made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{
				SandboxId: "in-" + name, Sandbox: &agentixv1.Sandbox{Image: name, Bundle: bundle.GetName()},
			})
			if err != nil {
				t.Fatal(err)
			}
			for call, want := range map[string]string{
				"probe::where":     fmt.Sprintf(`["/nix/runtime/venv","/nix/runtime/venv/bin/python",%t]`, name == "debian"),
				"probe::child":     `"/nix/runtime/venv/bin/python 42"`,
				"probe::spawn":     "[1,4,9]",
				"probe::extension": `[true,42,"OpenSSL"]`,
				"probe::write":     `"OSError30"`,
			} {
				got, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: made.GetName(), Callable: call})
				if err != nil || got.GetValue() != want {
					t.Errorf("%s = %v, %v; want %s", call, got, err, want)
				}
			}
			argv := `[["` + strings.Join(image.own, `","`) + `"]]`
			got, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: made.GetName(), Callable: "probe::own", Args: argv})
			if err != nil || got.GetValue() != `"`+image.says+`"` {
				t.Errorf("the image's own program: %v, %v", got, err)
			}
			bundles := agentixv1.NewBundleServiceClient(e.Conn)
			if _, err := bundles.DeleteBundle(t.Context(), &agentixv1.DeleteBundleRequest{Name: bundle.GetName()}); err == nil || !strings.Contains(err.Error(), "in-"+name) {
				t.Errorf("delete in use: %v", err)
			}
			if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: made.GetName()}); err != nil {
				t.Error(err)
			}
		})
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, e.URL+"/v1/"+bundle.GetName(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("delete by REST: HTTP %d", response.StatusCode)
	}
	_, err = e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{Image: "busybox", Bundle: bundle.GetName()}})
	if err == nil || !strings.Contains(err.Error(), "no bundle") {
		t.Errorf("create with a bundle that is gone: %v", err)
	}
}

// TestBundleWithServer: a bundle's own server is run and fronted; calls, a restart of the daemon
// and the server's end are as with ours.
func TestBundleWithServer(t *testing.T) {
	e := daemontest.Start(t, configure)
	prepare(t, e)
	runtime := hostFile(t, e.Config.Runtime, "")
	script := "#!/nix/runtime/bin/sh\nexec /nix/runtime/bin/agentix-runtime --python /usr/bin/python3 --project /nix/code\n"
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, data := range map[string][]byte{
		"nix/runtime/bootstrap.sh": []byte(script), "nix/runtime/bin/agentix-runtime": runtime,
		"nix/runtime/bin/sh": hostFile(t, "/bin/busybox", "busybox-static"), "nix/code/probe.py": []byte("import os\ndef run(x): return x + 1\ndef end(): os.kill(os.getppid(), 9)\n"),
	} {
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}), second(w.Write(data))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	bundle, err := importBundle(t, e, "", buf.Bytes())
	if err != nil || !bundle.GetServer() {
		t.Fatalf("%v, %v", bundle, err)
	}
	e.Template.Project = ""
	e.Template.Bundle = bundle.GetName()
	e.Template.ExposeRuntime = true
	made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: e.Template})
	if err != nil {
		t.Fatal(err)
	}
	sandbox := made.GetName()
	exposed, err := url.Parse(made.GetRuntime().GetUrl())
	if err != nil || exposed.User == nil {
		t.Fatalf("exposed at %s, %v", made.GetRuntime().GetUrl(), err)
	}
	for user, want := range map[*url.Userinfo]int{exposed.User: http.StatusOK, nil: http.StatusUnauthorized} {
		at := url.URL{Scheme: exposed.Scheme, Host: exposed.Host, Path: "/health", User: user}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("health of the exposed server: HTTP %d, want %d", response.StatusCode, want)
		}
	}
	call := func(ctx context.Context) {
		t.Helper()
		got, err := e.Remote.Remote(ctx, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "probe::run", Args: "[41]"})
		if err != nil || got.GetValue() != "42" {
			t.Errorf("call = %v, %v", got, err)
		}
	}
	call(t.Context())
	e.Stop(t)
	e.Boot(t)
	call(t.Context())
	got, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "probe::end"})
	if err != nil || got.GetError().GetType() != "SandboxLost" {
		t.Errorf("the server's end: %v, %v", got, err)
	}
	bad := &agentixv1.Sandbox{Image: "python", Bundle: bundle.GetName(), Workers: 2}
	if _, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: bad}); err == nil || !strings.Contains(err.Error(), "sandbox.workers") {
		t.Errorf("with workers: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
