// Package events is the journal behind StreamEvents: what happened in each sandbox, in one
// order, kept on disk and read by any number of readers at their own pace.
//
// What AppendBatch takes comes from inside a sandbox and is hostile: every text is bounded
// and made valid UTF-8, every time is clamped, and a record that makes no sense becomes a
// counted gap. What is read back from disk is our own.
package events

import "time"

// Event is one entry of a sandbox's journal. Events handed to readers are shared: they must
// not be changed.
type Event struct {
	Seq     uint64
	Time    time.Time
	Sandbox string // its id
	CallID  string
	Cursor  string // set by Read: the position after this event, for Query.After
	Body    Body
}

// Size is about how many bytes the event has.
func (ev *Event) Size() int {
	const head = 192 // numbers, times, names, tags
	n := head + len(ev.CallID) + len(ev.Sandbox)
	switch b := ev.Body.(type) {
	case *Log:
		n += len(b.Logger) + len(b.Message) + len(b.Pathname) + len(b.Function) + len(b.Module) + len(b.ExceptionText) + len(b.StackInfo) + len(b.Extras)
	case *Output:
		n += len(b.Data)
	case *Span:
		n += len(b.Name) + len(b.Attributes) + len(b.StatusDescription) + len(b.Error) + len(b.Events)
	case *Plugin:
		n += len(b.Namespace) + len(b.Event) + len(b.Data) + len(b.MsgpackData)
	case *Lifecycle:
		n += len(b.Message)
	case *Call:
		n += len(b.Callable) + len(b.ErrorType) + len(b.ErrorMessage)
	}
	return n
}

// Kind says what an event is; the numbers are those of proto enum agentix.v1.EventKind.
type Kind uint8

// The kinds.
const (
	KindLog Kind = iota + 1
	KindOutput
	KindSpan
	KindPlugin
	KindLifecycle
	KindCall
	KindGap
)

func (k Kind) bit() uint32 { return 1 << k }

// Body is one of *Log, *Output, *Span, *Plugin, *Lifecycle, *Call and *Gap. They mirror the
// messages of event_service.proto; enum values are their names without prefix.
type Body interface{ Kind() Kind }

// Log is a record of Python's logging.
type Log struct {
	Logger        string
	Level         string
	LevelNumber   int32
	Message       string
	Pathname      string
	Line          int32
	Function      string
	Module        string
	ExceptionText string
	StackInfo     string
	Extras        string // JSON object; empty = none
}

// Streams of Output.
const (
	Stdout = "STDOUT"
	Stderr = "STDERR"
)

// Output is a chunk of bytes as written.
type Output struct {
	Stream string // Stdout or Stderr
	Data   []byte
}

// Phases of Span.
const (
	TraceStart = "TRACE_START"
	TraceEnd   = "TRACE_END"
	SpanStart  = "SPAN_START"
	SpanEnd    = "SPAN_END"
)

// Span tells that a trace or a span began or ended.
type Span struct {
	Phase             string
	TraceID           string
	SpanID            string
	ParentID          string
	Name              string
	Attributes        string    // JSON object; empty = none
	StartTime         time.Time // zero = not known
	EndTime           time.Time // zero = not known
	Status            string
	StatusDescription string
	Error             string // JSON object; empty = none
	Events            string // JSON array; empty = none
}

// Plugin is an event on a plugin namespace.
type Plugin struct {
	Namespace   string
	Event       string
	Data        string // JSON text; empty if the payload has no JSON form
	MsgpackData []byte
}

// States and reasons that the journal itself looks at.
const (
	stateCreating = "CREATING"
	stateReady    = "READY"
	stateStopped  = "STOPPED"
	reasonDeleted = "DELETED"
)

// Lifecycle tells that the sandbox changed its state.
type Lifecycle struct {
	State   string // for example "READY"
	Reason  string // for example "EXITED"; empty = none
	Message string
}

// Phases of Call.
const (
	CallAccepted = "ACCEPTED"
	CallFinished = "FINISHED"
)

// Call tells that a call was accepted or ended.
type Call struct {
	Phase        string
	Callable     string
	ErrorType    string
	ErrorMessage string
}

// Sources of Gap.
const (
	SourceJournal = "journal" // retention passed the events
	SourceRuntime = "runtime" // the runtime's buffer overflowed, or it sent what makes no sense
)

// Gap tells that events were lost.
type Gap struct {
	FromSeq uint64
	ToSeq   uint64
	Dropped uint64 // 0 = unknown
	Source  string
}

// Kind is KindLog.
func (*Log) Kind() Kind { return KindLog }

// Kind is KindOutput.
func (*Output) Kind() Kind { return KindOutput }

// Kind is KindSpan.
func (*Span) Kind() Kind { return KindSpan }

// Kind is KindPlugin.
func (*Plugin) Kind() Kind { return KindPlugin }

// Kind is KindLifecycle.
func (*Lifecycle) Kind() Kind { return KindLifecycle }

// Kind is KindCall.
func (*Call) Kind() Kind { return KindCall }

// Kind is KindGap.
func (*Gap) Kind() Kind { return KindGap }
