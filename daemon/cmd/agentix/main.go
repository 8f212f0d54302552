// Command agentix is the command for people: sandboxes, calls, events and images of an
// agentixd daemon. It uses the public API only; what comes from a sandbox is escaped
// before it reaches a terminal.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
