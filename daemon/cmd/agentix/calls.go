package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func newCalls(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "calls",
		Short: "List calls, look at them, wait for them and cancel them",
		Long: "calls works on calls by their names, sandboxes/SANDBOX/calls/CALL, or SANDBOX/CALL for short.\n" +
			"`agentix call --detach` prints the name of a call that goes on.",
		Args: cobra.NoArgs,
	}
	command.AddCommand(newCallsList(a), newCallsGet(a), newCallsWait(a), newCallsCancel(a))
	return command
}

// callName accepts a resource name or SANDBOX/CALL.
func callName(text string) (string, error) {
	parts := strings.Split(text, "/")
	switch {
	case len(parts) == 4 && parts[0] == "sandboxes" && parts[2] == "calls":
		return text, nil
	case len(parts) == 2:
		return "sandboxes/" + parts[0] + "/calls/" + parts[1], nil
	}
	return "", fmt.Errorf("%q is no call: use sandboxes/SANDBOX/calls/CALL or SANDBOX/CALL", text)
}

func newCallsList(a *app) *cobra.Command {
	var states []string
	var limit int
	command := &cobra.Command{
		Use:     "ls [SANDBOX]",
		Aliases: []string{"list"},
		Short:   "List calls, the newest first, of one sandbox or of all",
		Args:    cobra.MaximumNArgs(1),
		Example: "  agentix calls ls box --state running --state failed",
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &agentixv1.ListCallsRequest{Parent: "sandboxes/-"}
			if len(args) == 1 {
				request.Parent = sandboxName(args[0])
			}
			for _, text := range states {
				state, ok := agentixv1.CallState_value["CALL_STATE_"+strings.ToUpper(text)]
				if !ok || state == 0 {
					return fmt.Errorf("--state is running, succeeded, failed or cancelled, not %q", text)
				}
				request.States = append(request.States, agentixv1.CallState(state))
			}
			if limit <= 0 {
				return fmt.Errorf("--limit takes a number above 0")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			return a.listCalls(cmd, c, request, limit)
		},
	}
	command.Flags().StringArrayVar(&states, "state", nil, "only calls in this state: running, succeeded, failed, cancelled; repeatable")
	command.Flags().IntVar(&limit, "limit", 100, "at most this many")
	return command
}

func (a *app) listCalls(cmd *cobra.Command, c *client, request *agentixv1.ListCallsRequest, limit int) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	if a.output == "text" {
		writeln(table, "CALL\tSTATE\tCALLABLE\tACCEPTED\tTOOK")
	}
	for limit > 0 {
		request.PageSize = int32(min(limit, 1000))
		page, err := c.remote.ListCalls(cmd.Context(), request)
		if err != nil {
			return fmt.Errorf("list calls: %w", err)
		}
		for _, call := range page.GetCalls() {
			if a.output == "json" {
				if err := writeJSON(cmd.OutOrStdout(), call); err != nil {
					return err
				}
				continue
			}
			writeln(table, strings.Join([]string{
				oneLine(shortName(call.GetName())), stateText(call), oneLine(call.GetCallable()), when(call.GetAcceptTime()), took(call),
			}, "\t"))
		}
		limit -= len(page.GetCalls())
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			break
		}
	}
	if a.output == "json" {
		return nil
	}
	return table.Flush()
}

// shortName is SANDBOX/CALL, which all commands take.
func shortName(name string) string {
	return strings.Replace(strings.TrimPrefix(name, "sandboxes/"), "/calls/", "/", 1)
}

// stateText is the state, the type of the error, and whether the function goes on.
func stateText(call *agentixv1.Call) string {
	text := enumText(call.GetState().String(), "CALL_STATE_")
	if kind := call.GetErrorType(); kind != "" && call.GetState() == agentixv1.CallState_CALL_STATE_FAILED {
		text += " (" + oneLine(kind) + ")"
	}
	if call.GetStillRunning() {
		text += ", still running"
	}
	return text
}

