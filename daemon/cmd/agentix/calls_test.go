package main

import (
	"context"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var accepted = time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)

func aCall(id string, state agentixv1.CallState, outcome *agentixv1.RemoteResponse) *agentixv1.Call {
	call := &agentixv1.Call{Name: "sandboxes/box/calls/" + id, Callable: "app::run", State: state, AcceptTime: timestamppb.New(accepted), Outcome: outcome}
	if state != agentixv1.CallState_CALL_STATE_RUNNING {
		call.FinishTime = timestamppb.New(accepted.Add(1500 * time.Millisecond))
	}
	return call
}

func TestCallDetach(t *testing.T) {
	var got *agentixv1.SubmitCallRequest
	address := serve(t, &daemon{submit: func(_ context.Context, r *agentixv1.SubmitCallRequest) (*agentixv1.Call, error) {
		got = proto.CloneOf(r)
		return aCall("c1", agentixv1.CallState_CALL_STATE_RUNNING, nil), nil
	}})
	ran := execute(t, "", "--address", address, "call", "box", "app::run", "--args", "[1]", "--timeout", "5s", "--detach")
	if diff := cmp.Diff(ran, result{0, "sandboxes/box/calls/c1\n", ""}); diff != "" {
		t.Error(diff)
	}
	want := &agentixv1.SubmitCallRequest{Call: &agentixv1.RemoteRequest{
		Sandbox: "sandboxes/box", Callable: "app::run", Args: "[1]", Timeout: durationpb.New(5 * time.Second), ResultEncoding: agentixv1.Encoding_ENCODING_JSON,
	}}
	if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	ran = execute(t, "", "--address", address, "-o", "json", "call", "box", "app::run", "--detach")
	if !strings.Contains(ran.Stdout, `"name":"sandboxes/box/calls/c1"`) || ran.Code != 0 {
		t.Errorf("%+v", ran)
	}
}

