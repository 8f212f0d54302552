package runtime

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/agentixd/agentixd/internal/mutant"
	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/stream"
	"github.com/agentixd/agentixd/runtime/wire"
)

// hub joins what the sandbox produces with the peers that get it: one buffer for our
// daemon, one ring per namespace for neighbours' hosts.
type hub struct {
	neighbours bool // they are admitted, so the rings are kept

	mu     sync.Mutex
	room   sync.Cond // told when appending may go on
	buffer *stream.Buffer
	rings  map[string]*stream.Ring // by namespace: /log and /trace
	lines  map[source]*stream.Lines
	peers  map[calltable.Owner]*peer
	closed bool
	worker string                  // the id of the last one that was ready, for records that no worker made
	absent map[string][]absentHost // by namespace
}

func newHub(neighbours bool, logBuffer, traceBuffer int) *hub {
	h := &hub{
		neighbours: neighbours,
		buffer:     stream.NewBuffer(newSid()),
		rings: map[string]*stream.Ring{
			wire.NamespaceLog:   stream.NewRing(newSid(), logBuffer),
			wire.NamespaceTrace: stream.NewRing(newSid(), traceBuffer),
		},
		lines: map[source]*stream.Lines{},
		peers: map[calltable.Owner]*peer{}, absent: map[string][]absentHost{},
	}
	h.room.L = &h.mu
	return h
}

// setWorker tells which worker is ready.
func (h *hub) setWorker(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worker = id
}

func newSid() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

// append adds a record to the daemon's stream. While a daemon is there and the buffer is
// full it blocks, which slows the sandbox; without one the oldest records are dropped.
func (h *hub) append(r wire.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.closed && h.buffer.Bytes() >= wire.MaxStreamBytes && h.daemonHere() {
		h.room.Wait()
	}
	if h.closed {
		return
	}
	h.buffer.Append(r)
	if !h.daemonHere() {
		h.buffer.Shrink(wire.MaxStreamBytes)
	}
	h.wake()
}

// daemonHere reports whether a daemon session is on the stream.
func (h *hub) daemonHere() bool {
	for _, p := range h.peers {
		if p.daemon && p.sockets[wire.NamespaceLog] != nil {
			return true
		}
	}
	return false
}

// wake lets each peer look for something to send; h.mu is held.
func (h *hub) wake() {
	for _, p := range h.peers {
		p.poke()
	}
}

// close lets every append return; nothing is kept any more.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.room.Broadcast()
}

// deliver queues an outcome for its owner. It goes out after all that was appended before.
func (h *hub) deliver(owner calltable.Owner, o calltable.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if owner != calltable.Neighbour {
		if p := h.peers[owner]; p != nil {
			p.queue(wire.NamespaceRPC, o.Event, o.Payload)
		}
		return
	}
	h.broadcast(wire.NamespaceRPC, o.Event, o.Payload)
}

// broadcast queues an event for each neighbour on namespace; h.mu is held.
func (h *hub) broadcast(namespace, event string, payload []byte) {
	for _, p := range h.peers {
		if !p.daemon && p.sockets[namespace] != nil {
			p.queue(namespace, event, payload)
		}
	}
}

// emit broadcasts an event of a plugin namespace to neighbours.
func (h *hub) emit(namespace, event string, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broadcast(namespace, event, payload)
}

// resume starts the record stream for p, which takes it over from every other daemon session.
func (h *hub) resume(p *peer, sid string, since uint64) (superseded []*peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.seq.Resume(h.buffer.Cursor(sid, since))
	if sid == h.buffer.Sid() {
		h.ackLocked(since)
	}
	p.poke()
	for _, other := range h.peers {
		if other != p && other.daemon && other.epoch <= p.epoch && !mutant.Is(mutant.SkippedTombstone) {
			other.replaced = true
			superseded = append(superseded, other)
		}
	}
	return superseded
}

// ack frees records of the daemon's stream.
func (h *hub) ack(p *peer, sid string, seq uint64) {
	if sid != "" && sid != h.buffer.Sid() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p.seq.Ack(seq)
	h.ackLocked(seq)
	p.poke()
}

func (h *hub) ackLocked(seq uint64) {
	h.buffer.Ack(seq)
	h.room.Broadcast()
}

// direct queues an outcome for the peer with this id, daemon or neighbour.
func (h *hub) direct(id calltable.Owner, o calltable.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[id]; p != nil {
		p.queue(wire.NamespaceRPC, o.Event, o.Payload)
	}
}