func when(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Format(time.DateTime)
}

func took(call *agentixv1.Call) string {
	if call.GetFinishTime() == nil {
		return "-"
	}
	return call.GetFinishTime().AsTime().Sub(call.GetAcceptTime().AsTime()).Round(time.Millisecond).String()
}

func newCallsGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get CALL",
		Short: "Show a call, with its outcome if it has one that is kept",
		Args:  exactly(1),
		RunE: a.onCall("get", func(cmd *cobra.Command, c *client, name string) error {
			call, err := c.remote.GetCall(cmd.Context(), &agentixv1.GetCallRequest{Name: name})
			if err != nil {
				return err
			}
			return a.showCall(cmd.OutOrStdout(), call)
		}),
	}
}

func newCallsWait(a *app) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "wait CALL",
		Short: "Wait for a call and print its outcome as call does",
		Long: "wait waits until a call has its outcome and prints it as call does, with its exit codes.\n" +
			"It exits with 3 if the call is still running after --timeout. Interrupting it leaves the call alone.",
		Args: exactly(1),
		RunE: a.onCall("wait for", func(cmd *cobra.Command, c *client, name string) error {
			request := &agentixv1.WaitCallRequest{Name: name}
			if cmd.Flags().Changed("timeout") {
				request.Timeout = durationpb.New(timeout)
			}
			call, err := c.remote.WaitCall(cmd.Context(), request)
			switch {
			case err != nil:
				return err
			case call.GetState() == agentixv1.CallState_CALL_STATE_RUNNING:
				return errRunning
			case call.GetOutcome() == nil:
				return fmt.Errorf("it is %s, but its outcome is no longer kept", stateText(call))
			}
			return a.showOutcome(cmd, call.GetOutcome())
		}),
	}
	command.Flags().DurationVar(&timeout, "timeout", 0, "wait no longer than this, for example 30s (default: no limit)")
	return command
}

func newCallsCancel(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel CALL",
		Short: "Cancel a call and show it; one that has its outcome stays as it is",
		Args:  exactly(1),
		RunE: a.onCall("cancel", func(cmd *cobra.Command, c *client, name string) error {
			call, err := c.remote.CancelCall(cmd.Context(), &agentixv1.CancelCallRequest{Name: name})
			if err != nil {
				return err
			}
			return a.showCall(cmd.OutOrStdout(), call)
		}),
	}
}

// onCall runs f for the call that is the command's one argument.
func (a *app) onCall(verb string, f func(cmd *cobra.Command, c *client, name string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		name, err := callName(args[0])
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		defer c.close()
		if err := f(cmd, c, name); err != nil {
			return fmt.Errorf("%s %s: %w", verb, args[0], err)
		}
		return nil
	}
}

func (a *app) showCall(w io.Writer, call *agentixv1.Call) error {
	if a.output == "json" {
		return writeJSON(w, call)
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, text string) { writeln(table, name+"\t"+text) }
	line("call", oneLine(call.GetName()))
	line("callable", oneLine(call.GetCallable()))
	line("state", stateText(call))
	line("accepted", when(call.GetAcceptTime()))
	if call.GetFinishTime() != nil {
		line("finished", when(call.GetFinishTime())+", after "+took(call))
	}
	if call.GetOutcomeExpired() {
		line("outcome", "no longer kept")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch outcome := call.GetOutcome().GetOutcome().(type) {
	case *agentixv1.RemoteResponse_Value:
		writeln(w, outcome.Value)
	case *agentixv1.RemoteResponse_Error:
		showError(w, outcome.Error)
	case *agentixv1.RemoteResponse_MsgpackValue:
		writeln(w, fmt.Sprintf("%d bytes of msgpack", len(outcome.MsgpackValue)))
	case *agentixv1.RemoteResponse_PickleValue:
		writeln(w, fmt.Sprintf("%d bytes of pickle", len(outcome.PickleValue)))
	}
	return nil
}
