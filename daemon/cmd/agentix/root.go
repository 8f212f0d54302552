package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Version is set by the linker for releases.
var Version = "dev"

// Exit codes. Scripts rely on them.
const (
	exitOK          = 0
	exitCall        = 1   // the function in the sandbox raised or ended without a result
	exitTransport   = 2   // the daemon refused or could not be reached, or the command line is wrong
	exitRunning     = 3   // the call that was waited for is still running
	exitInterrupted = 130 // SIGINT or SIGTERM
)

// errCall says that a call ended in an error that has been shown already.
var errCall = errors.New("the call ended without a result")

// errRunning says that a call has no outcome yet.
var errRunning = errors.New("the call is still running")

// app is what the commands share.
type app struct {
	address   string
	tokenFile string
	output    string
	stdin     io.Reader
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(&app{stdin: stdin})
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errCall):
		return exitCall
	case ctx.Err() != nil:
		writeln(stderr, "agentix: interrupted")
		return exitInterrupted
	case errors.Is(err, errRunning):
		writeln(stderr, "agentix: "+explain(err))
		return exitRunning
	default:
		writeln(stderr, "agentix: "+explain(err))
		return exitTransport
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "agentix",
		Short: "Call Python functions in sandboxes",
		Long: "agentix creates sandboxes, calls Python functions in them and shows what they log.\n\n" +
			"The daemon is found by --address, else AGENTIX_ADDRESS, else " + defaultAddress + ".\n" +
			"Over TCP it asks for a token: --token-file, else AGENTIX_TOKEN.",
		Version:           Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != "text" && a.output != "json" {
				return fmt.Errorf("--output is text or json, not %q", a.output)
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.address, "address", "", "daemon: unix:///path or host:port")
	flags.StringVar(&a.tokenFile, "token-file", "", "file that holds the token")
	flags.StringVarP(&a.output, "output", "o", "text", "output format: text or json")
	root.AddCommand(newSandbox(a), newTemplate(a), newCall(a), newCalls(a), newEvents(a), newImage(a), newBundle(a))
	return root
}

// exactly asks for n arguments, and shows which they are.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%d arguments instead of %d; usage: %s", len(args), n, cmd.UseLine())
		}
		return nil
	}
}

// write writes to a terminal or pipe. A reader that has gone away ends the process by
// SIGPIPE or shows in the next read from the daemon; there is nobody to tell it to.
func write(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func writeln(w io.Writer, text string) { write(w, text+"\n") }
