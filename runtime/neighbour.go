package runtime

import (
	"os"

	"github.com/agentixd/agentixd/runtime/stream"
	"github.com/agentixd/agentixd/runtime/wire"
	"github.com/agentixd/agentixd/runtime/workerproc"
)

// sioEmit takes an event that the worker sends to hosts. On /log and /trace it is an
// envelope of a neighbour's worker, which is acked and merged into our streams; on /rpc it
// would forge results.
func (w *workerHandler) sioEmit(worker string, f *workerproc.Frame) {
	switch {
	case f.Namespace == wire.NamespaceLog || f.Namespace == wire.NamespaceTrace:
		w.envelope(worker, f)
	case !w.r.plugins.isOpen(f.Namespace):
		w.r.cfg.Logger.Warn("worker emits on a namespace it did not open", "namespace", cut(f.Namespace, 64))
	case len(f.Data) > wire.MaxEventBytes:
		w.r.cfg.Logger.Warn("worker sent a plugin event that is too large", "bytes", len(f.Data), "limit", wire.MaxEventBytes)
	default:
		data := f.Data
		if len(data) == 0 {
			data = []byte{0xc0}
		}
		w.r.hub.append(wire.Record{Kind: wire.RecordPlugin, Time: now(), CallID: recordCallID(f.CallID), Namespace: f.Namespace, Event: f.Event, Data: data})
		w.r.hub.emit(f.Namespace, f.Event, data)
	}
}

// envelope merges one event of a neighbour's worker. The pipe loses nothing and the worker
// sends at once, so each envelope is new unless its number says otherwise.
func (w *workerHandler) envelope(worker string, f *workerproc.Frame) {
	var e wire.Envelope
	if wire.Unmarshal(f.Data, &e) != nil || len(e.Data) == 0 {
		e = wire.Envelope{Data: f.Data} // as the protocol says: the map itself
	}
	if e.Seq > 0 {
		ack, err := wire.Marshal(map[string]uint64{"seq": e.Seq})
		if err == nil {
			err = w.r.sendInbound(worker, f.Namespace, wire.EventStreamAck, ack)
		}
		if err != nil {
			w.r.cfg.Logger.Warn("worker's record is not acked", "err", err)
		}
		if !w.r.fresh(sender{worker, f.Namespace}, e.Sid, e.Seq) {
			return
		}
	}
	if f.Namespace == wire.NamespaceTrace {
		w.span(f.Event, e.Data, f.CallID)
	} else if f.Event == wire.EventRecord {
		w.foreignLog(e.Data, f.CallID)
	}
}

// cursors remember what a neighbour's worker sent.
type cursor struct {
	sid string
	seq uint64
}

// sender is a stream of one worker.
type sender struct{ worker, namespace string }

// fresh reports whether an envelope is new, and notes it.
func (r *Runtime) fresh(from sender, sid string, seq uint64) bool {
	r.cursorMu.Lock()
	defer r.cursorMu.Unlock()
	if c := r.cursors[from]; c.sid == sid && seq <= c.seq {
		return false
	}
	r.cursors[from] = cursor{sid: sid, seq: seq}
	return true
}

// forget drops what is known of the streams of a worker that is gone.
func (r *Runtime) forget(worker string) {
	r.cursorMu.Lock()
	defer r.cursorMu.Unlock()
	delete(r.cursors, sender{worker, wire.NamespaceLog})
	delete(r.cursors, sender{worker, wire.NamespaceTrace})
}

// foreignLog takes a log record of a neighbour's worker. A captured line is output.
func (w *workerHandler) foreignLog(data []byte, callID string) {
	var line struct {
		Name    string  `msgpack:"name"`
		Message string  `msgpack:"message"`
		Created float64 `msgpack:"created"`
		Extras  struct {
			Stream string `msgpack:"agentix_stream"`
		} `msgpack:"extras"`
	}
	captured := wire.Unmarshal(data, &line) == nil && line.Name == loggerOf(line.Extras.Stream)
	if !captured {
		w.log(data, callID)
		return
	}
	w.r.hub.append(wire.Record{
		Kind: wire.RecordOutput, Time: line.Created, CallID: recordCallID(callID), Stream: line.Extras.Stream, Bytes: []byte(line.Message + "\n"),
	})
	w.r.hub.publish(wire.NamespaceLog, wire.EventRecord, data)
}

// loggerOf is the logger name of a captured line.
func loggerOf(stream string) string {
	if stream != "stdout" && stream != "stderr" {
		return ""
	}
	return "agentix.sandbox." + stream
}

// publishOutput makes line records of output, for neighbours' hosts.
func (h *hub) publishOutput(worker, name string, b []byte) {
	if !h.neighbours {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	from := source{worker, name}
	if h.lines[from] == nil {
		h.lines[from] = &stream.Lines{}
	}
	h.lines[from].Add(b, h.lineOf(from)) // one goroutine at a time adds to a stream
	h.wake()
}

// source is an output stream of one worker.
type source struct{ worker, stream string }

// flushLines ends the lines that a worker which is gone left unfinished.
func (h *hub) flushLines(worker string) {
	if !h.neighbours {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, from := range []source{{worker, "stdout"}, {worker, "stderr"}} {
		if lines := h.lines[from]; lines != nil {
			lines.Flush(h.lineOf(from), false)
			delete(h.lines, from)
		}
	}
	h.wake()
}

// lineOf makes the record of one line; h.mu is held when it is called.
func (h *hub) lineOf(from source) func(string) {
	return func(line string) {
		h.appendRing(wire.NamespaceLog, wire.EventRecord, logRecord(map[string]any{
			"name": loggerOf(from.stream), "level": "INFO", "levelno": 20, "module": "stdio", "message": line,
			"agentix_context": workerContext(from.worker),
			"extras":          map[string]any{"agentix_stream": from.stream, "worker_id": from.worker},
		}))
	}
}

var hostContext = func() string {
	host, err := os.Hostname()
	if err != nil {
		return "sandbox"
	}
	return "sandbox-" + host
}()
