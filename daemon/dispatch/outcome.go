package dispatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Outcome is how a call ended: with Error, or with Value in Encoding.
type Outcome struct {
	CallID   string
	Value    []byte
	Encoding string
	Error    *wire.Error
}

// result is o as Remote tells it: arguments that the callable does not accept are the
// caller's error.
func (o Outcome) result() (Outcome, error) {
	e := o.Error
	if e == nil || e.Type != wire.ErrArgumentsInvalid || len(e.Violations) == 0 {
		return o, nil
	}
	err := errs.New(errs.InvalidArgument, errs.ArgumentsInvalid, "%s", strings.ToValidUTF8(e.Message, "\uFFFD"))
	for _, v := range e.Violations {
		err.Violations = append(err.Violations, errs.Violation{Field: v.Path, Description: v.Message})
	}
	return Outcome{}, err.WithMeta("call_id", o.CallID)
}

// failed is an outcome of the daemon's own.
func failed(id, kind, format string, args ...any) Outcome {
	return Outcome{CallID: id, Error: &wire.Error{Type: kind, Message: fmt.Sprintf(format, args...)}}
}

// weight is what o takes in memory, roughly.
func (o Outcome) weight() int {
	n := len(o.Value) + 256
	if e := o.Error; e != nil {
		n += len(e.Type) + len(e.Message)
		if e.Traceback != nil {
			n += len(*e.Traceback)
		}
	}
	return n
}

// fromResult checks a value of the runtime; one that is not what it says is an error.
func fromResult(r wire.Result, want string) Outcome {
	encoding := r.Encoding
	if encoding == "" {
		encoding = wire.EncodingPickle
	}
	if want == "" {
		want = encoding
	}
	if len(r.Value) > wire.MaxValueBytes {
		o := failed(r.CallID, wire.ErrFrameTooLarge, "the result is %d bytes long, over the limit of %d", len(r.Value), wire.MaxValueBytes)
		o.Error.Size, o.Error.Limit = int64(len(r.Value)), wire.MaxValueBytes
		return o
	}
	if err := checkValue(r.Value, encoding, want); err != nil {
		return failed(r.CallID, wire.ErrResultEncode, "the runtime sent a malformed result: %v", err)
	}
	return Outcome{CallID: r.CallID, Value: r.Value, Encoding: encoding}
}

func checkValue(value []byte, encoding, want string) error {
	if encoding != want {
		return fmt.Errorf("its encoding is %q, not %s", encoding, want)
	}
	switch encoding {
	case wire.EncodingJSON:
		return checkJSON(value, 0, wire.MaxDepth)
	case wire.EncodingMsgpack:
		return wire.Check(value, wire.MaxDepth)
	case wire.EncodingPickle:
		return nil
	}
	return fmt.Errorf("its encoding is %q", encoding)
}

// fromError brings an error of the runtime into the terms of the outcome table.
func fromError(e wire.CallError) Outcome {
	if e.Error == nil {
		return failed(e.CallID, wire.ErrResultUnavailable, "the runtime told no outcome")
	}
	out := *e.Error
	switch out.Type {
	case wire.ErrFenced, wire.ErrNotReceived:
		out.Type, out.Message = wire.ErrResultUnavailable, "the call did not reach the runtime before a reconnect; it did not run"
	case "":
		out.Type = "Unknown"
	}
	if out.Cancelled {
		out.Type = wire.ErrCancelled
	}
	return Outcome{CallID: e.CallID, Error: &out}
}

// stored is an outcome in the store, but for its value.
type stored struct {
	Value    []byte      `msgpack:"value,omitempty"` // in rows of schema 2
	Encoding string      `msgpack:"encoding,omitempty"`
	Error    *wire.Error `msgpack:"error,omitempty"`
}

// end is o for the store. Only how it ended is kept of an unnamed call: who made it was told.
func (o Outcome) end(at time.Time, named bool) (store.CallEnd, error) {
	state, errorType := o.state()
	end := store.CallEnd{State: int64(state), ErrorType: errorType, Finished: at, Keep: named}
	if !named {
		return end, nil
	}
	var err error
	end.Head, err = wire.Marshal(stored{Encoding: o.Encoding, Error: o.Error})
	end.Value = o.Value
	return end, err
}

func decodeOutcome(id string, head, value []byte) (Outcome, error) {
	var s stored
	if err := wire.Unmarshal(head, &s); err != nil {
		return Outcome{}, fmt.Errorf("decode outcome of call %s: %w", id, err)
	}
	if len(value) == 0 {
		value = s.Value
	}
	return Outcome{CallID: id, Value: value, Encoding: s.Encoding, Error: s.Error}, nil
}
