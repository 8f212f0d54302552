package runtime

import (
	"log/slog"
	"sync"
	"time"

	"github.com/zishang520/socket.io/servers/engine/v3/transports"
	"github.com/zishang520/socket.io/servers/socket/v3"

	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/stream"
	"github.com/agentixd/agentixd/runtime/wire"
)

// peer is one connection: our daemon or a neighbour's host. All that it is sent comes from
// one goroutine, in one order.
type peer struct {
	id     calltable.Owner
	hub    *hub
	conn   connection
	daemon bool
	epoch  int64
	knows  map[string]bool // daemon: capabilities that it announced
	logger *slog.Logger

	poked  chan struct{} // capacity 1
	urgent chan struct{} // capacity 1: something waits that is no record
	sent   time.Time     // of run alone: the last small batch of records
	gone   chan struct{}
	leave  sync.Once
	cut    chan struct{} // closed to have run close the connection

	cutOnce sync.Once
	backlog backlog // of run alone
	trim    *trimmer

	// Guarded by hub.mu.
	replaced bool                      // daemon: a later session took over, and what still comes from this one is late
	sockets  map[string]*socket.Socket // by namespace
	seq      stream.Sequencer          // daemon: what it is sent
	readers  map[string]*stream.Reader // neighbour: its place in each ring
	watched  map[string]bool           // neighbour: a timer looks whether it acks
	direct   []directEvent             // neighbour, and a daemon's events outside the order
	waiting  int                       // bytes of direct
}

// connection is what a peer needs of its transport.
type connection interface {
	Transport() transports.Transport
	// Close ends the connection without a goodbye, so that a host comes back.
	Close(discard bool)
}

// directEvent is an event outside the streams. It waits for the stream events before it.
type directEvent struct {
	namespace string
	event     string
	payload   []byte
	marks     map[string]uint64
}

// message is one event to send.
type message struct {
	socket  *socket.Socket
	event   string
	payload []byte
	encode  any // what payload is made of, outside the lock
}

// poke lets run look for something to send.
func (p *peer) poke() {
	select {
	case p.poked <- struct{}{}:
	default:
	}
}

// queue adds an event behind all stream events until now; hub.mu is held.
func (p *peer) queue(namespace, event string, payload []byte) {
	select {
	case p.urgent <- struct{}{}:
	default:
	}
	if p.daemon && namespace == wire.NamespaceRPC {
		p.seq.Queue(p.hub.buffer, event, payload)
	} else {
		d := directEvent{namespace: namespace, event: event, payload: payload, marks: map[string]uint64{}}
		for ns := range p.readers {
			d.marks[ns] = p.hub.rings[ns].Last()
		}
		p.direct = append(p.direct, d)
		p.waiting += len(payload)
		if p.waiting > wire.MaxRetainedBytes || len(p.direct) > maxDirect {
			p.logger.Warn("a host that does not read is cut off", "events", len(p.direct), "bytes", p.waiting)
			p.direct, p.waiting = nil, 0
			p.cutOnce.Do(func() { close(p.cut) })
		}
	}
	p.poke()
}

// maxDirect bounds the events that wait for one host.
const maxDirect = 4 * wire.MaxRetained

// run sends until the peer is gone.
func (p *peer) run() {
	for {
		if !p.drained() {
			return
		}
		m, ok := p.next()
		if !ok {
			select {
			case <-p.gone:
				return
			case <-p.cut:
				p.conn.Close(true)
				return
			case <-p.poked:
			}
			continue
		}
		if m.socket == nil { // the peer left the namespace
			continue
		}
		if err := p.send(m); err != nil {
			p.logger.Warn("event is not sent", "event", m.event, "err", err)
		}
		if batch, ok := m.encode.(wire.Batch); ok {
			p.pace(len(batch.Records))
		}
	}
}

// Batches of a few records that follow each other closely would cost the daemon a commit
// each. They wait a little for more, unless an outcome or another event waits for them.
const (
	paceRecords = 256
	paceClose   = 5 * time.Millisecond
	pacePause   = time.Millisecond
)

func (p *peer) pace(records int) {
	now := time.Now()
	since := now.Sub(p.sent)
	p.sent = now
	if records >= paceRecords || since > paceClose {
		return
	}
	timer := time.NewTimer(pacePause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.urgent:
	case <-p.gone:
	}
}

// drained waits until the connection took enough of what it was given; false: the peer is gone.
func (p *peer) drained() bool {
	for p.backlog.of(p.conn.Transport()) > maxBacklog {
		select {
		case <-p.gone:
			return false
		case <-p.cut:
			p.conn.Close(true)
			return false
		case <-p.backlog.meter.progress:
		}
	}
	return true
}

func (p *peer) send(m message) error {
	if m.encode != nil {
		var err error
		if m.payload, err = wire.Marshal(m.encode); err != nil {
			return err
		}
	}
	p.backlog.emitted += int64(len(m.payload))
	p.trim.saw(len(m.payload))
	return emit(m.socket, m.event, m.payload)
}

// next takes what is to be sent now; ok is false if there is nothing.
func (p *peer) next() (m message, ok bool) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if p.daemon {
		if m, ok := p.nextForDaemon(); ok {
			return m, true
		}
	}
	behind := false // what comes next waits for events of a stream
	if len(p.direct) > 0 {
		d := p.direct[0]
		for ns, reader := range p.readers {
			if reader.Cursor() >= d.marks[ns] {
				continue
			}
			if m, ok := p.nextOfRing(ns); ok {
				return m, true
			}
			behind = behind || reader.Blocked(p.hub.rings[ns])
		}
		if !behind {
			p.direct[0] = directEvent{} // a large payload must not stay
			p.direct, p.waiting = p.direct[1:], p.waiting-len(d.payload)
			return message{socket: p.sockets[d.namespace], event: d.event, payload: d.payload}, true
		}
	}
	for ns, reader := range p.readers {
		if m, ok := p.nextOfRing(ns); ok {
			return m, true
		}
		if reader.Blocked(p.hub.rings[ns]) {
			p.hub.watch(p, ns, reader)
		}
	}
	return message{}, false
}

func (p *peer) nextOfRing(namespace string) (message, bool) {
	ring := p.hub.rings[namespace]
	e, ok := p.readers[namespace].Next(ring)
	if !ok {
		return message{}, false
	}
	if e.Dropped > 0 {
		record := p.hub.gapRecord(namespace, e.Dropped)
		if namespace != wire.NamespaceLog { // told where records are, beside the numbers of /log
			return message{socket: p.sockets[wire.NamespaceLog], event: wire.EventRecord, payload: record}, true
		}
		e.Name, e.Data = wire.EventRecord, record
	}
	envelope := wire.Envelope{Sid: ring.Sid(), Seq: e.Seq, Data: e.Data}
	return message{socket: p.sockets[namespace], event: e.Name, encode: envelope}, true
}

func (p *peer) nextForDaemon() (message, bool) {
	batch, outcome, ok := p.seq.Next(p.hub.buffer, now())
	switch {
	case !ok:
		return message{}, false
	case outcome != nil:
		return message{socket: p.sockets[wire.NamespaceRPC], event: outcome.Event, payload: outcome.Payload}, true
	}
	return message{socket: p.sockets[wire.NamespaceLog], event: wire.EventRecords, encode: batch}, true
}

// resumeGrace is how long a neighbour's stream waits for its _resume.
const resumeGrace = 2 * time.Second

// owner is who the calls of p belong to.
func (p *peer) owner() calltable.Owner {
	if p.daemon {
		return p.id
	}
	return calltable.Neighbour
}
