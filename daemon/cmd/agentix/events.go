package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// eventFlags are the options of events.
type eventFlags struct {
	follow, asJSON bool
	after, callID  string
	tail           uint32
	since          time.Duration
	kinds          []string
	minLevel       int32
}

func newEvents(a *app) *cobra.Command {
	var f eventFlags
	command := &cobra.Command{
		Use:   "events SANDBOX",
		Short: "Show log records, output, spans and the life of a sandbox",
		Long: "events shows what happened in a sandbox, oldest first; SANDBOX - means all sandboxes.\n" +
			"Control characters from the sandbox are escaped.",
		Example: "  agentix events box --follow\n  agentix events box --kind log,output --json",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := f.request(cmd, args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			return a.showEvents(cmd.Context(), c, request, cmd.OutOrStdout(), f.asJSON || a.output == "json")
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with new events until the sandbox is deleted")
	flags.BoolVar(&f.asJSON, "json", false, "one JSON object a line, as over REST")
	flags.StringVar(&f.after, "after", "", "begin after the event with this cursor")
	flags.Uint32Var(&f.tail, "tail", 0, "begin with the newest N events; 0 = only new ones")
	flags.DurationVar(&f.since, "since", 0, "begin with events of this age, for example 10m")
	flags.StringSliceVar(&f.kinds, "kind", nil, "kinds: log, output, span, plugin, lifecycle, call, gap (default: all)")
	flags.StringVar(&f.callID, "call-id", "", "only events of this call")
	flags.Int32Var(&f.minLevel, "min-level", 0, "least level of log records, for example 20 for INFO")
	command.MarkFlagsMutuallyExclusive("after", "tail", "since")
	return command
}

func (f *eventFlags) request(cmd *cobra.Command, sandbox string) (*agentixv1.StreamEventsRequest, error) {
	request := &agentixv1.StreamEventsRequest{
		Sandbox: sandboxName(sandbox), CallId: f.callID, MinLevel: f.minLevel, Follow: f.follow,
	}
	for _, kind := range f.kinds {
		value, ok := agentixv1.EventKind_value["EVENT_KIND_"+strings.ToUpper(kind)]
		if !ok || value == 0 {
			return nil, fmt.Errorf("--kind is log, output, span, plugin, lifecycle, call or gap, not %q", kind)
		}
		request.Kinds = append(request.Kinds, agentixv1.EventKind(value))
	}
	switch changed := cmd.Flags().Changed; {
	case changed("after"):
		request.Start = &agentixv1.StreamEventsRequest_After{After: f.after}
	case changed("tail"):
		request.Start = &agentixv1.StreamEventsRequest_Tail{Tail: f.tail}
	case changed("since"):
		request.Start = &agentixv1.StreamEventsRequest_Since{Since: timestamppb.New(time.Now().Add(-f.since))}
	}
	return request, nil
}

func (a *app) showEvents(ctx context.Context, c *client, request *agentixv1.StreamEventsRequest, out io.Writer, asJSON bool) error {
	stream, err := c.events.StreamEvents(ctx, request)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	view := whole{}
	defer func() { write(out, view.rest()) }()
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		for _, event := range response.GetEvents() {
			if !asJSON {
				write(out, view.text(event))
			} else if err := writeJSON(out, event); err != nil {
				return err
			}
		}
	}
}

// eventText returns one or more ended lines for an event.
func eventText(event *agentixv1.Event) string {
	head := event.GetTime().AsTime().Local().Format("15:04:05.000") + " "
	kind, text := describe(event)
	head += fmt.Sprintf("%-9s ", kind)
	if id := event.GetCallId(); id != "" {
		head += "[" + oneLine(id[:min(len(id), 8)]) + "] "
	}
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(printable(text), "\n"), "\n") {
		out.WriteString(head + line + "\n")
	}
	return out.String()
}

// describe returns the kind of an event and what it says; both come from a sandbox.
func describe(event *agentixv1.Event) (kind, text string) {
	switch kind := event.GetKind().(type) {
	case *agentixv1.Event_Log:
		return oneLine(kind.Log.GetLevel()), logText(kind.Log)
	case *agentixv1.Event_Output:
		return strings.ToLower(enumText(kind.Output.GetStream().String(), "OUTPUT_STREAM_")), string(kind.Output.GetData())
	case *agentixv1.Event_Span:
		return "span", spanText(kind.Span)
	case *agentixv1.Event_Plugin:
		return "plugin", kind.Plugin.GetNamespace() + " " + kind.Plugin.GetEvent() + " " + kind.Plugin.GetData()
	case *agentixv1.Event_Lifecycle:
		text = enumText(kind.Lifecycle.GetState().String(), "SANDBOX_STATE_")
		if reason := enumText(kind.Lifecycle.GetReason().String(), "SANDBOX_REASON_"); reason != "-" {
			text += " " + reason
		}
		return "sandbox", strings.TrimRight(text+" "+kind.Lifecycle.GetMessage(), " ")
	case *agentixv1.Event_Call:
		return "call", callText(kind.Call)
	case *agentixv1.Event_Gap:
		return "gap", fmt.Sprintf("%d events were lost (%s)", kind.Gap.GetDropped(), kind.Gap.GetSource())
	default:
		return "?", "an event of a newer daemon"
	}
}

func logText(log *agentixv1.LogRecord) string {
	parts := []string{log.GetLogger() + ": " + log.GetMessage()}
	for _, more := range []string{log.GetExceptionText(), log.GetStackInfo()} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	return strings.Join(parts, "\n")
}

func spanText(span *agentixv1.SpanEvent) string {
	phase := strings.ReplaceAll(strings.ToLower(enumText(span.GetPhase().String(), "SPAN_PHASE_")), "_", " ")
	words := []string{phase, span.GetName(), span.GetSpanId()}
	if status := span.GetStatus(); status != "" {
		words = append(words, "status="+status)
	}
	if began, ended := span.GetStartTime(), span.GetEndTime(); began != nil && ended != nil {
		words = append(words, ended.AsTime().Sub(began.AsTime()).Round(time.Microsecond).String())
	}
	words = append(words, span.GetAttributes())
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " ")
}

func callText(call *agentixv1.CallEvent) string {
	text := strings.ToLower(enumText(call.GetPhase().String(), "CALL_PHASE_")) + " " + call.GetCallable()
	if call.GetErrorType() != "" {
		text += " " + call.GetErrorType() + ": " + call.GetErrorMessage()
	}
	return text
}
