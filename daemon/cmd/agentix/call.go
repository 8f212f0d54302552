package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
)

// callFlags are the options of call.
type callFlags struct {
	args, kwargs, callID string
	timeout              time.Duration
	detach               bool
}

func newCall(a *app) *cobra.Command {
	var f callFlags
	command := &cobra.Command{
		Use:   "call SANDBOX MODULE::FUNCTION",
		Short: "Call a function and print its result as JSON",
		Long: "call calls a function, waits, and prints its result as the JSON that the sandbox wrote.\n\n" +
			"Exit codes: 0 the function returned; 1 it raised or ended without a result (the\n" +
			"traceback is on standard error); 2 the call was not accepted or its outcome did not arrive.\n" +
			"Interrupting the command cancels the function, unless the call has a --call-id. With --detach\n" +
			"the call goes on by itself, and its name is printed: see `agentix calls`.",
		Example: `  agentix call box app::run --kwargs '{"input": "hello"}'`,
		Args:    exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := f.request(a, args[0], args[1])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if f.detach {
				return a.submit(cmd, c, request)
			}
			response, err := c.remote.Remote(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("call %s: %w", args[1], err)
			}
			return a.showOutcome(cmd, response)
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.args, "args", "", "positional arguments: a JSON array, @FILE, or - for standard input")
	flags.StringVar(&f.kwargs, "kwargs", "", "keyword arguments: a JSON object, @FILE, or - for standard input")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long the function may run, for example 30s (default: no limit)")
	flags.StringVar(&f.callID, "call-id", "", "id of the call; the same id and request again joins it")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not wait: print the name of the call, which goes on")
	return command
}

func (a *app) submit(cmd *cobra.Command, c *client, request *agentixv1.RemoteRequest) error {
	call, err := c.remote.SubmitCall(cmd.Context(), &agentixv1.SubmitCallRequest{Call: request})
	if err != nil {
		return fmt.Errorf("submit %s: %w", request.GetCallable(), err)
	}
	if a.output == "json" {
		return writeJSON(cmd.OutOrStdout(), call)
	}
	writeln(cmd.OutOrStdout(), oneLine(call.GetName()))
	return nil
}

func (f *callFlags) request(a *app, sandbox, callable string) (*agentixv1.RemoteRequest, error) {
	positional, err := a.textOf("--args", f.args)
	if err != nil {
		return nil, err
	}
	keywords, err := a.textOf("--kwargs", f.kwargs)
	if err != nil {
		return nil, err
	}
	request := &agentixv1.RemoteRequest{
		Sandbox:        sandboxName(sandbox),
		Callable:       callable,
		Args:           positional,
		Kwargs:         keywords,
		CallId:         f.callID,
		ResultEncoding: agentixv1.Encoding_ENCODING_JSON,
	}
	if f.timeout > 0 {
		request.Timeout = durationpb.New(f.timeout)
	}
	return request, nil
}

// textOf returns a value, or what the file or standard input that it names holds.
func (a *app) textOf(flag, value string) (string, error) {
	var text []byte
	var err error
	switch {
	case value == "-":
		text, err = io.ReadAll(a.stdin)
	case strings.HasPrefix(value, "@"):
		text, err = os.ReadFile(value[1:])
	default:
		return value, nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", flag, err)
	}
	return string(text), nil
}

// showOutcome prints the value verbatim, or the error on standard error.
func (a *app) showOutcome(cmd *cobra.Command, response *agentixv1.RemoteResponse) error {
	failed := response.GetError()
	if a.output == "json" {
		if err := writeJSON(cmd.OutOrStdout(), response); err != nil {
			return err
		}
	} else if failed == nil {
		writeln(cmd.OutOrStdout(), response.GetValue())
	} else {
		showError(cmd.ErrOrStderr(), failed)
	}
	if failed != nil {
		return errCall
	}
	return nil
}

func showError(w io.Writer, failed *agentixv1.RemoteError) {
	if traceback := strings.TrimRight(failed.GetTraceback(), "\n"); traceback != "" {
		writeln(w, printable(traceback))
		return
	}
	text := oneLine(failed.GetType()) + ": " + printable(failed.GetMessage())
	if failed.Returncode != nil {
		text += fmt.Sprintf(" (return code %d)", failed.GetReturncode())
	}
	writeln(w, text)
}
