package config_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/config"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func environment(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agentixd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLaterSourcesWin(t *testing.T) {
	file := write(t, "state-dir: /file\nhttp: 127.0.0.1:1\nprovider: process\nallow-host-path: [/file/a, /file/b]\nshutdown-grace: 3s\nlog-level: debug\n")
	env := environment(map[string]string{
		"AGENTIXD_CONFIG": file, "AGENTIXD_HTTP": "127.0.0.1:2", "AGENTIXD_ALLOW_HOST_PATH": "/env/a:/env/b",
		"AGENTIXD_INSECURE_PROCESS_AS_ROOT": "true", "AGENTIXD_CONTAINERD_ADDRESS": "/env/containerd.sock", "AGENTIXD_DOCKER_HOST": "unix:///run/d.sock", "AGENTIX_LOG_DIR": "/env/logs",
		"AGENTIXD_EXTERNAL_ALLOW": "fd00::/8,unix:///run/a",
	})
	got, err := config.Load([]string{"--http", "127.0.0.1:3", "--runtime=/flag/runtime"}, env, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		StateDir: "/file", Socket: "/file/agentixd.sock", HTTP: "127.0.0.1:3", Provider: "process",
		ContainerdAddress: "/env/containerd.sock", DockerHost: "unix:///run/d.sock", Runtime: "/flag/runtime", LogDir: "/env/logs",
		AllowHostPath: []string{"/env/a", "/env/b"}, ExternalAllow: []string{"fd00::/8", "unix:///run/a"}, InsecureProcessAsRoot: true,
		ShutdownGrace: 3 * time.Second, LogLevel: "debug", LogFormat: "text", Events: config.Default().Events,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	got, err = config.Load([]string{"--allow-host-path", "/one", "--allow-host-path", "/two", "--config", file}, environment(nil), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.AllowHostPath, []string{"/one", "/two"}); diff != "" {
		t.Error(diff)
	}
}

func TestJSONFile(t *testing.T) {
	got, err := config.Load([]string{"--config", write(t, `{"state-dir": "/json", "log-format": "json"}`)}, environment(nil), io.Discard)
	if err != nil || got.StateDir != "/json" || got.LogFormat != "json" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLoadRefusals(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		says string
	}{
		{args: []string{"--nope"}, says: "unknown flag: --nope"},
		{args: []string{"serve"}, says: `unexpected argument "serve"`},
		{args: []string{"--config", "/does/not/exist"}, says: "read config file: open /does/not/exist"},
		{args: []string{"--config", write(t, "stat-dir: /x\n")}, says: "field stat-dir not found"},
		{args: []string{"--config", write(t, "http: [1]\n")}, says: "cannot unmarshal"},
		{env: map[string]string{"AGENTIXD_INSECURE_PROCESS_AS_ROOT": "maybe"}, says: `AGENTIXD_INSECURE_PROCESS_AS_ROOT: "maybe" is none of true, false`},
		{env: map[string]string{"AGENTIXD_SHUTDOWN_GRACE": "soon"}, says: "AGENTIXD_SHUTDOWN_GRACE"},
	} {
		_, err := config.Load(c.args, environment(c.env), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v %v: got %v, want %q in it", c.args, c.env, err, c.says)
		}
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	base := func() config.Config {
		c := config.Default()
		c.StateDir = "/s"
		c, err := c.Complete()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := base().Validate(); err != nil {
		t.Fatalf("the default is refused: %v", err)
	}
	for says, change := range map[string]func(*config.Config){
		`http: "0.0.0.0:7070" is not a loopback address`:              func(c *config.Config) { c.HTTP = "0.0.0.0:7070" },
		`http: ":7070" is not a loopback address`:                     func(c *config.Config) { c.HTTP = ":7070" },
		`http: "example.com:80" is not a loopback address`:            func(c *config.Config) { c.HTTP = "example.com:80" },
		`http: "7070" must be HOST:PORT`:                              func(c *config.Config) { c.HTTP = "7070" },
		`provider: "podman" is none of auto, containerd, docker, pro`: func(c *config.Config) { c.Provider = "podman" },
		`socket: the path has 108 bytes; a Unix socket's path has at`: func(c *config.Config) { c.Socket = "/" + strings.Repeat("s", 107) },
		`state-dir: must name a directory`:                            func(c *config.Config) { c.StateDir = "" },
		`log-level: "loud" is none of`:                                func(c *config.Config) { c.LogLevel = "loud" },
		`log-format: "xml" is none of`:                                func(c *config.Config) { c.LogFormat = "xml" },
		`shutdown-grace: must not be negative`:                        func(c *config.Config) { c.ShutdownGrace = -1 },
		`http-host: "http://x" must be a host name`:                   func(c *config.Config) { c.HTTPHosts = []string{"http://x"} },
	} {
		c := base()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q in it", err, says)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:80", "[::1]:80", "127.8.8.8:1"} {
		c := base()
		c.HTTP = address
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	c := base()
	c.Socket = "/" + strings.Repeat("s", 106)
	if err := c.Validate(); err != nil {
		t.Errorf("a path of 107 bytes: %v", err)
	}
}

// The names of the flags are a promise to scripts.
func TestHelpNamesEveryFlag(t *testing.T) {
	var out bytes.Buffer
	_, err := config.Load([]string{"--help"}, environment(nil), &out)
	if !errors.Is(err, pflag.ErrHelp) {
		t.Fatalf("got %v", err)
	}
	for _, name := range []string{
		"state-dir", "socket", "http", "provider", "containerd-address", "docker-host", "runtime", "log-dir", "allow-host-path", "external-allow", "allow-host-network", "config", "insecure-process-as-root",
	} {
		if !strings.Contains(out.String(), "--"+name+" ") {
			t.Errorf("--%s is not in the help:\n%s", name, out.String())
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("state-dir: /x\n")
	f.Add(`{"http": 1}`)
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := config.Load([]string{"--config", write(t, text)}, environment(nil), io.Discard)
		if err != nil && err.Error() == "" {
			t.Error("an error without text")
		}
	})
}
