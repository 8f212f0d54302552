package runtime

import (
	"bytes"
	"fmt"
	"math"

	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/wire"
	"github.com/agentixd/agentixd/runtime/workerproc"
)

// workerHandler takes what the workers say.
type workerHandler struct{ r *Runtime }

// Output takes what processes wrote to fd 1 and 2.
func (w *workerHandler) Output(worker, name, callID string, b []byte) {
	callID = recordCallID(callID)
	for len(b) > 0 {
		part := b[:min(len(b), wire.MaxLineBytes)]
		b = b[len(part):]
		w.r.hub.append(wire.Record{Kind: wire.RecordOutput, Time: now(), CallID: callID, Stream: name, Bytes: bytes.Clone(part)})
		w.r.hub.publishOutput(worker, name, part)
	}
}

// OutputEnded forgets the streams of a worker.
func (w *workerHandler) OutputEnded(worker string) { w.r.hub.flushLines(worker) }

// State notes whether workers answer.
func (w *workerHandler) State(ok bool, ready workerproc.Ready, failure string) {
	state := wire.Ready{Error: failure}
	if ok {
		w.r.hub.setWorker(ready.WorkerID)
		state = wire.Ready{WorkerOK: true, Python: ready.Python}
	}
	w.r.setState(state, ok || failure != "")
}

// Died ends the calls that were on a worker.
func (w *workerHandler) Died(d workerproc.Death) {
	w.r.cfg.Logger.Warn("worker died", "worker", d.WorkerID, "err", d.Message)
	w.r.hub.flushLines(d.WorkerID)
	w.r.forget(d.WorkerID)
	w.r.calls.workerDied(d)
}

// BootFailed ends the calls that waited for a worker.
func (w *workerHandler) BootFailed(b workerproc.BootError) { w.r.calls.bootFailed(b) }

// Stopped tells daemons that the code of stopped calls has ended.
func (w *workerHandler) Stopped(ids []string) { w.r.calls.stopped(ids) }

// Frame takes one frame.
func (w *workerHandler) Frame(worker string, f workerproc.Frame) {
	switch f.Type {
	case wire.FrameResult:
		w.r.trim.saw(len(f.Value))
		w.r.calls.finish(f.CallID, resultOutcome(&f))
	case wire.FrameError:
		e := workerError(f.Error)
		w.tellFailure(worker, f.CallID, e)
		w.r.calls.ended(f.CallID, e, f.Running)
	case wire.FrameLog:
		w.log(f.Record, f.CallID)
	case wire.FrameSpan:
		w.span(f.Event, f.Data, f.CallID)
	case wire.FrameSIOOpen:
		w.r.plugins.open(f.Namespace)
	case wire.FrameSIOEmit:
		w.sioEmit(worker, &f)
	default:
		w.r.cfg.Logger.Warn("worker sent a frame of unknown type", "type", cut(f.Type, 64))
	}
}

func resultOutcome(f *workerproc.Frame) calltable.Outcome {
	if len(f.Value) > wire.MaxValueBytes {
		return errorOutcome(f.CallID, &wire.Error{
			Type: wire.ErrFrameTooLarge, Limit: wire.MaxValueBytes, Size: int64(len(f.Value)),
			Message: fmt.Sprintf("the result has %d bytes, at most %d can be sent", len(f.Value), wire.MaxValueBytes),
		})
	}
	if f.Payload != nil {
		return calltable.Outcome{Event: wire.EventCallResult, Payload: f.Payload}
	}
	payload, err := wire.Marshal(&wire.Result{CallID: f.CallID, Value: nonNil(f.Value), Encoding: f.Encoding})
	if err != nil {
		return errorOutcome(f.CallID, &wire.Error{Type: wire.ErrResultEncode, Message: err.Error()})
	}
	return calltable.Outcome{Event: wire.EventCallResult, Payload: payload}
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// workerError reads the error map of a worker and bounds its texts.
func workerError(raw []byte) *wire.Error {
	var e wire.Error
	if len(raw) == 0 || !wire.IsMap(raw) || wire.Unmarshal(raw, &e) != nil {
		return &wire.Error{Type: "Unknown", Message: "the worker sent no error that can be read"}
	}
	if e.Type == "" {
		e.Type = "Unknown"
	}
	e.Type, e.Message = cut(e.Type, 256), cut(e.Message, wire.MaxErrorTextBytes)
	if e.Traceback != nil {
		text := cut(*e.Traceback, wire.MaxErrorTextBytes)
		e.Traceback = &text
	}
	return &e
}

// cut bounds a text, at a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xc0 == 0x80 {
		limit--
	}
	return s[:limit]
}

// invokerLogger is what hosts of the public protocol know as the logger of failed calls.
const invokerLogger = "agentix.runtime.server.worker.invoker"

// tellFailure makes the log record of a function that raised, which neighbours' hosts expect.
// A neighbour's worker sends it itself.
func (w *workerHandler) tellFailure(worker, id string, e *wire.Error) {
	if e.Traceback == nil || len(w.r.cfg.WorkerCommand) > 0 || !w.r.calls.runsForNeighbour(id) {
		return
	}
	w.r.hub.publish(wire.NamespaceLog, wire.EventRecord, logRecord(map[string]any{
		"name": invokerLogger, "level": "ERROR", "levelno": 40, "module": "invoker",
		"message": "remote call " + id + " failed", "exc_text": *e.Traceback,
		"agentix_context": workerContext(worker), "extras": nil,
	}))
}

func (w *workerHandler) log(record []byte, callID string) {
	if !w.recordOK(wire.FrameLog, record) {
		return
	}
	at := now()
	_ = wire.Fields(record, func(key string, raw []byte) { // checked already
		if f, ok := wire.Float(raw); key == "created" && ok && f > 0 && !math.IsInf(f, 0) {
			at = f
		}
	})
	w.r.hub.append(wire.Record{Kind: wire.RecordLog, Time: at, CallID: recordCallID(callID), Data: record})
	w.r.hub.publish(wire.NamespaceLog, wire.EventRecord, record)
}

func (w *workerHandler) span(event string, data []byte, only string) {
	switch event {
	case "trace_start", "trace_end", "span_start", "span_end":
	default:
		w.r.cfg.Logger.Warn("worker sent a span event of unknown name", "event", cut(event, 64))
		return
	}
	if !w.recordOK(wire.FrameSpan, data) {
		return
	}
	id := only
	if id == "" {
		id, _ = callID(data)
	}
	w.r.hub.append(wire.Record{Kind: wire.RecordSpan, Time: now(), CallID: recordCallID(id), Event: event, Data: data})
	w.r.hub.publish(wire.NamespaceTrace, event, data)
}

// recordCallID is the id as a record tells it, "" for one that no daemon gave: a neighbour's
// host may use others, and code in the sandbox can forge any bytes.
func recordCallID(id string) string {
	if !wire.ValidCallID(id) {
		return ""
	}
	return id
}

// recordOK checks what becomes the data of a record.
func (w *workerHandler) recordOK(what string, data []byte) bool {
	if !wire.IsMap(data) || len(data) > wire.MaxEventBytes {
		w.r.cfg.Logger.Warn("worker sent a record that is no map, or too large", "type", what, "bytes", len(data), "limit", wire.MaxEventBytes)
		return false
	}
	return true
}
