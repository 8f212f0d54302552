package faulttest

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/protobuf/proto"
)

// Event is an event of the journal, cut down to what the checker needs.
type Event struct {
	Seq       uint64
	CallID    string
	Kind      string // accepted, finished, printed, logged, gap or other
	Text      string // what was printed or logged
	ErrorType string
	Dropped   uint64
	Hash      uint64 // of all of it
}

var seed = maphash.MakeSeed()

// Reduce makes an Event.
func Reduce(ev *agentixv1.Event) Event {
	e := Event{Seq: ev.GetSeq(), CallID: ev.GetCallId(), Kind: "other"}
	whole := proto.CloneOf(ev)
	whole.Cursor = "" // another daemon may write it differently
	if b, err := (proto.MarshalOptions{Deterministic: true}).Marshal(whole); err == nil {
		e.Hash = maphash.Bytes(seed, b)
	}
	switch {
	case ev.GetCall() != nil:
		e.Kind, e.ErrorType = "accepted", ev.GetCall().GetErrorType()
		if ev.GetCall().GetPhase() == agentixv1.CallPhase_CALL_PHASE_FINISHED {
			e.Kind = "finished"
		}
	case ev.GetOutput() != nil:
		e.Kind, e.Text = "printed", string(ev.GetOutput().GetData())
	case ev.GetLog() != nil:
		e.Kind, e.Text = "logged", ev.GetLog().GetMessage()+"\n"
	case ev.GetGap() != nil:
		e.Kind, e.Dropped = "gap", ev.GetGap().GetDropped()
	}
	return e
}

// kept is what the journal has of one call.
type kept struct {
	accepted, finished int
	errorType          string
	printed, logged    lines
}

// lines are numbered lines of one call, in the order of the journal.
type lines struct {
	rest      string
	numbers   []int
	beforeEnd int // how many came before the terminal event
}

func (l *lines) prefix() bool {
	for i, n := range l.numbers {
		if n != i+1 {
			return false
		}
	}
	return true
}

// journal reads the journal by call, and checks its order and the follower's.
func (c *check) journal(calls map[string]Call) {
	c.told = map[string]*kept{}
	last := uint64(0)
	for _, e := range c.e.Journal {
		switch {
		case last == 0 && e.Kind != "gap" && e.Seq != 1, last != 0 && e.Kind != "gap" && e.Seq != last+1:
			c.violation("", "R6: event %d comes after %d", e.Seq, last)
		}
		last = e.Seq
		c.event(calls, e)
	}
	if c.e.Followed == nil {
		return
	}
	if len(c.e.Followed) != len(c.e.Journal) {
		c.violation("", "R6: a follower saw %d events, the journal has %d", len(c.e.Followed), len(c.e.Journal))
	}
	for i, e := range c.e.Followed {
		if i >= len(c.e.Journal) || c.e.Journal[i].Hash != e.Hash {
			c.violation("", "R6: a follower saw event %d %s %s %q where the journal has another: %s", e.Seq, e.Kind, e.CallID, e.Text, c.at(i))
			break
		}
	}
}

func (c *check) at(i int) string {
	if i >= len(c.e.Journal) {
		return "none"
	}
	e := c.e.Journal[i]
	return fmt.Sprintf("%d %s %s %q", e.Seq, e.Kind, e.CallID, e.Text)
}

func (c *check) event(calls map[string]Call, e Event) {
	if e.Kind == "gap" {
		c.gaps += max(1, e.Dropped)
		return
	}
	if e.CallID == "" {
		return
	}
	if _, known := calls[e.CallID]; !known {
		c.violation(e.CallID, "R4: the journal has it and nobody asked for it")
		return
	}
	k := c.told[e.CallID]
	if k == nil {
		k = &kept{}
		c.told[e.CallID] = k
	}
	switch e.Kind {
	case "accepted":
		k.accepted++
	case "finished":
		k.finished++
		k.errorType = e.ErrorType
	case "printed":
		c.lines(&k.printed, e, k.finished)
	case "logged":
		c.lines(&k.logged, e, k.finished)
	}
}

// lines takes whole lines of the form `call number`.
func (c *check) lines(l *lines, e Event, finished int) {
	l.rest += e.Text
	for {
		line, rest, whole := strings.Cut(l.rest, "\n")
		if !whole {
			return
		}
		l.rest = rest
		id, number, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if id != e.CallID || err != nil {
			c.violation(e.CallID, "R4: its line is %q", line)
			continue
		}
		l.numbers = append(l.numbers, n)
		if finished == 0 {
			l.beforeEnd++
		}
	}
}
