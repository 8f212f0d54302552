package external

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string, allow ...string) *Provider {
	t.Helper()
	p, err := New(providers.Config{StateDir: dir, ExternalAllow: allow})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestContract(t *testing.T) {
	sockets, err := os.MkdirTemp("", "agx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	providertest.Run(t, providertest.Features{
		New: func(t testing.TB, stateDir, _ string) providers.Provider { return open(t, stateDir, "unix://"+sockets) },
		Foreign: func(t testing.TB, stub string) string {
			dir, err := os.MkdirTemp(sockets, "r")
			if err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(dir, "s")
			cmd := exec.Command(stub, "--socket", socket)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			await.True(t, func() bool { _, err := os.Stat(socket); return err == nil }, "the stub's socket")
			return "unix://" + socket
		},
	})
}

// TestR11_SecretsStay: the user info of a URL is in one file of the daemon's own, and in no
// error text.
func TestR11_SecretsStay(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, "127.0.0.1/32")
	h, err := p.Create(t.Context(), providers.Spec{ID: "one", RuntimeURL: "http://me:hunter2@127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "one.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("record: %v, %v", info, err)
	}
	if f := h.(providers.Foreigner).Foreign(); f.Host != "127.0.0.1:1" || f.Authorization != "Basic bWU6aHVudGVyMg==" {
		t.Errorf("foreign: %+v", f)
	}
	if _, err := h.Dial(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("dial: %v", err)
	}
	for _, url := range []string{
		"http://me:hunter2@10.1.2.3:1", "http://me:hunter2@nowhere.invalid:1", "ftp://me:hunter2@127.0.0.1", "http://me:hunter2@127.0.0.1/path",
		"http://me:hunter2@127.0.0.1:99999", "http://me:hunter2@:80", "unix://me:hunter2@host/run/x", "http://me:hunter2@127.0.0.1:1?q", "http://me:hunter2@[::1",
		"http://me:hun ter2@127.0.0.1", "http:me:hunter2", "//me:hunter2@127.0.0.1", "http://me:hunter2%@127.0.0.1/", "hunter2", "http://me:hunter2@127.0.0.1\x00",
		"http://me:hunter2@" + strings.Repeat("x", 3000),
	} {
		_, err := p.Create(t.Context(), providers.Spec{ID: "two", RuntimeURL: url})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.60q: %v", url, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOffByDefault: without an allowed address nothing can be joined, nor what was joined
// before be reached.
func TestOffByDefault(t *testing.T) {
	dir := t.TempDir()
	if _, err := open(t, dir, "127.0.0.0/8").Create(t.Context(), providers.Spec{ID: "before", RuntimeURL: "http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	p := open(t, dir)
	_, err := p.Create(t.Context(), providers.Spec{ID: "one", RuntimeURL: "http://127.0.0.1:1"})
	if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "--external-allow") {
		t.Errorf("create: %v", err)
	}
	h, err := p.Get(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Dial(t.Context()); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("dial: %v", err)
	}
	if err := p.Delete(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
}

// TestAddresses: what is refused although everything is allowed, and what a range admits.
func TestAddresses(t *testing.T) {
	all, err := ParseAllow([]string{"0.0.0.0/0", "::/0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1",
		"255.255.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::169.254.169.254", "::169.254.169.254", "2002:a9fe:a9fe::1", "64:ff9b::",
	} {
		if all.address(netip.MustParseAddr(text)) {
			t.Errorf("%s is admitted", text)
		}
	}
	for _, text := range []string{"127.0.0.1", "::1", "10.0.0.1", "::ffff:10.0.0.1", "8.8.8.8", "2001:db8::1", "64:ff9b::808:808", "fd00::1", "2002:808:808::1"} {
		if !all.address(netip.MustParseAddr(text)) {
			t.Errorf("%s is refused", text)
		}
	}
	some, err := ParseAllow([]string{"10.1.0.0/16", "192.168.7.9", "fd12::/16", "::ffff:172.16.0.0/108", "/run/a", "unix:///run/b/"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"10.1.2.3": true, "10.2.0.1": false, "192.168.7.9": true, "192.168.7.8": false, "fd12::9": true, "fd13::9": false, "::ffff:10.1.2.3": true, "127.0.0.1": false,
		"172.16.5.6": true, "172.32.0.1": false,
	} {
		if got := some.address(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	for path, want := range map[string]bool{"/run/a": true, "/run/a/x": true, "/run/ab": false, "/run/b/c/d": true, "/run": false, "/": false} {
		if _, _, got := some.socket(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	for _, bad := range []string{"", "example.org", "10.0.0.0/33", "unix:relative", "run/x", "fe80::1%eth0", "::ffff:0:0/90"} {
		if _, err := ParseAllow([]string{bad}); err == nil || !strings.Contains(err.Error(), "external-allow") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestAddressIsCheckedAtEveryDial: a name that leads elsewhere later is not followed there,
// and the connection goes to the address that was checked.
func TestAddressIsCheckedAtEveryDial(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, t.TempDir(), "127.0.0.1")
	var asked []string
	answers := [][]string{{"127.0.0.1"}, {"169.254.169.254", "127.0.0.1"}, {"169.254.169.254", "127.0.0.2"}}
	p.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		asked = append(asked, host)
		if len(answers) == 0 {
			return nil, errors.New("no such host")
		}
		var all []netip.Addr
		for _, a := range answers[0] {
			all = append(all, netip.MustParseAddr(a))
		}
		answers = answers[1:]
		return all, nil
	}
	h, err := p.Create(t.Context(), providers.Spec{ID: "moving", RuntimeURL: "http://runtime.example:" + port})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := h.Dial(t.Context())
	if err != nil || conn.RemoteAddr().String() != ln.Addr().String() {
		t.Fatalf("dial: %v, %v", conn, err)
	}
	_ = conn.Close()
	if _, err := h.Dial(t.Context()); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("dial of a name that moved: %v", err)
	}
	if _, err := h.Dial(t.Context()); err == nil || errs.Is(err, errs.PermissionDenied) {
		t.Errorf("dial of a name that is gone: %v", err)
	}
	if want := slices.Repeat([]string{"runtime.example"}, 4); !slices.Equal(asked, want) {
		t.Errorf("asked for %v", asked)
	}
}

// TestSocketsAreNotFollowed: below an allowed path no symlink leads out of it.
func TestSocketsAreNotFollowed(t *testing.T) {
	root, err := os.MkdirTemp("", "agx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	for _, name := range []string{"in", "out"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(root, name, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
	}
	for link, target := range map[string]string{"link": "../out/s", "dir": "../out", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(root, "in", link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "in", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, t.TempDir(), root+"/in")
	for name, want := range map[string]bool{"s": true, "link": false, "dir/s": false, "loop": false, "file": false, "none": false} {
		h, err := p.Create(t.Context(), providers.Spec{ID: "x", RuntimeURL: "unix://" + root + "/in/" + name})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := h.Dial(t.Context())
		if want != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = conn.Close()
		}
		if err := p.Delete(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Create(t.Context(), providers.Spec{ID: "x", RuntimeURL: "unix://" + root + "/out/s"}); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("outside: %v", err)
	}
}

// TestTLS: https means that the certificate is checked.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	p := open(t, t.TempDir(), "127.0.0.0/8")
	h, err := p.Create(t.Context(), providers.Spec{ID: "tls", RuntimeURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("self-signed: %v", err)
	}
}

// TestDamagedRecord: it can still be listed and deleted, and leads nowhere.
func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"bad.json": "{", "half.json.new": "{}", "other": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, dir, "127.0.0.1")
	h, err := p.Get(t.Context(), "bad")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Dial(t.Context()); err == nil {
		t.Error("a damaged record led somewhere")
	}
	if err := p.Delete(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "other" {
		t.Errorf("left: %v, %v", entries, err)
	}
}
