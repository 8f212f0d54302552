package faulttest

import (
	"context"
	"errors"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Patience is after how long a client without an outcome counts as hung (R3), besides the
// times for which a scenario stops processes.
const Patience = 60 * time.Second

// Client asks for calls, again and again by the same id until it knows the outcome.
type Client struct {
	Daemon  *Daemon
	Name    string
	Conn    int
	History *History
	By      Way
	Timeout time.Duration // the call's own, which is part of the request; 0 = none
	// Final are the codes that end a call for this client, besides those that tell that it
	// was never accepted.
	Final []codes.Code
}

// Way is by which methods a client asks.
type Way int

// The ways.
const (
	ByRemote Way = iota // Remote
	BySubmit            // SubmitCall, and then WaitCall
	ByName              // GetCall, of a call that is over
)

// refusals are the codes by which a daemon tells that a call is not there and will not be.
var refusals = []codes.Code{codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument, codes.AlreadyExists}

// Do asks for a call until its outcome is known, and records the op.
func (c Client) Do(ctx context.Context, call Call) Op {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, errors.New("the client lost its patience"))
	defer cancel()
	op := Op{Call: call.ID, Client: c.Name, Invoked: Monotonic()}
	for {
		op.Attempts++
		response, err := c.ask(ctx, call)
		if outcome, known := c.outcome(response, err); known {
			op.Outcome = outcome
			break
		}
		pause := time.NewTimer(5 * time.Millisecond)
		select {
		case <-pause.C:
			continue
		case <-ctx.Done():
			pause.Stop()
			op.Outcome = Outcome{Hung: "last answer: " + status.Convert(err).String()}
		}
		break
	}
	op.Returned = Monotonic()
	if c.History != nil {
		c.History.Add(op)
	}
	return op
}

// ask asks once.
func (c Client) ask(ctx context.Context, call Call) (*agentixv1.RemoteResponse, error) {
	remote := c.Daemon.Remote(c.Conn)
	request := &agentixv1.RemoteRequest{Sandbox: call.Sandbox, Callable: call.Callable, Args: call.Args(), CallId: call.ID}
	if c.Timeout > 0 {
		request.Timeout = durationpb.New(c.Timeout)
	}
	name := call.Sandbox + "/calls/" + call.ID
	var got *agentixv1.Call
	var err error
	switch c.By {
	case ByRemote:
		return remote.Remote(ctx, request) //nolint:wrapcheck // its status is looked at
	case BySubmit:
		if got, err = remote.SubmitCall(ctx, &agentixv1.SubmitCallRequest{Call: request}); err == nil && got.GetOutcome() == nil {
			got, err = remote.WaitCall(ctx, &agentixv1.WaitCallRequest{Name: name})
		}
	case ByName:
		got, err = remote.GetCall(ctx, &agentixv1.GetCallRequest{Name: name})
	}
	if err == nil && got.GetOutcome() == nil {
		err = status.Errorf(codes.Unavailable, "call %s is %s without an outcome", got.GetName(), got.GetState())
	}
	return got.GetOutcome(), err //nolint:wrapcheck // its status is looked at
}

// outcome reads an answer; known is false if the client has to ask again.
func (c Client) outcome(r *agentixv1.RemoteResponse, err error) (o Outcome, known bool) {
	if err == nil {
		return OutcomeOf(r), true
	}
	code := status.Code(err)
	for _, list := range [][]codes.Code{refusals, c.Final} {
		for _, refusal := range list {
			if code == refusal {
				return Outcome{Refused: Reason(err)}, true
			}
		}
	}
	return Outcome{}, false
}

// OutcomeOf is what a response tells.
func OutcomeOf(r *agentixv1.RemoteResponse) Outcome {
	if e := r.GetError(); e != nil {
		return Outcome{Error: e.GetType(), Message: e.GetMessage()}
	}
	return Outcome{Value: r.GetValue()}
}

// Reason is the ErrorInfo reason of an error, or its code.
func Reason(err error) string {
	st := status.Convert(err)
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return st.Code().String() + ": " + st.Message()
}
