package api

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/agentixd/agentixd/daemon/dispatch"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	callsInfix       = "/calls/"
	defaultCallsPage = 100
	maxCallsPage     = 1000
)

// callName is the resource name of a call.
func callName(sandbox, id string) string { return sandboxPrefix + sandbox + callsInfix + id }

// parseCall returns the ids in a call's resource name.
func parseCall(field, name string) (sandbox, id string, _ error) {
	rest, ok := strings.CutPrefix(name, sandboxPrefix)
	sandbox, id, cutOK := strings.Cut(rest, callsInfix)
	if !ok || !cutOK || !sandboxID.MatchString(sandbox) || !callID.MatchString(id) {
		return "", "", errs.Invalid(field, "must be sandboxes/{sandbox}/calls/{call}")
	}
	return sandbox, id, nil
}

// SubmitCall starts a call and returns once it is accepted. What is wrong with the call is
// told by the names of its own fields, which over REST are those of the body.
func (s *remoteService) SubmitCall(ctx context.Context, r *agentixv1.SubmitCallRequest) (*agentixv1.Call, error) {
	if err := checkRequired(r.GetCall()); err != nil {
		return nil, err
	}
	request, err := s.request(ctx, r.GetCall())
	if err != nil {
		return nil, err
	}
	info, err := once(ctx, s, request, s.dispatcher.Submit)
	if err != nil {
		return nil, named(err, "sandbox", r.GetCall().GetSandbox())
	}
	return toCall(info)
}

// GetCall returns a call.
func (s *remoteService) GetCall(ctx context.Context, r *agentixv1.GetCallRequest) (*agentixv1.Call, error) {
	return s.withCall(r.GetName(), func(sandbox, id string) (dispatch.Info, error) {
		return s.dispatcher.Get(ctx, sandbox, id)
	})
}

// WaitCall returns a call once it has an outcome, or after a time.
func (s *remoteService) WaitCall(ctx context.Context, r *agentixv1.WaitCallRequest) (*agentixv1.Call, error) {
	timeout := time.Duration(-1)
	if t := r.GetTimeout(); t != nil {
		if !validWait(t) {
			return nil, errs.Invalid("timeout", "must be a duration of 0s or more")
		}
		timeout = t.AsDuration()
	}
	return s.withCall(r.GetName(), func(sandbox, id string) (dispatch.Info, error) {
		return s.dispatcher.Wait(ctx, sandbox, id, timeout)
	})
}

func validWait(t *durationpb.Duration) bool { return t.CheckValid() == nil && t.AsDuration() >= 0 }

// CancelCall asks for the end of a call and returns it with its outcome.
func (s *remoteService) CancelCall(ctx context.Context, r *agentixv1.CancelCallRequest) (*agentixv1.Call, error) {
	return s.withCall(r.GetName(), func(sandbox, id string) (dispatch.Info, error) {
		return s.dispatcher.Cancel(ctx, sandbox, id)
	})
}

func (s *remoteService) withCall(name string, f func(sandbox, id string) (dispatch.Info, error)) (*agentixv1.Call, error) {
	sandbox, id, err := parseCall("name", name)
	if err != nil {
		return nil, err
	}
	info, err := f(sandbox, id)
	if err != nil {
		return nil, named(err, "call", name)
	}
	return toCall(info)
}

// ListCalls returns one page.
func (s *remoteService) ListCalls(ctx context.Context, r *agentixv1.ListCallsRequest) (*agentixv1.ListCallsResponse, error) {
	query, err := fromListCalls(r)
	if err != nil {
		return nil, err
	}
	page, next, err := s.dispatcher.List(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(page) == 0 && query.Sandbox != "" {
		if err := s.known(ctx, query.Sandbox); err != nil {
			return nil, named(err, "sandbox", r.GetParent())
		}
	}
	response := &agentixv1.ListCallsResponse{}
	for _, info := range page {
		call, err := toCall(info)
		if err != nil {
			return nil, err
		}
		response.Calls = append(response.Calls, call)
	}
	if next != 0 {
		response.NextPageToken = base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, next, 10))
	}
	return response, nil
}

// known fails if a sandbox neither exists nor has calls that are still known.
func (s *remoteService) known(ctx context.Context, sandbox string) error {
	_, err := s.manager.Get(ctx, sandbox)
	if !errs.Is(err, errs.NotFound) {
		return err
	}
	if one, _, lerr := s.dispatcher.List(ctx, dispatch.ListQuery{Sandbox: sandbox, Limit: 1}); lerr == nil && len(one) > 0 {
		return nil
	}
	return err
}

func fromListCalls(r *agentixv1.ListCallsRequest) (dispatch.ListQuery, error) {
	query := dispatch.ListQuery{Limit: int(r.GetPageSize())}
	var err error
	if r.GetParent() != sandboxPrefix+"-" {
		if query.Sandbox, err = parseSandbox("parent", r.GetParent()); err != nil {
			return query, err
		}
	}
	switch {
	case query.Limit < 0:
		return query, errs.Invalid("page_size", "must not be negative")
	case query.Limit == 0:
		query.Limit = defaultCallsPage
	case query.Limit > maxCallsPage:
		query.Limit = maxCallsPage
	}
	if token := r.GetPageToken(); token != "" {
		text, err := base64.RawURLEncoding.DecodeString(token)
		if err == nil {
			query.Before, err = strconv.ParseInt(string(text), 10, 64)
		}
		if err != nil || query.Before <= 0 {
			return query, errs.Invalid("page_token", "must be the next_page_token of the page before")
		}
	}
	for _, state := range r.GetStates() {
		if state == agentixv1.CallState_CALL_STATE_UNSPECIFIED || agentixv1.CallState_name[int32(state)] == "" {
			return query, errs.Invalid("states", "must be states of a call, for example CALL_STATE_RUNNING")
		}
		query.States = append(query.States, dispatch.State(state)) // the numbers are the same
	}
	return query, nil
}

func toCall(info dispatch.Info) (*agentixv1.Call, error) {
	call := &agentixv1.Call{
		Name: callName(info.Sandbox, info.ID), Callable: info.Callable, State: agentixv1.CallState(info.State),
		AcceptTime: toTime(info.Accepted), FinishTime: toTime(info.Finished),
		OutcomeExpired: info.Expired, StillRunning: info.StillRunning, ErrorType: text(info.ErrorType),
	}
	if info.Outcome != nil {
		var err error
		if call.Outcome, err = toRemoteResponse(*info.Outcome); err != nil {
			return nil, err
		}
	}
	return call, nil
}
