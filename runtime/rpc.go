package runtime

import (
	"github.com/agentixd/agentixd/internal/mutant"
	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/wire"
)

// rpc handles one event of a peer on /rpc.
func (r *Runtime) rpc(p *peer, event string, payload []byte) {
	switch event {
	case wire.EventCall:
		r.onCall(p, payload)
	case wire.EventCancel:
		if id, ok := callID(payload); ok {
			r.calls.cancel(p, id)
		}
	case wire.EventAck:
		if id, ok := callID(payload); ok {
			r.calls.ack(p, id)
		}
	case wire.EventResume:
		r.onResume(p, payload)
	}
}

func (r *Runtime) onCall(p *peer, payload []byte) {
	call, refusal := parseCall(payload)
	if refusal != nil {
		id := ""
		if call != nil {
			id = call.CallID
		}
		r.hub.direct(p.id, errorOutcome(id, refusal))
		return
	}
	session := noNeighbour
	if !p.daemon {
		session = p.id
	}
	verdict, outcome := r.calls.start(call, p.owner(), session, nil)
	switch verdict {
	case calltable.New:
	case calltable.Running: // the outcome will come; a daemon's goes to the session that asked last
		r.calls.adopt(p, call.CallID)
	case calltable.Retained:
		r.calls.adopt(p, call.CallID)
		r.hub.direct(p.id, outcome)
	case calltable.Finished:
		r.hub.direct(p.id, unavailable(call.CallID))
	case calltable.Fenced:
		r.hub.direct(p.id, errorOutcome(call.CallID, fenced()))
	}
}

func fenced() *wire.Error {
	return &wire.Error{Type: wire.ErrFenced, Message: "the call came after a resume that had asked for it in vain; it did not run"}
}

func (r *Runtime) onResume(p *peer, payload []byte) {
	var resume wire.Resume
	if err := wire.Unmarshal(payload, &resume); err != nil {
		var loose struct {
			CallIDs []any `msgpack:"call_ids"`
		}
		if p.daemon || wire.Unmarshal(payload, &loose) != nil {
			return // as the protocol says: not a list, ignored
		}
		for _, id := range loose.CallIDs {
			if text, ok := id.(string); ok {
				resume.CallIDs = append(resume.CallIDs, text)
			}
		}
	}
	if len(resume.CallIDs) > wire.MaxCallIDs {
		resume.CallIDs = resume.CallIDs[:wire.MaxCallIDs]
	}
	if resume.Fence && p.daemon && !mutant.Is(mutant.SkippedTombstone) {
		r.closeOlder(p)
	}
	if !p.daemon {
		resume.Fence, resume.Again = false, false
	}
	r.calls.resume(p, resume)
}

func callID(payload []byte) (string, bool) {
	id, ok := "", false
	err := wire.Fields(payload, func(key string, raw []byte) {
		if key == "call_id" {
			id, ok = wire.Text(raw)
		}
	})
	return id, ok && err == nil
}

// maxCallID bounds the id of a call; a neighbour's host may use any string.
const maxCallID = 1024

// parseCall reads a call. The refusal is what the sender is told; the call is nil if it has
// no id. Unknown keys and ours of a wrong type are a neighbour's business and ignored.
func parseCall(payload []byte) (*wire.Call, *wire.Error) {
	var call wire.Call
	var hasID, hasCallable, hasArguments, bad bool
	err := wire.Fields(payload, func(key string, raw []byte) {
		ok := true
		switch key {
		case "call_id":
			call.CallID, hasID = wire.Text(raw)
		case "callable":
			call.Callable, ok = wire.Text(raw)
			hasCallable = true
		case "arguments":
			call.Arguments, ok = wire.Blob(raw)
			hasArguments = true
		case "context":
			call.Context, ok = wire.Blob(raw)
			ok = ok || len(raw) == 1 && raw[0] == 0xc0
		case "encoding":
			call.Encoding, ok = wire.Text(raw)
		case "result_encoding":
			call.ResultEncoding, ok = wire.Text(raw)
		case "timeout_ms":
			call.TimeoutMS, ok = wire.Int(raw)
		case "isolation":
			call.Isolation, ok = wire.Text(raw)
		case "traceparent":
			call.Traceparent, ok = wire.Text(raw)
		case "baggage":
			ok = wire.Unmarshal(raw, &call.Baggage) == nil
		}
		bad = bad || !ok
	})
	switch {
	case err != nil || !hasID || len(call.CallID) > maxCallID:
		return nil, &wire.Error{Type: wire.ErrBadRequest, Message: "missing call_id"}
	case !hasCallable:
		return &call, &wire.Error{Type: "KeyError", Message: "'callable'"}
	case !hasArguments:
		return &call, &wire.Error{Type: "KeyError", Message: "'arguments'"}
	case bad:
		return &call, &wire.Error{Type: "ValidationError", Message: "a field of the call has a wrong type"}
	case call.Isolation != "" && call.Isolation != wire.IsolationProcess:
		return &call, &wire.Error{Type: "ValidationError", Message: "isolation is neither absent nor " + wire.IsolationProcess}
	}
	return &call, nil
}
