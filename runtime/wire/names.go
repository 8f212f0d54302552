// Package wire is the protocol between daemon, runtime and worker: names, payload types,
// codec, framing and limits. Both ends import it; it imports neither. The public
// protocol is described in docs/protocol.md; names marked "own" are our additions.
package wire

// Namespaces that the protocol itself uses.
const (
	NamespaceRPC   = "/rpc"
	NamespaceLog   = "/log"
	NamespaceTrace = "/trace"
)

// Events on NamespaceRPC.
const (
	EventCall        = "call"         // host → runtime, Call
	EventCancel      = "cancel"       // host → runtime, CallRef
	EventResume      = "resume"       // host → runtime, Resume
	EventAck         = "ack"          // host → runtime, CallRef
	EventCallResult  = "call:result"  // runtime → host, Result
	EventCallError   = "call:error"   // runtime → host, CallError
	EventCallStopped = "call:stopped" // own; runtime → daemon, CallRef: the code of a call that was cancelled, or whose time ran out, does not run any more
	EventReady       = "ready"        // own; runtime → daemon, last act of joining a namespace: Ready
)

// Events of the reliable stream on NamespaceLog and NamespaceTrace.
const (
	EventRecord       = "record"  // /log, Envelope
	EventStreamAck    = "_ack"    // host → runtime, StreamAck
	EventStreamResume = "_resume" // host → runtime, StreamResume
	EventRecords      = "records" // own; /log, runtime → daemon: Batch of log, output, span and plugin records
)

// Capabilities, as announced in /health, CONNECT and the worker's ready frame.
const (
	CapFence        = "fence"
	CapEncoding     = "encoding"
	CapDeadline     = "deadline"
	CapOwnedResults = "owned-results"
	CapSidAck       = "sid-ack"
	CapNativeWorker = "native-worker"
	CapBaggage      = "baggage"
	CapIsolation    = "isolation" // Call.Isolation
	CapRetire       = "retire"    // EventCallStopped, Ready.StillRunning
	CapStopped      = "stopped"   // of a worker: `running` in error frames, FrameStopped, FramePing
)

// Error types that the wire itself makes.
const (
	ErrBadRequest        = "BadRequest"
	ErrCancelled         = "Cancelled"
	ErrWorkerDied        = "WorkerDied"
	ErrResultUnavailable = "ResultUnavailable"
	ErrFrameTooLarge     = "FrameTooLarge"
	ErrResultEncode      = "ResultEncodeError"
	ErrArgumentsDecode   = "ArgumentsDecodeError"
	ErrArgumentsInvalid  = "ArgumentsInvalid" // own
	ErrDeadlineExceeded  = "DeadlineExceeded" // own
	ErrFenced            = "Fenced"           // own
	ErrNotReceived       = "NotReceived"      // own: to a resume with `again`
	ErrSandboxLost       = "SandboxLost"      // own, made by the daemon
)

// Encodings of arguments and results. The empty string on the wire means pickle.
const (
	EncodingPickle  = "pickle"
	EncodingJSON    = "json"
	EncodingMsgpack = "msgpack"
)

// IsolationProcess is Call.Isolation of a call that gets a worker of its own.
const IsolationProcess = "process"

// Causes of WorkerDied.
const (
	CauseExit   = "EXIT"
	CauseSignal = "SIGNAL"
	CauseOOM    = "OOM_KILLED"
)

// Frame types on the worker pipe.
const (
	FrameCall       = "call"
	FrameCancel     = "cancel"
	FrameShutdown   = "shutdown"
	FrameSIOInbound = "sio_inbound"
	FrameReady      = "ready"
	FrameBootError  = "boot_error"
	FrameResult     = "result"
	FrameError      = "error"
	FrameSIOOpen    = "sio_open"
	FrameSIOEmit    = "sio_emit"
	FrameLog        = "log"     // own: {record, call_id?}
	FrameSpan       = "span"    // own: {event, data}
	FrameStopped    = "stopped" // own: {call_id}, after an error frame with `running`: the code of the call has ended
	FramePing       = "ping"    // own; runtime → worker
	FramePong       = "pong"    // own; the answer of the worker's loop
)
