package api

import (
	"strings"
	"time"

	"github.com/agentixd/agentixd/daemon/bundles"
	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/providers"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// text makes sure that a string from a sandbox can stand in a message.
func text(s string) string { return strings.ToValidUTF8(s, "�") }

// toTime leaves the zero time unset.
func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// toSandbox makes the message; secrets says whether the caller may see the secret of an
// exposed runtime.
func toSandbox(s sandboxes.Sandbox, secrets bool) *agentixv1.Sandbox {
	out := &agentixv1.Sandbox{
		Name:       sandboxName(s.ID),
		State:      agentixv1.SandboxState(agentixv1.SandboxState_value["SANDBOX_STATE_"+string(s.State)]),
		Reason:     agentixv1.SandboxReason(agentixv1.SandboxReason_value["SANDBOX_REASON_"+string(s.Reason)]),
		Message:    text(s.Message),
		Image:      s.Image,
		Project:    s.Project,
		Provider:   s.Provider,
		Labels:     s.Labels,
		Env:        s.Env,
		CreateTime: toTime(s.CreateTime), ExposeRuntime: s.Expose, Workers: int32(s.Workers),
	}
	if s.Template != "" {
		out.Template = templatePrefix + s.Template
	}
	if !s.ExpireTime.IsZero() {
		out.Expiration = &agentixv1.Sandbox_ExpireTime{ExpireTime: toTime(s.ExpireTime)}
	}
	if s.IdleTimeout > 0 {
		out.IdleTimeout = durationpb.New(s.IdleTimeout)
	}
	if s.Bundle != "" {
		out.Bundle = bundlePrefix + s.Bundle
	}
	if s.Resources != (providers.Limits{}) {
		out.Resources = toResources(s.Resources)
	}
	out.Network, out.Security = toNetwork(s.Network), toSecurity(s.Security)
	if s.Runtime != nil {
		out.Runtime = &agentixv1.Runtime{Version: text(s.Runtime.Version), Python: text(s.Runtime.Python), Url: s.Runtime.URL}
		if secrets && s.Runtime.Secret != "" {
			out.Runtime.Url = strings.Replace(s.Runtime.URL, "://", "://agentix:"+s.Runtime.Secret.Reveal()+"@", 1)
		}
		for _, capability := range s.Runtime.Capabilities {
			out.Runtime.Capabilities = append(out.Runtime.Capabilities, text(capability))
		}
	}
	return out
}

func toBundle(b bundles.Bundle) *agentixv1.Bundle {
	return &agentixv1.Bundle{
		Name: bundlePrefix + b.Digest, Title: text(b.Title), SizeBytes: b.SizeBytes, Entries: b.Entries, SkippedLinks: b.SkippedLinks,
		Server: b.Server, Python: b.Python, CreateTime: toTime(b.Created),
	}
}

func toImage(i providers.Image) *agentixv1.Image {
	return &agentixv1.Image{Name: i.Name, Digest: i.Digest, SizeBytes: i.SizeBytes, CreateTime: toTime(i.Created)}
}

func toEvent(e *events.Event) *agentixv1.Event {
	out := &agentixv1.Event{
		Seq: e.Seq, Time: toTime(e.Time), Sandbox: sandboxName(e.Sandbox), CallId: text(e.CallID), Cursor: e.Cursor,
	}
	switch b := e.Body.(type) {
	case *events.Log:
		out.Kind = &agentixv1.Event_Log{Log: toLog(b)}
	case *events.Output:
		stream := agentixv1.OutputStream(agentixv1.OutputStream_value["OUTPUT_STREAM_"+b.Stream])
		out.Kind = &agentixv1.Event_Output{Output: &agentixv1.Output{Stream: stream, Data: b.Data}}
	case *events.Span:
		out.Kind = &agentixv1.Event_Span{Span: toSpan(b)}
	case *events.Plugin:
		out.Kind = &agentixv1.Event_Plugin{Plugin: &agentixv1.PluginEvent{
			Namespace: text(b.Namespace), Event: text(b.Event), Data: text(b.Data), MsgpackData: b.MsgpackData,
		}}
	case *events.Lifecycle:
		out.Kind = &agentixv1.Event_Lifecycle{Lifecycle: &agentixv1.LifecycleEvent{
			State:   agentixv1.SandboxState(agentixv1.SandboxState_value["SANDBOX_STATE_"+b.State]),
			Reason:  agentixv1.SandboxReason(agentixv1.SandboxReason_value["SANDBOX_REASON_"+b.Reason]),
			Message: text(b.Message),
		}}
	case *events.Call:
		out.Kind = &agentixv1.Event_Call{Call: &agentixv1.CallEvent{
			Phase:    agentixv1.CallPhase(agentixv1.CallPhase_value["CALL_PHASE_"+b.Phase]),
			Callable: text(b.Callable), ErrorType: text(b.ErrorType), ErrorMessage: text(b.ErrorMessage),
		}}
	case *events.Gap:
		out.Kind = &agentixv1.Event_Gap{Gap: &agentixv1.Gap{
			FromSeq: b.FromSeq, ToSeq: b.ToSeq, Dropped: b.Dropped, Source: text(b.Source),
		}}
	}
	return out
}

func toLog(b *events.Log) *agentixv1.LogRecord {
	return &agentixv1.LogRecord{
		Logger: text(b.Logger), Level: text(b.Level), LevelNumber: b.LevelNumber, Message: text(b.Message),
		Pathname: text(b.Pathname), Line: b.Line, Function: text(b.Function), Module: text(b.Module),
		ExceptionText: text(b.ExceptionText), StackInfo: text(b.StackInfo), Extras: text(b.Extras),
	}
}

func toSpan(b *events.Span) *agentixv1.SpanEvent {
	return &agentixv1.SpanEvent{
		Phase:   agentixv1.SpanPhase(agentixv1.SpanPhase_value["SPAN_PHASE_"+b.Phase]),
		TraceId: text(b.TraceID), SpanId: text(b.SpanID), ParentId: text(b.ParentID), Name: text(b.Name),
		Attributes: text(b.Attributes), StartTime: toTime(b.StartTime), EndTime: toTime(b.EndTime),
		Status: text(b.Status), StatusDescription: text(b.StatusDescription), Error: text(b.Error), Events: text(b.Events),
	}
}
