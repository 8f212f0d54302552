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
	headerStreamResume = eventHeader(wire.NamespaceLog, wire.EventStreamResume)
	headersStreamAck   = map[string][]byte{ // by stream
		"":                  eventHeader(wire.NamespaceLog, wire.EventStreamAck),
		wire.NamespaceLog:   eventHeader(wire.NamespaceLog, wire.EventStreamAck),
		wire.NamespaceTrace: eventHeader(wire.NamespaceTrace, wire.EventStreamAck),
	}
)

// Call sends one call on whatever connection there is; see CallIn.
func (l *Link) Call(ctx context.Context, c *wire.Call) error {
	return l.CallIn(ctx, l.Session(), c)
}

// CallIn queues one call on the connection with this number. Unavailable means that it was
// surely not sent, ResourceExhausted that it never can be; any other error means that
// nobody knows. With nil, the call leaves unless the connection ends before.
func (l *Link) CallIn(ctx context.Context, session uint64, c *wire.Call) error {
	s, o, err := l.prepare(session, c)
	if err == nil && !s.out.push(ctx, o) {
		err = unavailable("the connection to the runtime of sandbox %s ended", l.opts.Sandbox)
	}
	return err
}

// TryCallIn is CallIn for those who cannot wait: false without an error means that too many
// bytes wait to be written already.
func (l *Link) TryCallIn(session uint64, c *wire.Call) (bool, error) {
	s, o, err := l.prepare(session, c)
	if err != nil {
		return false, err
	}
	return s.out.tryPush(o), nil
}

// prepare encodes a call for the connection with this number.
func (l *Link) prepare(number uint64, c *wire.Call) (*session, outbound, error) {
	l.mu.Lock()
	s := l.session
	if number != l.number {
		s = nil
	}
	l.mu.Unlock()
	if s == nil {
		return nil, outbound{}, unavailable("no connection to the runtime of sandbox %s", l.opts.Sandbox)
	}
	sent := *c
	sent.CallID = s.outID(c.CallID)
	payload, err := wire.Marshal(&sent)
	if err != nil {
		return nil, outbound{}, fmt.Errorf("encode call: %w", err)
	}
	if limit := s.maxPayload.Load(); int64(len(payload)) > limit {
		return nil, outbound{}, errs.OverLimit("runtime_message_bytes", limit, int64(len(payload)))
	}
	return s, outbound{text: headerCall, binary: payload, callID: c.CallID}, nil
}

// Cancel asks the runtime to cancel a call. It never blocks, and is lost while disconnected.
func (l *Link) Cancel(callID string) { l.sendRef(headerCancel, callID) }

// AckResult lets the runtime forget the outcome of a call. It never blocks, and is lost
// while disconnected.
func (l *Link) AckResult(callID string) { l.sendRef(headerAck, callID) }

func (l *Link) sendRef(header []byte, callID string) {
	if s := l.current(); s != nil {
		s.sendRef(header, callID)
	}
}

func (s *session) sendRef(header []byte, callID string) {
	payload, err := wire.Marshal(wire.CallRef{CallID: s.outID(callID)})
	if err != nil {
		return // a struct of one string always encodes
	}
	s.out.pushControl(outbound{text: header, binary: payload})
}

// AckRecords lets the runtime forget all records of a stream and its sender sid up to seq. It
// never blocks, and is lost while disconnected.
func (l *Link) AckRecords(stream, sid string, seq uint64) {
	if s := l.current(); s != nil && sid != "" {
		s.out.setAck(stream, Position{Sid: sid, Seq: seq})
	}
}

func (l *Link) current() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}
