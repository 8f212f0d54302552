// Package config is the daemon's configuration: defaults, then a file, then the
// environment, then flags. It is plain data from a trusted operator; Validate names
// what is wrong and what would be right.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MaxSocketPathBytes is the longest path that a Unix socket can have on Linux.
const MaxSocketPathBytes = 107

// Config is all that an operator can set. The yaml keys are the names of the flags.
type Config struct {
	// StateDir holds the database, the token and everything else that must outlive the daemon.
	StateDir string `yaml:"state-dir"`
	// Socket is the path of the Unix socket; gRPC and HTTP share it.
	Socket string `yaml:"socket"`
	// HTTP is the loopback address for gRPC and HTTP with a token; empty = none.
	HTTP string `yaml:"http"`
	// HTTPHosts are further names that a Host or Origin header may have, besides the loopback ones.
	HTTPHosts []string `yaml:"http-host"`
	// Provider is the engine: auto, containerd, docker or process.
	Provider string `yaml:"provider"`
	// ContainerdAddress is the socket of containerd.
	ContainerdAddress string `yaml:"containerd-address"`
	// DockerHost is the address of the Docker Engine: unix:// and an absolute path.
	DockerHost string `yaml:"docker-host"`
	// Runtime is the agentix-runtime binary.
	Runtime string `yaml:"runtime"`
	// LogDir gets one text log per sandbox.
	LogDir string `yaml:"log-dir"`
	// Events is how long events and text logs are kept.
	Events Events `yaml:",inline"`
	// AllowHostPath are the prefixes below which clients on the Unix socket may name host directories.
	AllowHostPath []string `yaml:"allow-host-path"`
	// ExternalAllow are the addresses and socket paths at which clients may join runtimes that
	// someone else runs: ranges (10.0.0.0/8), addresses, absolute paths. None = that is off.
	ExternalAllow []string `yaml:"external-allow"`
	// RegistryConfig is a config.json as docker writes it, with credentials for pulls that bring none; empty = none.
	RegistryConfig string `yaml:"registry-config"`
	// AllowHostNetwork lets clients give sandboxes the host's network.
	AllowHostNetwork bool `yaml:"allow-host-network"`
	// BridgePool is the IPv4 range of bridged sandboxes' addresses; empty = one in 10.208.0.0/12.
	BridgePool string `yaml:"bridge-pool"`
	// InsecureProcessAsRoot lets the process provider, which isolates nothing, run as root.
	InsecureProcessAsRoot bool `yaml:"insecure-process-as-root"`
	// ParallelStarts is how many sandboxes start at once, the others wait in order; 0 = twice
	// the processors.
	ParallelStarts int `yaml:"parallel-starts"`
	// ShutdownGrace is how long running calls may go on after the first signal.
	ShutdownGrace time.Duration `yaml:"shutdown-grace"`
	// LogLevel is the least level that the daemon logs: debug, info, warn or error.
	LogLevel string `yaml:"log-level"`
	// LogFormat is text or json.
	LogFormat string `yaml:"log-format"`
}

// Providers are the values of Config.Provider.
var Providers = []string{"auto", "containerd", "docker", "process"}

// Default returns the configuration of an empty command line. Fields that depend on
// others (Socket, LogDir) are empty until Complete.
func Default() Config {
	return Config{
		StateDir:          DefaultStateDir(),
		Provider:          "auto",
		ContainerdAddress: "/run/containerd/containerd.sock",
		DockerHost:        "unix:///var/run/docker.sock",
		Runtime:           defaultRuntime(),
		Events:            defaultEvents(),
		ShutdownGrace:     10 * time.Second,
		LogLevel:          "info",
		LogFormat:         "text",
	}
}

// DefaultStateDir is /var/lib/agentix for root, else agentix in the user's state directory.
func DefaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/agentix"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agentix")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "agentix")
	}
	return ""
}

// SocketIn is the default socket of a state directory.
func SocketIn(stateDir string) string { return filepath.Join(stateDir, "agentixd.sock") }

// TokenFile holds the token that clients on TCP must send; the daemon makes it.
func (c Config) TokenFile() string { return filepath.Join(c.StateDir, "token") }

