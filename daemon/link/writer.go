package link

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/coder/websocket"

	"github.com/agentixd/agentixd/runtime/wire"
)

// write is the writer goroutine: it writes what is queued, many events at a time.
func (s *session) write() {
	defer s.wg.Done()
	for {
		w, ok := s.out.take()
		if !ok {
			return
		}
		if err := s.writeWork(w); err != nil {
			s.fail(fmt.Errorf("write to the runtime: %w", err))
			return
		}
	}
}

var pongFrame = []byte("3")

func (s *session) writeWork(w work) error {
	s.conn.cork()
	if w.pong {
		if err := s.ws.Write(context.Background(), websocket.MessageText, pongFrame); err != nil {
			return err
		}
	}
	for n, o := range w.items {
		if n > 0 && s.out.takePong() {
			if err := s.ws.Write(context.Background(), websocket.MessageText, pongFrame); err != nil {
				return err
			}
		}
		if err := s.writeEvent(o); err != nil {
			return err
		}
		s.out.written(o.size())
	}
	if w.ackSid != "" {
		payload, err := wire.Marshal(wire.StreamAck{Sid: w.ackSid, Seq: w.ackSeq})
		if err != nil {
			return err
		}
		if err := s.writeEvent(outbound{text: headerStreamAck, binary: payload}); err != nil {
			return err
		}
	}
	return s.conn.uncork()
}

func (s *session) writeEvent(o outbound) error {
	if err := s.ws.Write(context.Background(), websocket.MessageText, o.text); err != nil {
		return err
	}
	if o.binary == nil {
		return nil
	}
	return s.ws.Write(context.Background(), websocket.MessageBinary, o.binary)
}

// connectPacket is the CONNECT of one namespace.
func connectPacket(namespace string, auth wire.Auth) (outbound, error) {
	payload, err := json.Marshal(auth)
	if err != nil {
		return outbound{}, fmt.Errorf("encode CONNECT: %w", err)
	}
	return outbound{text: append([]byte("40"+namespace+","), payload...)}, nil
}
