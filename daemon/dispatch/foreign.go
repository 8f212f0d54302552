package dispatch

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/pickle"
	"github.com/agentixd/agentixd/runtime/wire"
)

// A neighbour's runtime knows pickle only, no timeouts and no trace contexts. Its calls are
// written in its terms and its values read as inert data; nothing is ever unpickled here.

// pickled is c with its arguments as a pickle, which every runtime understands. The error is
// the client's: the arguments have no form in pickle.
func pickled(c *wire.Call) (*wire.Call, error) {
	if c.Encoding == wire.EncodingPickle {
		return c, nil
	}
	out := *c
	out.Encoding = wire.EncodingPickle
	var err error
	field := "msgpack_arguments"
	if c.Encoding == wire.EncodingJSON {
		field = "args"
		var pair [2]json.RawMessage
		if err = json.Unmarshal(c.Arguments, &pair); err == nil {
			out.Arguments, err = pickle.FromJSON(string(pair[0]), string(pair[1]))
		}
	} else {
		out.Arguments, err = pickle.FromMsgpack(c.Arguments)
	}
	switch {
	case errors.Is(err, pickle.ErrTooLarge):
		return nil, errs.New(errs.ResourceExhausted, errs.LimitExceeded, "the arguments as a pickle, which is what this runtime understands: %v", err).
			WithMeta("limit", "arguments_bytes")
	case err != nil:
		return nil, errs.Invalid(field, "cannot be written as a pickle, which is what this runtime understands: %v", err)
	}
	return &out, nil
}

// neighbourCall is c as the public protocol has it.
func neighbourCall(c *wire.Call, now time.Time) (*wire.Call, error) {
	c, err := pickled(c)
	if err != nil {
		return nil, err
	}
	context := pickle.Context{Baggage: c.Baggage}
	if traceparent.MatchString(c.Traceparent) {
		started := now.UTC().Format("2006-01-02T15:04:05.000000Z")
		trace := "trace_" + c.Traceparent[3:35]
		context.Trace = &pickle.Trace{ID: trace, StartedAt: started}
		// Span ids are longer there than in W3C's form.
		context.Span = &pickle.Span{ID: "span_00000000" + c.Traceparent[36:52], TraceID: trace, StartedAt: started}
	}
	out := &wire.Call{CallID: c.CallID, Callable: c.Callable, Arguments: c.Arguments}
	if out.Context, err = context.Encode(); err != nil {
		return nil, err
	}
	return out, nil
}

// errResultDecode is the type of a value that is no pickle.
const errResultDecode = "ResultDecodeError"

// largeValue is the size from which conversions wait for each other: each takes several
// times its input in memory, and one hostile runtime must not make the daemon hold many.
const largeValue = 1 << 20 // 1 MiB

var largeConversion = make(chan struct{}, 1)

// in is o with a pickled value in the encoding that was asked for. Other outcomes stay as
// they are.
func (o Outcome) in(want string) Outcome {
	if o.Error != nil || o.Encoding != wire.EncodingPickle || want == "" || want == wire.EncodingPickle {
		return o
	}
	if len(o.Value) > largeValue {
		largeConversion <- struct{}{}
		defer func() { <-largeConversion }()
	}
	out := Outcome{CallID: o.CallID, Encoding: want}
	var err error
	if want == wire.EncodingJSON {
		out.Value, err = pickle.ToJSON(o.Value)
	} else {
		out.Value, err = pickle.ToMsgpack(o.Value)
	}
	switch {
	case err == nil:
		return out
	case errors.Is(err, pickle.ErrNoForm):
		return failed(o.CallID, wire.ErrResultEncode, "the result has no form in %s: %v", want, err)
	case errors.Is(err, pickle.ErrTooLarge):
		return failed(o.CallID, wire.ErrFrameTooLarge, "the result in %s: %v", want, err)
	}
	return failed(o.CallID, errResultDecode, "the runtime sent a value that cannot be read: %v", err)
}

// fromNeighbour is the outcome that a neighbour's result is.
func fromNeighbour(r wire.Result, want string) Outcome {
	return fromResult(wire.Result{CallID: r.CallID, Value: r.Value}, wire.EncodingPickle).in(want)
}
