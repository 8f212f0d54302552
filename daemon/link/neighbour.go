package link

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// neighbour is what one connection to a neighbour's runtime needs besides. The public
// protocol has no fence, no owners of results and no names in acks, so:
//   - our ids carry a tag, by which results of other hosts on the same runtime are told from ours;
//   - calls are resumed a moment after the connect, since the call itself may still be on
//     its way through the connection before, and a resume that came first would be answered
//     as if the call had never been;
//   - _resume always asks for everything unacked: a cursor that belongs to a worker which has
//     been replaced meanwhile would skip the first records of its successor;
//   - live records that overtake the replay wait for it, in a lane for each stream.
//
// All of it belongs to the goroutine of Link.Run.
type neighbour struct {
	l     *Link
	lanes []*lane
	probe string // id of the probe under way

	calls   []string // to resume at callsAt
	cancels []string
	callsAt time.Time
}

var neighbourNamespaces = []string{wire.NamespaceRPC, wire.NamespaceTrace, wire.NamespaceLog}

func newNeighbour(l *Link) *neighbour { return &neighbour{l: l} }

// join connects to the namespaces. Events that come before all are joined are not lost: they
// are kept until they are acked, and asked for again.
func (n *neighbour) join(s *session) error {
	joined := map[string]bool{}
	for len(joined) < len(neighbourNamespaces) {
		i, ok := s.in.get()
		if !ok {
			return s.err
		}
		switch i.kind {
		case packetOpen:
			for _, namespace := range neighbourNamespaces {
				s.out.pushControl(outbound{text: []byte("40" + namespace + ",{}")})
			}
		case packetConnect:
			if joined[i.namespace] || !slices.Contains(neighbourNamespaces, i.namespace) {
				return violation("CONNECT of namespace %s that was not asked for", quote(i.namespace))
			}
			joined[i.namespace] = true
		case packetConnectError:
			return fmt.Errorf("%w namespace %s: %s", errRefused, quote(i.namespace), connectErrorText(i.data))
		case packetDisconnect:
			return fmt.Errorf("the runtime disconnected namespace %s", quote(i.namespace))
		default:
		}
	}
	return nil
}

// begin sends what goes first on a connection, and plans the rest.
func (n *neighbour) begin(s *session, r Resume) error {
	for _, namespace := range []string{wire.NamespaceTrace, wire.NamespaceLog} {
		n.lanes = append(n.lanes, newLane(n, s, namespace, r.Streams[namespace]))
		n.askAll(s, namespace)
	}
	n.calls, n.cancels = append(r.CallIDs, r.Again...), r.Cancel
	if len(n.calls)+len(n.cancels) > 0 {
		n.callsAt = n.wake(s, s.timing.resume)
	}
	if n.l.probed {
		return nil
	}
	return n.sendProbe(s)
}

// askAll asks for every record of a stream that was not acked.
func (n *neighbour) askAll(s *session, namespace string) {
	payload, err := wire.Marshal(wire.StreamResume{})
	if err == nil { // a struct of one number always encodes
		s.out.pushControl(outbound{text: eventHeader(namespace, wire.EventStreamResume), binary: payload})
	}
}

// wake lets handle look what is due after d, and returns when that is. When the inbox is
// full, what is in it makes handle look.
func (n *neighbour) wake(s *session, d time.Duration) time.Time {
	at := s.clock.Now().Add(d) // first: the timer must not fire before it
	s.clock.AfterFunc(d, func() { s.in.tryPut(inbound{kind: packetTick}) })
	return at
}

// handle takes one packet of an established connection, and does what is due. Nothing but
// what breaks the connection is an error: an event that makes no sense is counted only.
func (n *neighbour) handle(s *session, i inbound) error {
	err := n.take(s, i)
	now := s.clock.Now()
	for _, lane := range n.lanes {
		lane.expire(now)
	}
	if err == nil && !n.callsAt.IsZero() && !now.Before(n.callsAt) {
		n.callsAt = time.Time{}
		err = n.resume(s)
	}
	return err
}

func (n *neighbour) resume(s *session) error {
	ids := make([]string, len(n.calls))
	for k, id := range n.calls {
		ids[k] = s.outID(id)
	}
	if err := s.resumeCalls(wire.Resume{}, ids); err != nil {
		return err
	}
	for _, id := range n.cancels {
		s.sendRef(headerCancel, id)
	}
	n.calls, n.cancels = nil, nil
	return nil
}

