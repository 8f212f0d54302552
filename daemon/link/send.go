package link

import (
	"context"
	"fmt"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// The text frames of what we send.
var (
	headerCall         = eventHeader(wire.NamespaceRPC, wire.EventCall)
	headerCancel       = eventHeader(wire.NamespaceRPC, wire.EventCancel)
	headerAck          = eventHeader(wire.NamespaceRPC, wire.EventAck)
	headerResume       = eventHeader(wire.NamespaceRPC, wire.EventResume)
	headerStreamAck    = eventHeader(wire.NamespaceLog, wire.EventStreamAck)
	headerStreamResume = eventHeader(wire.NamespaceLog, wire.EventStreamResume)
)

// Call sends one call on whatever connection there is; see CallIn.
func (l *Link) Call(ctx context.Context, c *wire.Call) error {
	return l.CallIn(ctx, l.Session(), c)
}

// CallIn queues one call on the connection with this number. Unavailable means that it was
// surely not sent, ResourceExhausted that it never can be; any other error means that
// nobody knows. With nil, the call leaves unless the connection ends before.
func (l *Link) CallIn(ctx context.Context, session uint64, c *wire.Call) error {
	l.mu.Lock()
	s := l.session
	if session != l.number {
		s = nil
	}
	l.mu.Unlock()
	if s == nil {
		return unavailable("no connection to the runtime of sandbox %s", l.opts.Sandbox)
	}
	payload, err := wire.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode call: %w", err)
	}
	if limit := s.maxPayload.Load(); int64(len(payload)) > limit {
		return errs.OverLimit("runtime_message_bytes", limit, int64(len(payload)))
	}
	if !s.out.push(ctx, outbound{text: headerCall, binary: payload}) {
		return unavailable("the connection to the runtime of sandbox %s ended", l.opts.Sandbox)
	}
	return nil
}

// Cancel asks the runtime to cancel a call. It never blocks, and is lost while disconnected.
func (l *Link) Cancel(callID string) { l.sendRef(headerCancel, callID) }

// AckResult lets the runtime forget the outcome of a call. It never blocks, and is lost
// while disconnected.
func (l *Link) AckResult(callID string) { l.sendRef(headerAck, callID) }

func (l *Link) sendRef(header []byte, callID string) {
	s := l.current()
	if s == nil {
		return
	}
	payload, err := wire.Marshal(wire.CallRef{CallID: callID})
	if err != nil {
		return // a struct of one string always encodes
	}
	s.out.pushControl(outbound{text: header, binary: payload})
}

// AckRecords lets the runtime forget all records of stream sid up to seq. It never blocks,
// and is lost while disconnected.
func (l *Link) AckRecords(sid string, seq uint64) {
	if s := l.current(); s != nil && sid != "" {
		s.out.setAck(sid, seq)
	}
}

func (l *Link) current() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}
