package dockerconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const file = `{
  "auths": {
    "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
    "ghcr.io": {"identitytoken": "refresh"},
    "http://plain:5000/v2/": {"username": "u", "password": "p:q"},
    "broken": {"auth": "%%%"},
    "stored": {}
  },
  "credHelpers": {"helped": "test", "token": "tokens", "bad": "../../evil"},
  "credsStore": "store"
}`

// helpers puts credential helpers on the PATH.
func helpers(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"test":   `read host; echo "{\"ServerURL\":\"$host\",\"Username\":\"of-$host\",\"Secret\":\"s\"}"`,
		"tokens": `echo '{"Username":"<token>","Secret":"t"}'`,
		"store":  `echo "credentials not found in native keychain"; exit 1`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // A program.
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestFor(t *testing.T) {
	helpers(t)
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]Credentials{
		"docker.io":  {Username: "hub", Password: "pw"},
		"ghcr.io":    {IdentityToken: "refresh"},
		"plain:5000": {Username: "u", Password: "p:q"},
		"helped":     {Username: "of-helped", Password: "s"},
		"token":      {IdentityToken: "t"},
	} {
		if got, ok, err := c.For(t.Context(), host); err != nil || !ok || got != want {
			t.Errorf("%s: %q %q %q, %v, %v", host, got.Username, got.Password, got.IdentityToken, ok, err)
		}
	}
	for _, host := range []string{"stored", "elsewhere", "ghcr.io.evil", "io"} {
		if _, ok, err := c.For(t.Context(), host); ok || err != nil {
			t.Errorf("%s: %v, %v; want none", host, ok, err)
		}
	}
	for _, host := range []string{"broken", "bad"} {
		if _, ok, err := c.For(t.Context(), host); ok || err == nil || strings.Contains(err.Error(), "%%%") {
			t.Errorf("%s: %v, %v; want an error that does not quote the secret", host, ok, err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if c, err := Load(filepath.Join(dir, "none")); err != nil || len(c.auths) != 0 {
		t.Errorf("no file: %+v, %v", c, err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte(`{"auths": {"x": {"password": hunter2}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(bad); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), bad) {
		t.Errorf("a broken file: %v; want its name and not its text", err)
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, 1048577), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("1 MiB and a byte: %v", err)
	}
}

func TestRegistryOf(t *testing.T) {
	for reference, want := range map[string]string{
		"python": "docker.io", "python:3.12": "docker.io", "library/python": "docker.io", "docker.io/x/y": "docker.io", "index.docker.io/x/y": "docker.io",
		"ghcr.io/a/b:1": "ghcr.io", "localhost/a": "localhost", "host:5000/a": "host:5000", "[::1]:5000/a@sha256:0": "[::1]:5000",
	} {
		if got := RegistryOf(reference); got != want {
			t.Errorf("%s: %s, want %s", reference, got, want)
		}
	}
}
