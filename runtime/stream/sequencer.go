package stream

import "github.com/agentixd/agentixd/runtime/wire"

// Outcome is a terminal event of a call on its way to a session, as an encoded payload.
type Outcome struct {
	Event   string
	Payload []byte
	mark    uint64 // the newest record when it came: all up to it go first
}

// Sequencer decides what one daemon session is sent next: records within the window, and
// each outcome after the records that came before it.
type Sequencer struct {
	streaming bool // _resume came
	joined    bool // the session is on the stream's namespace, so outcomes wait for its _resume
	cursor    uint64
	inFlight  int
	sent      []sentBatch
	outcomes  []Outcome
}

type sentBatch struct {
	last uint64
	size int
}

// Join tells that the session joined the stream's namespace.
func (s *Sequencer) Join() { s.joined = true }

// Resume starts sending after cursor, or starts over there.
func (s *Sequencer) Resume(cursor uint64) {
	s.streaming, s.cursor, s.inFlight, s.sent = true, cursor, 0, nil
}

// Ack opens the window for what was acked up to seq.
func (s *Sequencer) Ack(seq uint64) {
	n := 0
	for n < len(s.sent) && s.sent[n].last <= seq {
		s.inFlight -= s.sent[n].size
		n++
	}
	s.sent = s.sent[n:]
}

// Queue adds an outcome behind all that is in b now.
func (s *Sequencer) Queue(b *Buffer, event string, payload []byte) {
	s.outcomes = append(s.outcomes, Outcome{Event: event, Payload: payload, mark: b.Last()})
}

// Next returns what to send now, either a batch or an outcome, and ok = false when there is
// nothing to send or the window is full. The caller sends it before it asks again.
func (s *Sequencer) Next(b *Buffer, now float64) (batch wire.Batch, outcome *Outcome, ok bool) {
	upTo := b.Last()
	if len(s.outcomes) > 0 {
		first := s.outcomes[0]
		if !s.joined || s.streaming && s.cursor >= first.mark {
			s.outcomes[0] = Outcome{} // a large payload must not stay
			s.outcomes = s.outcomes[1:]
			return wire.Batch{}, &first, true
		}
		upTo = first.mark // an outcome does not wait for records that came after it
	}
	if !s.streaming || s.cursor >= upTo || s.inFlight >= wire.StreamWindowBytes {
		return wire.Batch{}, nil, false
	}
	batch, size := b.After(s.cursor, upTo, now)
	s.cursor = batch.Seq + uint64(len(batch.Records)) - 1
	s.inFlight += size
	s.sent = append(s.sent, sentBatch{last: s.cursor, size: size})
	return batch, nil, true
}
