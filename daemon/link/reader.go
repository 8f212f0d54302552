package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/agentixd/agentixd/runtime/wire"
)

// read is the reader goroutine: it pairs frames, answers pings and fills the inbox.
func (s *session) read() {
	defer s.wg.Done()
	for {
		if err := s.readPacket(); err != nil {
			s.fail(cmp.Or(s.controlErr, err))
			return
		}
	}
}

func (s *session) readPacket() error {
	text, err := s.readMessage(websocket.MessageText, maxTextBytes)
	if err != nil {
		return err
	}
	p, err := parseText(text)
	if err != nil {
		return err
	}
	if !s.opened && p.kind != packetOpen {
		return violation("a packet before the open packet")
	}
	switch p.kind {
	case packetOpen:
		return s.acceptOpen(p)
	case packetPing:
		s.out.pushPong()
		return s.charge()
	case packetClose:
		return errors.New("the runtime closed the connection")
	case packetIgnored:
		return s.charge()
	case packetEvent, packetSkip:
		return s.readAttachments(p)
	default:
		return s.deliver(inbound{kind: p.kind, namespace: p.namespace, data: p.data})
	}
}

func (s *session) acceptOpen(p packet) error {
	if s.opened {
		return violation("a second open packet")
	}
	o, err := parseOpen(p.data)
	if err != nil {
		return err
	}
	interval := clampMillis(o.PingInterval, minPingInterval, maxPingInterval)
	timeout := clampMillis(o.PingTimeout, minPingTimeout, maxPingTimeout)
	s.idleLimit.Store(int64(interval + timeout))
	s.pongEvery.Store(int64(interval))
	if o.MaxPayload >= 1 && o.MaxPayload < wire.MaxMessageBytes {
		s.maxPayload.Store(int64(o.MaxPayload))
	}
	s.opened = true
	return s.deliver(inbound{kind: packetOpen})
}

func clampMillis(ms float64, least, most time.Duration) time.Duration {
	return time.Duration(min(max(ms, float64(least.Milliseconds())), float64(most.Milliseconds()))) * time.Millisecond
}

// readAttachments reads the binary frames of p. Engine packets may come in between, another
// message may not.
func (s *session) readAttachments(p packet) error {
	limit := attachmentLimit(p.namespace, p.event)
	if s.neighbour != nil {
		limit = neighbourLimit(p.namespace)
	}
	if p.kind == packetSkip || limit == 0 {
		for range p.attachments {
			if err := s.readBinary(wire.MaxMessageBytes, nil); err != nil {
				return err
			}
		}
		return s.charge()
	}
	i := inbound{kind: packetEvent, namespace: p.namespace, event: p.event}
	if err := s.readBinary(limit, &i.data); err != nil {
		return err
	}
	if s.neighbour != nil && len(i.data) > limit {
		i.data, i.cut = append([]byte(nil), i.data[:headBytes]...), true
	}
	return s.deliver(i)
}

// readBinary reads the next binary frame into data, or drops it if data is nil.
func (s *session) readBinary(limit int, data *[]byte) error {
	s.messageStart.Store(s.clock.Now().UnixNano())
	defer s.messageStart.Store(0)
	for {
		kind, r, err := s.ws.Reader(context.Background())
		if err != nil {
			return readError(err)
		}
		if kind == websocket.MessageText {
			b, err := s.readAll(r, 2)
			if err != nil || len(b) != 1 || (b[0] != '2' && b[0] != '6') {
				return violation("a text frame where an attachment is due")
			}
			if b[0] == '2' {
				s.out.pushPong()
			}
			if err := s.charge(); err != nil {
				return err
			}
			continue
		}
		if data == nil {
			return s.discard(r, limit)
		}
		*data, err = s.readAll(r, limit)
		if s.neighbour != nil && len(*data) > limit && limit < wire.MaxMessageBytes { // one event too large, not a broken peer
			return s.discard(r, wire.MaxMessageBytes-len(*data))
		}
		return err
	}
}

// readMessage reads the next message, which must be of this kind and at most limit bytes.
func (s *session) readMessage(want websocket.MessageType, limit int) ([]byte, error) {
	kind, r, err := s.ws.Reader(context.Background())
	if err != nil {
		return nil, readError(err)
	}
	if kind != want {
		return nil, violation("a binary frame that no event announced")
	}
	s.messageStart.Store(s.clock.Now().UnixNano())
	defer s.messageStart.Store(0)
	return s.readAll(r, limit)
}

// readAll reads r to its end. Memory grows with what came, never with what was claimed.
func (s *session) readAll(r io.Reader, limit int) ([]byte, error) {
	s.messageBytes.Store(0)
	buf := make([]byte, 0, min(512, limit+1))
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(max(2*cap(buf), 4096), limit+1))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		s.messageBytes.Store(int64(len(buf)))
		if len(buf) > limit {
			return buf, violation("a message over its limit of %d bytes", limit)
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, readError(err)
		}
	}
}

func (s *session) discard(r io.Reader, limit int) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return readError(err)
	}
	if n > int64(limit) {
		return violation("a message over its limit of %d bytes", limit)
	}
	return nil
}

func readError(err error) error { return fmt.Errorf("read from the runtime: %w", err) }

// deliver queues i for the handler goroutine. When that is behind, it waits, and keeps the
// peer's heartbeat content meanwhile.
func (s *session) deliver(i inbound) error {
	if s.in.tryPut(i) {
		return nil
	}
	s.paused.Store(true)
	stop := s.keepAlive()
	s.in.put(i)
	stop()
	s.conn.lastRead.Store(s.clock.Now().UnixNano())
	s.paused.Store(false)
	return nil
}

// keepAlive sends unasked pongs until stop is called: the reader does not see pings now.
func (s *session) keepAlive() (stop func()) {
	var mu sync.Mutex
	var cancel func() bool
	stopped := false
	var arm func()
	arm = func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		cancel = s.clock.AfterFunc(time.Duration(s.pongEvery.Load()), func() {
			s.out.pushPong()
			arm()
		})
	}
	arm()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		cancel()
	}
}
