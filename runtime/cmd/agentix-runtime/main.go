// Command agentix-runtime is the server in a sandbox.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/runtime"
	"github.com/agentixd/agentixd/runtime/bundled"
	"github.com/agentixd/agentixd/runtime/keeper"
)

func main() {
	keeper.Run()
	if err := run(os.Args[1:]); err != nil {
		slog.Error("runtime ended", "err", err)
		os.Exit(1)
	}
}

// run parses, builds and serves until a signal.
func run(args []string) error {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	cfg := runtime.Config{Host: "0.0.0.0", Init: true, Keeper: true}
	flags := flag.NewFlagSet("agentix-runtime", flag.ContinueOnError)
	flags.StringVar(&cfg.Socket, "socket", "", "Unix socket to listen on; without it AGENTIX_BIND_HOST and AGENTIX_BIND_PORT say where")
	flags.StringVar(&cfg.Project, "project", "", "directory that comes first on the worker's import path")
	flags.StringVar(&cfg.Python, "python", "", "Python interpreter of the worker (default python3 from PATH)")
	flags.IntVar(&cfg.Workers, "workers", 1, "worker processes that run calls side by side, at most 64")
	flags.DurationVar(&cfg.StopGrace, "stop-grace", grace(), "how long the code of a call that was cancelled, or whose time ran out, may go on before it costs its worker; also AGENTIX_STOP_GRACE")
	command := flags.String("worker-command", "", "run this worker instead, in foreign mode: frames on its stdin and stdout")
	flags.DurationVar(&cfg.PingInterval, "ping-interval", 0, "how often a connection is asked whether it is there (default 25s)")
	flags.DurationVar(&cfg.PingTimeout, "ping-timeout", 0, "how long its answer may take; longer than the interval (default 60s)")
	tokenStdin := flags.Bool("token-stdin", false, `read {"token": "…", "neighbour_secret": "…"} from the first line of stdin; either may be left out`)
	front := flags.Bool("front", false, "run "+bundled.Bootstrap+", the server that a bundle brings, on loopback and relay --socket to it")
	version := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *version {
		_, err := io.WriteString(os.Stdout, runtime.Name+" "+runtime.Version+"\n")
		return err
	}
	cfg.WorkerCommand = strings.Fields(*command)
	bindAddress(&cfg)
	cfg.LogBuffer, cfg.TraceBuffer = positive("AGENTIX_LOG_BUFFER"), positive("AGENTIX_TRACE_BUFFER")
	if *tokenStdin {
		if err := readToken(&cfg); err != nil {
			return err
		}
	}
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become a child subreaper: %w", err)
		}
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemory)
	}
	if *front && cfg.Socket == "" {
		return errors.New("--front needs --socket")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if *front {
		return bundled.Run(ctx, bundled.Config{Socket: cfg.Socket})
	}
	r, err := runtime.New(cfg)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// softMemory is where garbage is collected eagerly: the garbage of large payloads is cheap
// to collect and must not fill the sandbox's memory limit.
const softMemory = 128 << 20

// bindAddress takes the TCP address of the public protocol.
func bindAddress(cfg *runtime.Config) {
	if host := os.Getenv("AGENTIX_BIND_HOST"); host != "" {
		cfg.Host = host
	}
	cfg.Port = os.Getenv("AGENTIX_BIND_PORT")
	if cfg.Port == "" {
		cfg.Port = "8000"
	}
}

// grace reads AGENTIX_STOP_GRACE, a duration like 500ms; 0, which is the default, if it is none.
func grace() time.Duration {
	d, err := time.ParseDuration(os.Getenv("AGENTIX_STOP_GRACE"))
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// positive reads a positive number from the environment; 0 if it is none.
func positive(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// maxTokenLine bounds the first line of stdin.
const maxTokenLine = 4096

// readToken takes the token from stdin, which is /dev/null afterwards.
func readToken(cfg *runtime.Config) error {
	line, err := bufio.NewReader(io.LimitReader(os.Stdin, maxTokenLine)).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the token: %w", err)
	}
	var first struct {
		Token           string `json:"token"`
		NeighbourSecret string `json:"neighbour_secret"`
	}
	if err := json.Unmarshal(line, &first); err != nil || first.Token == "" && first.NeighbourSecret == "" {
		return errors.New(`read the token: the first line of stdin is not {"token": "…", "neighbour_secret": "…"}`)
	}
	cfg.Token, cfg.NeighbourSecret = first.Token, first.NeighbourSecret
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("close stdin: %w", err)
	}
	defer func() { _ = null.Close() }()
	if err := unix.Dup3(int(null.Fd()), 0, 0); err != nil {
		return fmt.Errorf("close stdin: %w", err)
	}
	return nil
}