// Complete fills the fields that depend on others and makes paths absolute.
func (c Config) Complete() (Config, error) {
	if c.Socket == "" && c.StateDir != "" {
		c.Socket = SocketIn(c.StateDir)
	}
	if c.LogDir == "" && c.StateDir != "" {
		c.LogDir = filepath.Join(c.StateDir, "logs")
	}
	c.AllowHostPath = slices.Clone(c.AllowHostPath)
	paths := []*string{&c.StateDir, &c.Socket, &c.LogDir, &c.Runtime, &c.ContainerdAddress, &c.RegistryConfig}
	for i := range c.AllowHostPath {
		paths = append(paths, &c.AllowHostPath[i])
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return c, fmt.Errorf("make path %q absolute: %w", *path, err)
		}
		*path = absolute
	}
	return c, nil
}

// Validate reports everything that is wrong with a completed configuration.
func (c Config) Validate() error {
	var problems []error
	bad := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.StateDir == "" {
		bad("state-dir", "must name a directory")
	}
	if c.Socket == "" {
		bad("socket", "must name a path")
	}
	if len(c.Socket) > MaxSocketPathBytes {
		bad("socket", "the path has %d bytes; a Unix socket's path has at most %d, name a shorter one", len(c.Socket), MaxSocketPathBytes)
	}
	if c.HTTP != "" {
		if err := checkLoopback(c.HTTP); err != nil {
			bad("http", "%v", err)
		}
	}
	if !slices.Contains(Providers, c.Provider) {
		bad("provider", "%q is none of %s", c.Provider, strings.Join(Providers, ", "))
	}
	if c.Runtime == "" {
		bad("runtime", "must name the agentix-runtime binary")
	}
	for _, prefix := range c.AllowHostPath {
		if prefix == "" {
			bad("allow-host-path", "must not be empty")
		}
	}
	for _, host := range c.HTTPHosts {
		if host == "" || strings.ContainsAny(host, "/:@ ") {
			bad("http-host", "%q must be a host name without scheme and port", host)
		}
	}
	if c.RegistryConfig != "" {
		if info, err := os.Stat(c.RegistryConfig); err != nil || !info.Mode().IsRegular() {
			bad("registry-config", "%s is no file", c.RegistryConfig)
		}
	}
	if c.ParallelStarts < 0 {
		bad("parallel-starts", "must be 0 (twice the processors) or more")
	}
	c.Events.validate(bad)
	if c.ShutdownGrace < 0 {
		bad("shutdown-grace", "must not be negative")
	}
	if _, err := c.level(); err != nil {
		bad("log-level", "%q is none of debug, info, warn, error", c.LogLevel)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		bad("log-format", "%q is none of text, json", c.LogFormat)
	}
	return errors.Join(problems...)
}

// Level is the least level to log; Info if LogLevel is not valid.
func (c Config) Level() slog.Level {
	level, err := c.level()
	if err != nil {
		return slog.LevelInfo
	}
	return level
}

func (c Config) level() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(c.LogLevel))
	return level, err
}

// LogValue is the effective configuration for the start-up log. No field of Config is a
// secret: the token is in its own file and never in a configuration.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("state-dir", c.StateDir), slog.String("socket", c.Socket), slog.String("http", c.HTTP),
		slog.Any("http-host", c.HTTPHosts), slog.String("provider", c.Provider),
		slog.String("containerd-address", c.ContainerdAddress), slog.String("docker-host", c.DockerHost), slog.String("runtime", c.Runtime),
		slog.String("log-dir", c.LogDir), slog.Any("events", c.Events), slog.Any("allow-host-path", c.AllowHostPath), slog.Any("external-allow", c.ExternalAllow),
		slog.String("registry-config", c.RegistryConfig),
		slog.Bool("allow-host-network", c.AllowHostNetwork), slog.String("bridge-pool", c.BridgePool), slog.Bool("insecure-process-as-root", c.InsecureProcessAsRoot),
		slog.Int("parallel-starts", c.ParallelStarts),
		slog.Duration("shutdown-grace", c.ShutdownGrace), slog.String("log-level", c.LogLevel),
		slog.String("log-format", c.LogFormat),
	)
}

// checkLoopback refuses every address that other machines could reach: the token crosses in clear text.
func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q must be HOST:PORT, for example 127.0.0.1:7070", address)
	}
	if host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%q is not a loopback address; use 127.0.0.1, [::1] or localhost, and a proxy with TLS for other machines", address)
	}
	return nil
}

func defaultRuntime() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(exe), "agentix-runtime")
}
