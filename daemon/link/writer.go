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
		if err := s.writeWork(&w); err != nil {
			s.out.putBack(w.items)
			s.fail(fmt.Errorf("write to the runtime: %w", err))
			return
		}
	}
}

var pongFrame = []byte("3")

// writeWork writes w; what it has begun to write is no longer in it then.
func (s *session) writeWork(w *work) error {
	s.conn.cork()
	if w.pong {
		if err := s.ws.Write(context.Background(), websocket.MessageText, pongFrame); err != nil {
			return err
		}
	}
	for len(w.items) > 0 {
		o := w.items[0]
		w.items[0], w.items = outbound{}, w.items[1:]
		if err := s.writeEvent(o); err != nil {
			return err
		}
		s.out.written(o.size())
		if len(w.items) > 0 && s.out.takePong() {
			if err := s.ws.Write(context.Background(), websocket.MessageText, pongFrame); err != nil {
				return err
			}
		}
	}
	for stream, at := range w.acks {
		ack := wire.StreamAck{Seq: at.Seq}
		if stream == "" { // the public protocol has no name of the sender here
			ack.Sid = at.Sid
		}
		payload, err := wire.Marshal(ack)
		if err != nil {
			return err
		}
		if err := s.writeEvent(outbound{text: headersStreamAck[stream], binary: payload}); err != nil {
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
