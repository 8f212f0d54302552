// Package dockerconfig reads registry credentials as `docker login` keeps them: from a
// config.json, or from the credential helper that it names. The file belongs to whoever runs
// the program; what a helper answers is bounded and checked.
package dockerconfig

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	maxFileBytes  = 1 << 20 // 1 MiB of config.json
	helperTimeout = 10 * time.Second
)

// Credentials are what to show to one registry. They are secrets.
type Credentials struct {
	Username, Password string
	IdentityToken      string // an OAuth2 refresh token, instead of both
}

// String hides the credentials.
func (Credentials) String() string { return "[redacted]" }

// GoString hides the credentials.
func (Credentials) GoString() string { return "[redacted]" }

// Config is a config.json.
type Config struct {
	auths   map[string]auth
	helpers map[string]string // by registry
	store   string            // helper of all others
}

type auth struct {
	Auth          string `json:"auth"` // base64 of user:password
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
}

// DefaultPath is $DOCKER_CONFIG/config.json, else ~/.docker/config.json; empty if neither is known.
func DefaultPath() string {
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return filepath.Join(dir, "config.json")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".docker", "config.json")
}

// Load reads a file. One that is not there has no credentials.
func Load(path string) (Config, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("read registry credentials: %w", err)
	}
	if info.Size() > maxFileBytes {
		return Config{}, fmt.Errorf("read registry credentials: %s has %d bytes; at most %d are read", path, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read registry credentials: %w", err)
	}
	c, err := parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("read registry credentials from %s: %w", path, err)
	}
	return c, nil
}

// parse reads the file's text. Its errors never quote it: it holds passwords.
func parse(data []byte) (Config, error) {
	var file struct {
		Auths       map[string]auth   `json:"auths"`
		CredHelpers map[string]string `json:"credHelpers"`
		CredsStore  string            `json:"credsStore"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Config{}, errors.New("it is no JSON as docker writes it")
	}
	c := Config{auths: map[string]auth{}, helpers: map[string]string{}, store: file.CredsStore}
	for key, a := range file.Auths {
		c.auths[Host(key)] = a
	}
	for key, helper := range file.CredHelpers {
		c.helpers[Host(key)] = helper
	}
	return c, nil
}

// Host is the registry that a key of config.json, or of an image's name, means.
func Host(key string) string {
	for _, scheme := range []string{"https://", "http://"} {
		key = strings.TrimPrefix(key, scheme)
	}
	host, _, _ := strings.Cut(key, "/")
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// RegistryOf is the registry that an image reference names, as docker reads it.
func RegistryOf(reference string) string {
	host, _, slash := strings.Cut(reference, "/")
	if slash && (host == "localhost" || strings.ContainsAny(host, ".:") || strings.ToLower(host) != host) {
		return Host(host)
	}
	return "docker.io"
}

// For returns the credentials for a registry; ok is false if there are none.
func (c Config) For(ctx context.Context, registry string) (_ Credentials, ok bool, err error) {
	host := Host(registry)
	if helper := c.helpers[host]; helper != "" {
		return askHelper(ctx, helper, host)
	}
	if a, ok := c.auths[host]; ok && a != (auth{}) {
		creds, err := a.credentials()
		if err != nil {
			return Credentials{}, false, fmt.Errorf("credentials for %s: %w", host, err)
		}
		return creds, true, nil
	}
	if c.store != "" {
		return askHelper(ctx, c.store, host)
	}
	return Credentials{}, false, nil
}

func (a auth) credentials() (Credentials, error) {
	creds := Credentials{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken}
	if a.Auth == "" {
		return creds, nil
	}
	text, err := base64.StdEncoding.DecodeString(a.Auth)
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok {
		return Credentials{}, errors.New("auth is not the base64 of user:password")
	}
	creds.Username, creds.Password = user, strings.TrimRight(password, "\x00")
	return creds, nil
}

var helperName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// askHelper runs docker-credential-NAME get.
func askHelper(ctx context.Context, name, host string) (Credentials, bool, error) {
	if !helperName.MatchString(name) {
		return Credentials{}, false, fmt.Errorf("credential helper %.80q must match %s", name, helperName)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helperTimeout, errors.New("the credential helper does not answer"))
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker-credential-"+name, "get")
	key := host
	if host == "docker.io" {
		key = "https://index.docker.io/v1/"
	}
	cmd.Stdin = strings.NewReader(key)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		if bytes.Contains(out, []byte("not found")) { // how helpers say that they have none
			return Credentials{}, false, nil
		}
		return Credentials{}, false, fmt.Errorf("run credential helper docker-credential-%s: %w", name, err)
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(out, &answer); err != nil {
		return Credentials{}, false, fmt.Errorf("credential helper docker-credential-%s: its answer is no JSON", name)
	}
	if answer.Username == "<token>" {
		return Credentials{IdentityToken: answer.Secret}, true, nil
	}
	return Credentials{Username: answer.Username, Password: answer.Secret}, true, nil
}
