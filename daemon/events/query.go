package events

import (
	"slices"
	"time"
)

// Query says which events to read. At most one of After, Tail and Since is set; without
// any, reading begins at the oldest event that is kept.
type Query struct {
	Sandbox    string    // its id; empty = all sandboxes, each in its own order
	After      string    // cursor: begin after it
	Tail       *uint32   // begin with the newest Tail events that match; 0 = only new ones
	Since      time.Time // begin with the first event at or after this time
	Kinds      []Kind    // empty = all
	Namespaces []string  // of plugin events; empty = all
	MinLevel   int32     // of log records
	CallID     string    // events of this call only
	Follow     bool      // go on with new events
	Greet      bool      // with Follow: call fn at once, also without events
}

// filter is a query made ready. Gaps pass every filter: a loss is never silent.
type filter struct {
	kinds      uint32 // 0 = all
	namespaces []string
	minLevel   int32
	callID     string
}

func newFilter(q *Query) filter {
	f := filter{namespaces: q.Namespaces, minLevel: q.MinLevel, callID: q.CallID}
	for _, k := range q.Kinds {
		if k < 32 {
			f.kinds |= k.bit()
		}
	}
	if len(q.Kinds) > 0 {
		f.kinds |= KindGap.bit()
	}
	return f
}

func (f *filter) everything() bool {
	return f.kinds == 0 && len(f.namespaces) == 0 && f.minLevel <= 0 && f.callID == ""
}

func (f *filter) match(ev *Event) bool {
	switch b := ev.Body.(type) {
	case *Gap:
		return true
	case *Log:
		if b.LevelNumber < f.minLevel {
			return false
		}
	case *Plugin:
		if len(f.namespaces) > 0 && !slices.Contains(f.namespaces, b.Namespace) {
			return false
		}
	}
	return (f.kinds == 0 || f.kinds&ev.Body.Kind().bit() != 0) && (f.callID == "" || f.callID == ev.CallID)
}

// finishes reports whether ev is the terminal event of call id.
func finishes(ev *Event, id string) bool {
	b, ok := ev.Body.(*Call)
	return ok && b.Phase == CallFinished && ev.CallID == id
}

// endsLife reports whether ev is the last of a sandbox.
func endsLife(ev *Event) bool {
	b, ok := ev.Body.(*Lifecycle)
	return ok && b.State == stateStopped && b.Reason == reasonDeleted
}
