// Command agentixd is the daemon: it owns sandboxes and calls functions in them for its
// clients. All it does is in package daemon.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/agentixd/agentixd/daemon"
	"github.com/agentixd/agentixd/daemon/config"
	"github.com/spf13/pflag"
)

// softMemory is where the garbage collector begins to work harder and gives memory back, so
// that one call with a payload of hundreds of megabytes does not stay resident: 512 MiB.
// The environment variable GOMEMLIMIT overrides it.
const softMemory = 536870912

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemory)
	}
	os.Exit(run(os.Args[1:], os.LookupEnv, os.Stderr))
}

// run returns the exit code: 0 after a stop by signal, 1 for a failure, 2 for a wrong command line.
func run(args []string, getenv func(string) (string, bool), stderr io.Writer) int {
	cfg, err := config.Load(args, getenv, stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return fail(stderr, err, 2)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	d, err := daemon.New(ctx, cfg, newLogger(cfg, stderr))
	if err != nil {
		return fail(stderr, err, 1)
	}
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with run: the first signal stops, the second cuts off
		for n := 0; ; n++ {
			select {
			case s := <-signals:
				if cancel(fmt.Errorf("signal %s", s)); n > 0 {
					d.Abort()
				}
			case <-done:
				return
			}
		}
	}()
	if err := d.Run(ctx); err != nil {
		return fail(stderr, err, 1)
	}
	return 0
}

func fail(stderr io.Writer, err error, code int) int {
	_, _ = fmt.Fprintf(stderr, "agentixd: %v\n", err)
	return code
}

func newLogger(cfg config.Config, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.Level()}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}