func (n *neighbour) take(s *session, i inbound) error {
	switch i.kind {
	case packetTick:
		return nil
	case packetEvent:
	case packetDisconnect, packetConnectError:
		return fmt.Errorf("the runtime disconnected namespace %s", quote(i.namespace))
	default:
		return violation("CONNECT of namespace %s that was not asked for", quote(i.namespace))
	}
	for _, lane := range n.lanes {
		if lane.namespace == i.namespace {
			return lane.take(i)
		}
	}
	switch i.event {
	case wire.EventCallResult:
		return n.result(s, i)
	case wire.EventCallError:
		return n.callError(s, i)
	}
	return s.charge()
}

func (n *neighbour) result(s *session, i inbound) error {
	r, err := decodeResult(i.data)
	if err != nil {
		return n.malformed(s, i)
	}
	switch id, mine := s.inID(r.CallID); {
	case r.CallID == n.probe:
		n.probed(s, true, shortText(r.Value), "")
	case mine:
		n.l.opts.Handler.Result(wire.Result{CallID: id, Value: r.Value})
	}
	return nil
}

func (n *neighbour) callError(s *session, i inbound) error {
	e, err := decodeCallError(i.data)
	if err != nil || e.Error == nil {
		return n.malformed(s, i)
	}
	switch id, mine := s.inID(e.CallID); {
	case e.CallID == n.probe:
		n.probeFailed(s, e.Error)
	case mine:
		n.l.opts.Handler.CallError(wire.CallError{CallID: id, Error: e.Error})
	}
	return nil
}

// malformed takes an outcome that cannot be read: it is the end of its call, if that can be told.
func (n *neighbour) malformed(s *session, i inbound) error {
	wireID, _ := peekText(i.data, "call_id")
	id, mine := s.inID(wireID)
	if !mine {
		return s.charge()
	}
	e := &wire.Error{Type: errMalformed, Message: fmt.Sprintf("the runtime sent a %s that cannot be read", i.event)}
	n.l.opts.Handler.CallError(wire.CallError{CallID: id, Error: e})
	return nil
}

// errMalformed is the type that the public protocol has for such an outcome.
const errMalformed = "MalformedError"

// end hands over what waits.
func (n *neighbour) end() {
	for _, lane := range n.lanes {
		lane.release()
	}
}

// Our ids on a neighbour's runtime: the call's own, a dot and the tag of this sandbox.

// outID is the id of a call of ours on the wire.
func (s *session) outID(id string) string {
	if s.neighbour == nil || id == s.neighbour.probe {
		return id
	}
	return id + "." + s.neighbour.l.opts.Foreign.Tag
}

// inID is the id of a call that the wire names, if it is ours.
func (s *session) inID(id string) (string, bool) {
	own, ok := strings.CutSuffix(id, "."+s.neighbour.l.opts.Foreign.Tag)
	return own, ok && ValidCallID(own)
}

// A neighbour tells by nothing that its worker works, so a call has to.

const probeCallable = "platform::python_version"

// probeArguments is the pickle of ((), {}).
var probeArguments = []byte("\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00)}\x94\x86\x94.")

func (n *neighbour) sendProbe(s *session) error {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	n.probe = hex.EncodeToString(b[:])
	payload, err := wire.Marshal(wire.Call{CallID: n.probe, Callable: probeCallable, Arguments: probeArguments})
	if err != nil {
		return fmt.Errorf("encode probe: %w", err)
	}
	if !s.out.push(context.Background(), outbound{text: headerCall, binary: payload}) {
		return errors.New("the connection ended before the worker was asked")
	}
	return nil
}

// probeFailed tells a worker that does not start from one that answered with an error.
func (n *neighbour) probeFailed(s *session, e *wire.Error) {
	switch e.Type {
	case "RuntimeError", "TimeoutError", wire.ErrWorkerDied, wire.ErrBadRequest, wire.ErrResultUnavailable:
		n.probed(s, false, "", cut(e.Type+": "+e.Message, maxNameBytes))
	default:
		n.probed(s, true, "", "")
	}
}

func (n *neighbour) probed(s *session, ready bool, python, why string) {
	s.sendRef(headerAck, n.probe)
	n.probe = ""
	n.l.probed, n.l.python = ready, python
	n.l.updateHealth(s, wire.Ready{WorkerOK: ready, Error: why, Python: python})
}

// shortText is the text that a pickle of nothing but a short string holds; else empty.
func shortText(pickle []byte) string {
	b, ok := strings.CutPrefix(string(pickle[:min(len(pickle), 100)]), "\x80")
	if !ok || len(b) < 1 {
		return ""
	}
	b = b[1:] // the protocol
	if len(b) > 9 && b[0] == 0x95 {
		b = b[9:] // a frame
	}
	if len(b) < 2 || b[0] != 0x8c || len(b) < 2+int(b[1]) {
		return ""
	}
	return cut(strings.ToValidUTF8(b[2:2+int(b[1])], ""), 64)
}