func TestCallsList(t *testing.T) {
	var got []*agentixv1.ListCallsRequest
	pages := []*agentixv1.ListCallsResponse{
		{Calls: []*agentixv1.Call{aCall("c3", agentixv1.CallState_CALL_STATE_RUNNING, nil)}, NextPageToken: "next"},
		{Calls: []*agentixv1.Call{aCall("c2", agentixv1.CallState_CALL_STATE_FAILED, nil), aCall("c1", agentixv1.CallState_CALL_STATE_CANCELLED, nil)}},
	}
	pages[1].Calls[0].ErrorType = "Bad\x1b[2J"
	pages[1].Calls[1].ErrorType, pages[1].Calls[1].StillRunning = "Cancelled", true
	address := serve(t, &daemon{calls: func(_ context.Context, r *agentixv1.ListCallsRequest) (*agentixv1.ListCallsResponse, error) {
		got = append(got, proto.CloneOf(r))
		return pages[(len(got)-1)%2], nil
	}})
	ran := execute(t, "", "--address", address, "calls", "ls", "box", "--state", "running", "--state", "Failed")
	want := "CALL    STATE                     CALLABLE  ACCEPTED             TOOK\n" +
		"box/c3  RUNNING                   app::run  2026-01-02 03:04:05  -\n" +
		"box/c2  FAILED (Bad\\x1b[2J)       app::run  2026-01-02 03:04:05  1.5s\n" +
		"box/c1  CANCELLED, still running  app::run  2026-01-02 03:04:05  1.5s\n"
	if diff := cmp.Diff(ran, result{0, want, ""}); diff != "" {
		t.Error(diff)
	}
	states := []agentixv1.CallState{agentixv1.CallState_CALL_STATE_RUNNING, agentixv1.CallState_CALL_STATE_FAILED}
	requests := []*agentixv1.ListCallsRequest{
		{Parent: "sandboxes/box", States: states, PageSize: 100},
		{Parent: "sandboxes/box", States: states, PageSize: 99, PageToken: "next"},
	}
	if diff := cmp.Diff(got, requests, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	got = nil
	ran = execute(t, "", "--address", address, "-o", "json", "calls", "list", "--limit", "1")
	if strings.Count(ran.Stdout, "\n") != 1 || got[0].GetParent() != "sandboxes/-" || len(got) != 1 {
		t.Errorf("%+v, %v", ran, got)
	}
}

func TestCallsGetWaitCancel(t *testing.T) {
	var names []string
	var call *agentixv1.Call
	var waits []*agentixv1.WaitCallRequest
	answer := func(name string) (*agentixv1.Call, error) {
		names = append(names, name)
		return call, nil
	}
	address := serve(t, &daemon{
		get: func(_ context.Context, r *agentixv1.GetCallRequest) (*agentixv1.Call, error) {
			return answer(r.GetName())
		},
		wait: func(_ context.Context, r *agentixv1.WaitCallRequest) (*agentixv1.Call, error) {
			waits = append(waits, proto.CloneOf(r))
			return answer(r.GetName())
		},
		cancel: func(_ context.Context, r *agentixv1.CancelCallRequest) (*agentixv1.Call, error) {
			return answer(r.GetName())
		},
	})
	head := "call      sandboxes/box/calls/c1\ncallable  app::run\nstate     "
	done := "accepted  2026-01-02 03:04:05\nfinished  2026-01-02 03:04:05, after 1.5s\n"
	done = strings.Replace(done, "finished  2026-01-02 03:04:05", "finished  2026-01-02 03:04:06", 1)
	succeeded, failed := agentixv1.CallState_CALL_STATE_SUCCEEDED, agentixv1.CallState_CALL_STATE_FAILED
	expired := aCall("c1", succeeded, nil)
	expired.OutcomeExpired = true
	raised := aCall("c1", failed, failure(&agentixv1.RemoteError{Type: "E", Message: "m"}))
	raised.ErrorType = "E"
	for name, row := range map[string]struct {
		call *agentixv1.Call
		args []string
		want result
	}{
		"running": {aCall("c1", agentixv1.CallState_CALL_STATE_RUNNING, nil), []string{"get", "box/c1"}, result{0, head + "RUNNING\naccepted  2026-01-02 03:04:05\n", ""}},
		"value":   {aCall("c1", succeeded, value(`{"a": 1.0}`)), []string{"get", "sandboxes/box/calls/c1"}, result{0, head + "SUCCEEDED\n" + done + `{"a": 1.0}` + "\n", ""}},
		"error":   {raised, []string{"cancel", "box/c1"}, result{0, head + "FAILED (E)\n" + done + "E: m\n", ""}},
		"expired": {expired, []string{"get", "box/c1"}, result{0, head + "SUCCEEDED\n" + done + "outcome   no longer kept\n", ""}},
		"json": {
			aCall("c1", succeeded, value(`9007199254740993`)),
			[]string{"get", "box/c1", "-o", "json"},
			result{0, `{"acceptTime":"` + accepted.UTC().Format(time.RFC3339) + `","callable":"app::run","finishTime":"` + accepted.Add(1500*time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z07:00") +
				`","name":"sandboxes/box/calls/c1","outcome":{"callId":"c1","value":9007199254740993},"state":"CALL_STATE_SUCCEEDED"}` + "\n", ""},
		},
		"wait, value":   {aCall("c1", succeeded, value("1")), []string{"wait", "box/c1"}, result{0, "1\n", ""}},
		"wait, error":   {raised, []string{"wait", "box/c1"}, result{1, "", "E: m\n"}},
		"wait, running": {aCall("c1", agentixv1.CallState_CALL_STATE_RUNNING, nil), []string{"wait", "box/c1", "--timeout", "0s"}, result{3, "", "agentix: wait for box/c1: the call is still running\n"}},
		"wait, expired": {expired, []string{"wait", "box/c1"}, result{2, "", "agentix: wait for box/c1: it is SUCCEEDED, but its outcome is no longer kept\n"}},
		"no call":       {nil, []string{"get", "box"}, result{2, "", "agentix: \"box\" is no call: use sandboxes/SANDBOX/calls/CALL or SANDBOX/CALL\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			call, names = row.call, nil
			got := execute(t, "", append([]string{"--address", address, "calls"}, row.args...)...)
			if diff := cmp.Diff(got, row.want); diff != "" {
				t.Error(diff)
			}
			if row.call != nil && (len(names) != 1 || names[0] != "sandboxes/box/calls/c1") {
				t.Errorf("asked for %v", names)
			}
		})
	}
	for _, r := range waits {
		if r.GetTimeout() != nil && r.GetTimeout().AsDuration() != 0 {
			t.Errorf("waits with %v", r)
		}
	}
}
