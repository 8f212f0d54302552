package faulttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Evidence is all that is known of the calls of one sandbox.
type Evidence struct {
	Calls []Call
	Ops   []Op
	Runs  map[string][]Run
	Bad   []string // lines of the file of runs that make no sense

	Journal  []Event // read at the end, from the oldest on
	Followed []Event // what a follower by cursor saw; nil = nobody followed

	RuntimeKilled bool // lines that it had may be lost with it
}

// Report is what Check found.
type Report struct {
	Violations []string
	Mix        map[string]int // calls by kind of outcome
}

// lossy are the errors with which a call may end when processes die.
var lossy = []string{"WorkerDied", "SandboxLost", "ResultUnavailable"}

// Check compares the sources.
func Check(e Evidence) Report {
	c := &check{e: e, ops: map[string][]Op{}, report: Report{Mix: map[string]int{}}}
	calls := map[string]Call{}
	for _, call := range e.Calls {
		calls[call.ID] = call
	}
	for _, op := range e.Ops {
		if _, known := calls[op.Call]; known {
			c.ops[op.Call] = append(c.ops[op.Call], op)
		}
	}
	for _, line := range e.Bad {
		c.violation("", "the file of runs holds %q", line)
	}
	for id := range e.Runs {
		if _, known := calls[id]; !known {
			c.violation(id, "R2: it ran but nobody asked for it")
		}
	}
	c.journal(calls)
	for _, call := range e.Calls {
		c.call(call)
	}
	slices.Sort(c.report.Violations)
	return c.report
}

type check struct {
	e      Evidence
	ops    map[string][]Op
	told   map[string]*kept
	gaps   uint64 // events that the journal says were dropped
	report Report
}

func (c *check) violation(id, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if id != "" {
		text = "call " + id + ": " + text
	}
	c.report.Violations = append(c.report.Violations, text)
}

// call checks one call.
func (c *check) call(call Call) {
	ops, runs := c.ops[call.ID], c.e.Runs[call.ID]
	if len(ops) == 0 {
		c.violation(call.ID, "R3: no client has its outcome")
		c.report.Mix["none"]++
		return
	}
	first := ops[0].Outcome
	earliest := ops[0].Returned
	for _, op := range ops[1:] {
		earliest = min(earliest, op.Returned)
		if op.Outcome != first && (op.Outcome.Refused == "" || first.Refused == "") {
			c.violation(call.ID, "R1: %s was told %q and %s %q", ops[0].Client, first, op.Client, op.Outcome)
		}
	}
	c.report.Mix[first.Kind()]++
	if len(runs) > 1 {
		c.violation(call.ID, "R2: it ran %d times", len(runs))
	}
	for _, run := range runs {
		if run.N != call.N {
			c.violation(call.ID, "R4: it ran with %d and was called with %d", run.N, call.N)
		}
		if run.Began > earliest {
			c.violation(call.ID, "R2: it began %d µs after its end was told (%s)", (run.Began-earliest)/1000, first)
		}
	}
	c.outcome(call, first, runs)
	c.kept(call, first, runs)
}

// outcome checks what was told of a call against its runs.
func (c *check) outcome(call Call, o Outcome, runs []Run) {
	switch {
	case o.Hung != "":
		c.violation(call.ID, "R3: %s", o)
	case o.Refused != "":
		if len(runs) > 0 {
			c.violation(call.ID, "R1: it ran and was refused: %s", o.Refused)
		}
	case o.Error != "":
		unstarted := len(runs) == 0 && strings.HasPrefix(o.Message, "worker does not start: ") // a worker was killed as it began
		if !slices.Contains(lossy, o.Error) && !unstarted {
			c.violation(call.ID, "R1: it ended as %s", o)
		}
	default:
		var value struct{ Call, Proof string }
		if err := json.Unmarshal([]byte(o.Value), &value); err != nil || value.Call != call.ID || value.Proof != call.Proof() {
			c.violation(call.ID, "R4: its value %s is not of this call", o.Value)
		}
		if len(runs) == 0 || runs[len(runs)-1].Ended == 0 {
			c.violation(call.ID, "R4: it has a value and did not run to its end")
		}
	}
}

// kept checks a call against the journal.
func (c *check) kept(call Call, o Outcome, runs []Run) {
	k := c.told[call.ID]
	if k == nil {
		k = &kept{}
	}
	if o.Refused != "" {
		if k.accepted+k.finished > 0 {
			c.violation(call.ID, "R1: it was refused, and the journal has it")
		}
		return
	}
	if k.accepted > 1 || k.finished != 1 {
		c.violation(call.ID, "R6: the journal tells %d begins and %d ends", k.accepted, k.finished)
	}
	if k.finished > 0 && k.errorType != o.Error {
		c.violation(call.ID, "R1: clients were told %q, the journal %q", o, k.errorType)
	}
	for kind, lines := range map[string]*lines{"printed": &k.printed, "logged": &k.logged} {
		if !lines.prefix() && c.gaps == 0 {
			c.violation(call.ID, "R6: %s lines %v have a hole or a double", kind, lines.numbers)
		}
		if o.Error == "" && lines.beforeEnd != wants(call) && c.gaps == 0 && (kind == "printed" || call.Callable != Count) {
			c.violation(call.ID, "R6: %d %s lines came before its end, it wrote %d", lines.beforeEnd, kind, wants(call))
		}
	}
	if len(runs) > 0 && runs[0].Printed && len(k.printed.numbers) < 2 && c.gaps == 0 && !c.e.RuntimeKilled {
		c.violation(call.ID, "R5: it printed 2 lines and the journal has %d", len(k.printed.numbers))
	}
}

// Names of functions of the project.
const (
	Work         = "fault::work"
	WorkOnThread = "fault::work_on_thread"
	Count        = "fault::count"
)

func wants(call Call) int {
	if call.Callable == Count {
		return call.N
	}
	return 3
}

// Text is the report for people.
func (r Report) Text() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(r.Mix)) {
		_, _ = fmt.Fprintf(&b, "%s %d, ", kind, r.Mix[kind])
	}
	text := "outcomes: " + strings.TrimSuffix(b.String(), ", ")
	for i, v := range r.Violations {
		if i == 40 {
			return text + fmt.Sprintf("\n... and %d more", len(r.Violations)-i)
		}
		text += "\n" + v
	}
	return text
}
