//go:build docker

package docker_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/await"
)

// daemon is a dockerd of the tests' own: its own directories and socket, no network. One of the
// host's is not touched.
type daemon struct {
	host, dir string
	cmd       *exec.Cmd
	exited    chan struct{}
}

func startDocker(t testing.TB) *daemon {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Fatalf("dockerd is missing (apt-get install docker.io): %v", err)
	}
	dir, err := os.MkdirTemp("", "agd") // short: sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{dir: dir, host: "unix://" + filepath.Join(dir, "d.sock")}
	t.Cleanup(func() {
		d.stop(t)
		for _, path := range mountsBelow(t, dir) {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove docker's directory: %v", err)
		}
	})
	d.start(t)
	return d
}

func (d *daemon) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	in := func(name string) string { return filepath.Join(d.dir, name) }
	cmd := exec.Command("dockerd", "--config-file", in("none.json"), "--live-restore", "--iptables=false", "--bridge=none",
		"--data-root", in("data"), "--exec-root", in("exec"), "-H", d.host, "-p", in("pid"))
	if err := os.WriteFile(in("none.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.cmd, d.exited = cmd, make(chan struct{})
	go func() { // ends with the process, which stop waits for
		defer close(d.exited)
		_ = cmd.Wait()
	}()
	await.True(t, d.serves, "an answer of dockerd")
}

// transport reaches dockerd, by a connection for each request.
func (d *daemon) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(d.host, "unix://"))
	}}
}

func (d *daemon) serves() bool {
	client := http.Client{Timeout: time.Second, Transport: d.transport()}
	resp, err := client.Get("http://docker/_ping")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// leave ends dockerd and the containerd that it started; containers go on, as it is set up.
func (d *daemon) leave(t testing.TB) {
	t.Helper()
	if err := d.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stop dockerd: %v", err)
	}
	select {
	case <-d.exited:
	case <-time.After(20 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.exited
	}
}

// stop ends everything. What a test left behind fails it.
func (d *daemon) stop(t testing.TB) {
	t.Helper()
	if d.serves() {
		var left []struct {
			ID string `json:"Id"`
		}
		ask(t, d, http.MethodGet, "/containers/json?all=1", "", &left)
		for _, c := range left {
			t.Errorf("container left: %s", c.ID)
			ask(t, d, http.MethodDelete, "/containers/"+c.ID+"?force=1&v=1", "", nil)
		}
	}
	if t.Failed() {
		if data, err := os.ReadFile(filepath.Join(d.dir, "log")); err == nil {
			t.Logf("dockerd's log ends with:\n%s", data[max(0, len(data)-3000):])
		}
	}
	d.leave(t)
}

func mountsBelow(t testing.TB, dir string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			paths = append([]string{fields[1]}, paths...)
		}
	}
	return paths
}
