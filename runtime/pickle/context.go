package pickle

import (
	"maps"
	"slices"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Context is what a call carries beside its arguments.
type Context struct {
	Baggage map[string]string
	Trace   *Trace
	Span    *Span
}

// Trace is the trace that spans of the call belong to.
type Trace struct {
	ID        string // "trace_" and 32 hex digits
	Name      string
	StartedAt string // YYYY-MM-DDTHH:MM:SS.ffffffZ
}

// Span is the parent of the spans of the call.
type Span struct {
	ID        string // "span_" and 24 hex digits
	TraceID   string
	Name      string
	StartedAt string
}

// Keys of the context and the module of its classes.
const (
	keyBaggage  = "agentix_context_baggage"
	keyTrace    = "agentix_trace_current_trace"
	keySpan     = "agentix_trace_current_span"
	traceModule = "agentix.utils.trace"
)

// Encode returns the pickle of the context, nil if it is empty: then a call carries none.
func (c Context) Encode() ([]byte, error) {
	var members []func(*writer)
	if len(c.Baggage) > 0 {
		members = append(members, func(w *writer) {
			w.name(keyBaggage)
			w.strings(c.Baggage)
		})
	}
	if t := c.Trace; t != nil {
		members = append(members, func(w *writer) {
			w.name(keyTrace)
			w.instance("Trace", []field{
				{"trace_id", &t.ID}, {"name", &t.Name}, {"metadata", emptyDict},
				{"started_at", &t.StartedAt}, {"ended_at", nil},
			})
		})
	}
	if s := c.Span; s != nil {
		unset := "unset"
		members = append(members, func(w *writer) {
			w.name(keySpan)
			w.instance("Span", []field{
				{"span_id", &s.ID}, {"trace_id", &s.TraceID}, {"parent_id", nil}, {"name", &s.Name},
				{"attrs", emptyDict}, {"started_at", &s.StartedAt}, {"ended_at", nil}, {"status", &unset},
				{"status_description", nil}, {"error", nil}, {"events", emptyList},
			})
		})
	}
	if len(members) == 0 {
		return nil, nil
	}
	w := newWriter(newTree(nil, bounds{}), wire.MaxArgumentsBytes)
	w.boundary()
	w.put(opEmptyDict)
	w.memoize()
	w.members(len(members), func(i int) { members[i](w) })
	return w.finish()
}

// members writes what each adds for n keys and values into the dictionary on the stack.
func (w *writer) members(n int, each func(int)) {
	if n == 1 {
		each(0)
		w.put(opSetItem)
		return
	}
	for i := 0; i <= n; i += batchSize { // also after a full batch, as in dict
		w.put(opMark)
		for j := i; j < min(n, i+batchSize); j++ {
			each(j)
		}
		w.put(opSetItems)
	}
}

// strings writes a dictionary of strings in the order of its keys.
func (w *writer) strings(m map[string]string) {
	w.boundary()
	w.put(opEmptyDict)
	w.memoize()
	keys := slices.Sorted(maps.Keys(m))
	w.members(len(keys), func(i int) {
		w.string([]byte(keys[i]))
		w.string([]byte(m[keys[i]]))
	})
}

// field is a member of a dataclass; a nil value is None.
type field struct {
	name  string
	value *string
}

// Values of a field that are no strings.
var emptyDict, emptyList = new(string), new(string)

// instance writes an instance of a dataclass of traceModule.
func (w *writer) instance(class string, fields []field) {
	w.boundary()
	w.name(traceModule)
	w.name(class)
	w.put(opStackGlobal)
	w.memoize()
	w.boundary()
	w.put(opEmptyTuple, opNewObj)
	w.memoize()
	w.boundary()
	w.put(opEmptyDict)
	w.memoize()
	w.members(len(fields), func(i int) {
		w.name(fields[i].name)
		switch v := fields[i].value; v {
		case nil:
			w.boundary()
			w.put(opNone)
		case emptyDict:
			w.put(opEmptyDict)
			w.memoize()
		case emptyList:
			w.put(opEmptyList)
			w.memoize()
		default:
			w.string([]byte(*v))
		}
	})
	w.put(opBuild)
}
