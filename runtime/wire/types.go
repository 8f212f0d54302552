package wire

import "github.com/vmihailenco/msgpack/v5"

// Auth is the CONNECT payload of our daemon on each namespace (JSON). A neighbour's host sends {}.
type Auth struct {
	Token        string   `json:"token,omitempty"`
	Role         string   `json:"role,omitempty"` // "daemon"
	Epoch        int64    `json:"epoch,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// RoleDaemon is Auth.Role of our daemon.
const RoleDaemon = "daemon"

// Health is the body of GET /health. Status and Version are the public protocol, the rest is ours.
type Health struct {
	Status       string   `json:"status"`
	Version      string   `json:"version"`
	Runtime      string   `json:"runtime,omitempty"`
	Protocol     int      `json:"protocol,omitempty"`
	Ready        bool     `json:"ready"`
	Error        string   `json:"error,omitempty"` // why the worker does not start, once it failed
	Python       string   `json:"python,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// Ready is the payload of EventReady: Sid is the id of the record stream (on /log), Health as of now.
type Ready struct {
	Sid      string `msgpack:"_sid,omitempty"`
	WorkerOK bool   `msgpack:"worker_ready"`
	Error    string `msgpack:"error,omitempty"`
	Python   string `msgpack:"python,omitempty"`
	// The rest is told to daemons that announce CapIsolation or CapRetire.
	Capabilities []string `msgpack:"capabilities,omitempty"`
	// StillRunning, on /rpc, are the calls that have their outcome and whose code runs all the
	// same. For each comes EventCallStopped; what is not in the list has stopped.
	StillRunning []string `msgpack:"still_running,omitempty"`
}

// Call asks for one function call.
type Call struct {
	CallID    string `msgpack:"call_id"`
	Callable  string `msgpack:"callable"`
	Arguments []byte `msgpack:"arguments"`
	Context   []byte `msgpack:"context,omitempty"`
	// The rest is ours.
	Encoding       string            `msgpack:"encoding,omitempty"`
	ResultEncoding string            `msgpack:"result_encoding,omitempty"`
	TimeoutMS      int64             `msgpack:"timeout_ms,omitempty"`
	Traceparent    string            `msgpack:"traceparent,omitempty"`
	Baggage        map[string]string `msgpack:"baggage,omitempty"`
	Isolation      string            `msgpack:"isolation,omitempty"` // IsolationProcess or empty; only where CapIsolation is announced
}

// CallRef names a call, for EventCancel, EventAck and EventCallStopped.
type CallRef struct {
	CallID string `msgpack:"call_id"`
}

// Resume asks for the outcomes of calls. Fence and Epoch are ours: older-epoch sessions
// are closed and unknown ids tombstoned, and every id is answered sooner or later.
type Resume struct {
	CallIDs []string `msgpack:"call_ids"`
	Fence   bool     `msgpack:"fence,omitempty"`
	Epoch   int64    `msgpack:"epoch,omitempty"`
	// Again, with Fence: an unknown id is not tombstoned but answered with ErrNotReceived; its
	// call may be sent again, and the id keeps it from running twice.
	Again bool `msgpack:"again,omitempty"`
}

// Result is the outcome of a call that returned.
type Result struct {
	CallID   string `msgpack:"call_id"`
	Value    []byte `msgpack:"value"`
	Encoding string `msgpack:"encoding,omitempty"` // ours
}

// CallError is the outcome of a call that did not return.
type CallError struct {
	CallID string `msgpack:"call_id"`
	Error  *Error `msgpack:"error"`
}

// Error is the error map of the protocol.
type Error struct {
	Type       string  `msgpack:"type"`
	Message    string  `msgpack:"message"`
	Traceback  *string `msgpack:"traceback"`
	Cancelled  bool    `msgpack:"cancelled"`
	Returncode *int    `msgpack:"returncode"`
	// The rest is ours.
	Cause      string      `msgpack:"cause,omitempty"`
	Violations []Violation `msgpack:"violations,omitempty"`
	Limit      int64       `msgpack:"limit,omitempty"`
	Size       int64       `msgpack:"size,omitempty"`
}

// Violation is one argument that the callable does not accept.
type Violation struct {
	Path    string `msgpack:"path"`
	Message string `msgpack:"message"`
}

// StreamAck frees everything up to Seq. Sid is ours; without it the current stream is meant.
type StreamAck struct {
	Sid string `msgpack:"_sid,omitempty"`
	Seq uint64 `msgpack:"seq"`
}

// StreamResume asks for everything after SinceSeq. A Sid that is not the current one counts as 0.
type StreamResume struct {
	Sid      string `msgpack:"_sid,omitempty"`
	SinceSeq uint64 `msgpack:"since_seq"`
}

// Envelope carries one event of a reliable stream to a neighbour's host.
type Envelope struct {
	Sid  string             `msgpack:"_sid"`
	Seq  uint64             `msgpack:"_seq"`
	Data msgpack.RawMessage `msgpack:"data"`
}

// Batch carries records to our daemon: Records[i] has number Seq+i in stream Sid. A hole
// between batches never happens silently: lost records are told by a record of kind gap
// that takes one number.
type Batch struct {
	// Stream is the stream of the sandbox that the numbers belong to. Our own runtimes have
	// one, without a name; a neighbour's streams are those of its namespaces. Never on the wire.
	Stream  string   `msgpack:"-"`
	Sid     string   `msgpack:"_sid"`
	Seq     uint64   `msgpack:"_seq"`
	Records []Record `msgpack:"records"`
}

// Record kinds.
const (
	RecordLog    = "log"    // Data is the map of wire §11.2
	RecordOutput = "output" // Stream and Bytes
	RecordSpan   = "span"   // Event is trace_start, trace_end, span_start or span_end; Data is the map of wire §12.1
	RecordPlugin = "plugin" // Namespace and Event; Data is any msgpack value
	RecordGap    = "gap"    // Dropped records were lost here
)

// Record is one record on its way to the journal.
type Record struct {
	Kind      string             `msgpack:"kind"`
	Time      float64            `msgpack:"time"` // seconds since the epoch, by the sandbox's clock
	CallID    string             `msgpack:"call_id,omitempty"`
	Stream    string             `msgpack:"stream,omitempty"` // "stdout" or "stderr"
	Bytes     []byte             `msgpack:"bytes,omitempty"`
	Namespace string             `msgpack:"namespace,omitempty"`
	Event     string             `msgpack:"event,omitempty"`
	Data      msgpack.RawMessage `msgpack:"data,omitempty"`
	Dropped   uint64             `msgpack:"dropped,omitempty"`
}
