//go:build containerd

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// snapshotProject changes a root file system in every way that a layer must carry.
const snapshotProject = `
import os, shutil, stat, threading

WSGIREF = os.path.dirname(os.__file__) + "/wsgiref"

def change() -> str:
    os.makedirs("/srv/data/deep")
    open("/srv/data/deep/file", "w").write("hello")
    os.link("/srv/data/deep/file", "/srv/hard")
    os.symlink("/etc/passwd", "/srv/soft")
    os.chmod("/srv/data", 0o700)
    os.mkfifo("/srv/pipe")
    os.remove("/usr/bin/pdb3")
    shutil.rmtree(WSGIREF)
    os.mkdir(WSGIREF)
    open(WSGIREF + "/mark", "w").write("new")
    os.setxattr("/srv/hard", "user.color", b"red")
    return "changed"

def look() -> list:
    return [
        open("/srv/data/deep/file").read(), os.stat("/srv/hard").st_nlink, os.readlink("/srv/soft"),
        oct(os.stat("/srv/data").st_mode & 0o7777), stat.S_ISFIFO(os.stat("/srv/pipe").st_mode),
        os.path.exists("/usr/bin/pdb3"), os.path.exists("/usr/bin/python3"), os.listdir(WSGIREF), os.stat("/srv/hard").st_uid,
    ]

def writer() -> str:
    os.makedirs("/srv", exist_ok=True)
    def run():
        n = 0
        while True:
            n += 1
            with open("/srv/a", "w") as f: f.write(str(n))
            with open("/srv/b", "w") as f: f.write(str(n))
    threading.Thread(target=run, daemon=True).start()
    return "writing"

def sparse() -> int:
    with open("/srv/sparse", "wb") as f:
        f.truncate(1 << 40)
    return os.stat("/srv/sparse").st_blocks
`

// TestSnapshot: an image of a sandbox has all that it changed, and forks of it go their own ways;
// over REST, of a paused one, and of one that writes all the time.
func TestSnapshot(t *testing.T) {
	e := daemontest.Start(t, configure)
	prepare(t, e)
	e.WriteProject(t, map[string]string{"app.py": snapshotProject})
	create := func(image string, resources *agentixv1.Resources, security *agentixv1.Security) string {
		t.Helper()
		made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{
			Sandbox: &agentixv1.Sandbox{Image: image, Project: e.Project, Resources: resources, Security: security},
		})
		if err != nil {
			t.Fatal(err)
		}
		return made.GetName()
	}
	call := func(sandbox, callable, args string) string {
		t.Helper()
		got, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: callable, Args: args})
		if err != nil || got.GetError() != nil {
			t.Fatalf("%s: %v, %v", callable, got, err)
		}
		return got.GetValue()
	}
	snapshot := func(sandbox, image string) error {
		t.Helper()
		made, err := e.Sandboxes.SnapshotSandbox(t.Context(), &agentixv1.SnapshotSandboxRequest{Name: sandbox, Image: image})
		if err == nil && (made.GetName() != image || !strings.HasPrefix(made.GetDigest(), "sha256:")) {
			t.Errorf("image = %v", made)
		}
		return err
	}
	const want = `["hello",2,"/etc/passwd","0o700",true,false,true,["mark"],0]`
	for name, kind := range map[string]struct {
		resources *agentixv1.Resources
		security  *agentixv1.Security
	}{
		"plain": {}, "quota": {resources: &agentixv1.Resources{DiskBytes: 256 << 20}}, "userns": {security: &agentixv1.Security{UserNamespace: true}},
	} {
		t.Run(name, func(t *testing.T) {
			origin := create("python", kind.resources, kind.security)
			call(origin, "app::change", "")
			if err := snapshot(origin, "of-"+name); err != nil {
				t.Fatal(err)
			}
			for _, fork := range []string{create("of-"+name, nil, nil), create("of-"+name, kind.resources, kind.security), origin} {
				if got := call(fork, "app::look", ""); got != want {
					t.Errorf("%s has %s, want %s", fork, got, want)
				}
			}
		})
	}

	box := create("python", nil, nil)
	call(box, "app::writer", "")
	if _, err := e.Sandboxes.PauseSandbox(t.Context(), &agentixv1.PauseSandboxRequest{Name: box}); err != nil {
		t.Fatal(err)
	}
	if err := snapshot(box, "paused"); err != nil {
		t.Error(err)
	}
	if got, err := e.Sandboxes.GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: box}); err != nil || got.GetState() != agentixv1.SandboxState_SANDBOX_STATE_PAUSED {
		t.Errorf("after the snapshot: %v, %v", got, err)
	}
	if _, err := e.Sandboxes.ResumeSandbox(t.Context(), &agentixv1.ResumeSandboxRequest{Name: box}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // while it writes
		if err := snapshot(box, fmt.Sprint("live-", i)); err != nil {
			t.Error(err)
		}
	}
	create("live-2", nil, nil)

	if blocks := call(box, "app::sparse", ""); blocks != "0" {
		t.Logf("a sparse file of 1 TiB has %s blocks", blocks)
	}
	if err := snapshot(box, "huge"); err == nil || !strings.Contains(err.Error(), "snapshot_bytes") {
		t.Errorf("of a sparse file of 1 TiB: %v", err)
	}
	post := func(sandbox, body string, want int) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/v1/"+sandbox+":snapshot", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := e.HTTP.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("POST %s:snapshot %s: HTTP %d, want %d", sandbox, body, response.StatusCode, want)
		}
	}
	other := create("python", nil, nil)
	post(other, `{"image": "by-rest"}`, http.StatusOK)
	post(other, `{"image": "not a name"}`, http.StatusBadRequest)
	post(other, `{}`, http.StatusBadRequest)
	post("sandboxes/none", `{"image": "x"}`, http.StatusNotFound)
}
