package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Load makes the configuration of a command line: defaults, the file named by --config or
// AGENTIXD_CONFIG, the environment (AGENTIXD_STATE_DIR for --state-dir), flags. getenv is
// os.LookupEnv but for tests. pflag.ErrHelp tells that help was asked for and printed to out.
func Load(args []string, getenv func(string) (string, bool), out io.Writer) (Config, error) {
	cfg := Default()
	flags, path := flagSet(&cfg, out)
	if err := flags.Parse(args); err != nil {
		return cfg, fmt.Errorf("read flags: %w", err)
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("read flags: unexpected argument %q", flags.Arg(0))
	}
	if *path == "" {
		*path, _ = getenv(envName("config"))
	}
	fromFile := Default()
	if *path != "" {
		if err := readFile(*path, &fromFile); err != nil {
			return cfg, err
		}
	}
	if err := readEnv(&fromFile, getenv); err != nil {
		return cfg, err
	}
	// Flags win: parse them once more on top of what file and environment said.
	flags, _ = flagSet(&fromFile, io.Discard)
	if err := flags.Parse(args); err != nil {
		return cfg, fmt.Errorf("read flags: %w", err)
	}
	return fromFile.Complete()
}

func flagSet(c *Config, out io.Writer) (*pflag.FlagSet, *string) {
	flags := pflag.NewFlagSet("agentixd", pflag.ContinueOnError)
	flags.SetOutput(out)
	flags.SortFlags = false
	flags.StringVar(&c.StateDir, "state-dir", c.StateDir, "directory of the database, the token and all else that outlives the daemon")
	flags.StringVar(&c.Socket, "socket", c.Socket, "path of the Unix socket (default agentixd.sock in the state directory)")
	flags.StringVar(&c.HTTP, "http", c.HTTP, "loopback address for gRPC and HTTP with a token, for example 127.0.0.1:7070 (default none)")
	flags.StringArrayVar(&c.HTTPHosts, "http-host", c.HTTPHosts, "further name that a Host or Origin header may have (repeatable)")
	flags.StringVar(&c.Provider, "provider", c.Provider, "what runs sandboxes: auto (containerd), containerd, docker or process")
	flags.StringVar(&c.ContainerdAddress, "containerd-address", c.ContainerdAddress, "socket of containerd")
	flags.StringVar(&c.DockerHost, "docker-host", c.DockerHost, "address of the Docker Engine: unix:// and the path of its socket")
	flags.StringVar(&c.Runtime, "runtime", c.Runtime, "the agentix-runtime binary")
	flags.StringVar(&c.LogDir, "log-dir", c.LogDir, "directory of the sandboxes' text logs (default logs in the state directory)")
	c.Events.flags(flags)
	flags.StringArrayVar(&c.AllowHostPath, "allow-host-path", c.AllowHostPath, "prefix below which clients on the Unix socket may name host directories (repeatable)")
	flags.StringArrayVar(&c.ExternalAllow, "external-allow", c.ExternalAllow, "address range, address or path of sockets at which clients may join runtimes that someone else runs (repeatable; default none)")
	flags.StringVar(&c.RegistryConfig, "registry-config", c.RegistryConfig, "config.json as docker writes it, with credentials for pulls that bring none (default none)")
	flags.StringVar(&c.BridgePool, "bridge-pool", c.BridgePool, "IPv4 range from which bridged sandboxes get their addresses (default one in 10.208.0.0/12, by the state directory)")
	flags.BoolVar(&c.AllowHostNetwork, "allow-host-network", c.AllowHostNetwork, "let clients give sandboxes the host's network (network mode HOST)")
	flags.BoolVar(&c.InsecureProcessAsRoot, "insecure-process-as-root", c.InsecureProcessAsRoot, "let the process provider, which isolates nothing, run as root")
	flags.IntVar(&c.ParallelStarts, "parallel-starts", c.ParallelStarts, "how many sandboxes start at once; the others wait in order (default twice the processors)")
	flags.DurationVar(&c.ShutdownGrace, "shutdown-grace", c.ShutdownGrace, "how long running calls may go on after the first signal")
	flags.StringVar(&c.LogLevel, "log-level", c.LogLevel, "least level to log: debug, info, warn or error")
	flags.StringVar(&c.LogFormat, "log-format", c.LogFormat, "form of the daemon's own log: text or json")
	path := flags.String("config", "", "YAML or JSON file with the names of these flags as keys")
	flags.Usage = func() {
		_, _ = fmt.Fprintf(out, "agentixd runs sandboxes and calls Python functions in them.\n\nUsage: agentixd [flags]\n\n%s\nEach flag is also an environment variable, for example AGENTIXD_STATE_DIR for --state-dir;\nlists are separated by colons there, addresses by commas.\n", flags.FlagUsages())
	}
	return flags, path
}

// envName is the environment variable of a flag.
func envName(flag string) string {
	return "AGENTIXD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func readFile(path string, c *Config) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read config file: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text)) // JSON is YAML
	decoder.KnownFields(true)
	if err := decoder.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read config file %s: %w", path, err)
	}
	return nil
}

// readEnv sets each flag from its variable. A list of paths there is separated as in PATH.
func readEnv(c *Config, getenv func(string) (string, bool)) error {
	if dir, ok := getenv("AGENTIX_LOG_DIR"); ok && dir != "" {
		c.LogDir = dir
	}
	flags, _ := flagSet(c, io.Discard)
	var problem error
	flags.VisitAll(func(flag *pflag.Flag) {
		value, ok := getenv(envName(flag.Name))
		if !ok || value == "" || flag.Name == "config" || problem != nil {
			return
		}
		values := []string{value}
		switch flag.Value.Type() {
		case "stringArray":
			values = filepath.SplitList(value)
			if flag.Name == "external-allow" { // addresses have colons in them
				values = strings.Split(value, ",")
			}
		case "bool":
			if _, err := strconv.ParseBool(value); err != nil {
				problem = fmt.Errorf("read environment: %s: %q is none of true, false", envName(flag.Name), value)
				return
			}
		}
		for _, value := range values {
			if err := flags.Set(flag.Name, value); err != nil {
				problem = fmt.Errorf("read environment: %s: %w", envName(flag.Name), err)
				return
			}
		}
	})
	return problem
}
