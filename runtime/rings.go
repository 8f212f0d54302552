package runtime

import (
	"fmt"
	"maps"
	"time"

	"github.com/agentixd/agentixd/runtime/stream"
	"github.com/agentixd/agentixd/runtime/wire"
)

// stallLimit is how long a full ring or window waits for a host that acks nothing.
const stallLimit = 10 * time.Second

// absentHost is a host that went away and may come back. Other hosts' acks do not free what
// it has not seen.
type absentHost struct {
	acked uint64
	until time.Time
}

// How long and how many absent hosts are waited for.
const (
	absentAge = time.Minute
	maxAbsent = 64
)

// publish adds an event to a neighbours' ring. While a host is there that acks and has not
// come as far, a full ring waits, which slows the sandbox; otherwise the oldest event goes.
func (h *hub) publish(namespace, event string, data []byte) {
	if !h.neighbours {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.appendRing(namespace, event, data)
	h.wake()
}

// appendRing is publish with h.mu held.
func (h *hub) appendRing(namespace, event string, data []byte) {
	ring := h.rings[namespace]
	for !h.closed && h.needed(namespace, data) {
		h.wake()
		h.waitForAcks(namespace, data)
	}
	if !h.closed {
		ring.Append(event, data)
	}
}

// needed reports whether a host needs what the next event would push out; h.mu is held.
func (h *hub) needed(namespace string, data []byte) bool {
	for _, p := range h.peers {
		if r := p.readers[namespace]; r != nil && r.Needs(h.rings[namespace], data) {
			return true
		}
	}
	return false
}

// waitForAcks waits until something changed. Hosts that ack nothing for a while are given up.
func (h *hub) waitForAcks(namespace string, data []byte) {
	before := map[*stream.Reader]uint64{}
	for _, p := range h.peers {
		if r := p.readers[namespace]; r != nil && r.Needs(h.rings[namespace], data) {
			before[r] = r.Acked()
		}
	}
	timer := time.AfterFunc(stallLimit, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for r, acked := range before {
			if r.Acked() == acked {
				r.GiveUp()
			}
		}
		h.room.Broadcast()
	})
	defer timer.Stop()
	h.room.Wait()
}

// watch sees to it that a host that acks nothing gets what comes all the same; h.mu is held.
func (h *hub) watch(p *peer, namespace string, r *stream.Reader) {
	if p.watched[namespace] {
		return
	}
	p.watched[namespace] = true
	acked := r.Acked()
	time.AfterFunc(stallLimit, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		p.watched[namespace] = false
		if r.Blocked(h.rings[namespace]) && r.Acked() == acked {
			r.GiveUp()
		}
		p.poke() // which watches again, if it is still blocked
	})
}

// resumeRing serves a neighbour's _resume on namespace.
func (h *hub) resumeRing(p *peer, namespace string, since uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reader := p.readers[namespace]; reader != nil {
		reader.Resume(h.rings[namespace], since)
		h.returned(namespace, reader.Cursor())
		p.poke()
	}
}

// live starts a neighbour that sends no _resume.
func (h *hub) live(p *peer, namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reader := p.readers[namespace]; reader != nil {
		reader.Live()
		p.poke()
	}
}

// ackRing notes a neighbour's _ack and frees what each host has that is there, or was.
func (h *hub) ackRing(p *peer, namespace string, seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ring, reader := h.rings[namespace], p.readers[namespace]
	if reader == nil {
		return
	}
	reader.Ack(ring, seq)
	all := ring.Last()
	for _, other := range h.peers {
		if r := other.readers[namespace]; r != nil {
			all = min(all, r.Acked())
		}
	}
	now := time.Now()
	for _, a := range h.absent[namespace] {
		if now.Before(a.until) {
			all = min(all, a.acked)
		}
	}
	ring.Free(all)
	p.poke()
	h.room.Broadcast()
}

// wentAway notes that a host that reads the stream of namespace left; h.mu is held.
func (h *hub) wentAway(namespace string, r *stream.Reader) {
	if !r.Resumed() {
		return
	}
	now, kept := time.Now(), h.absent[namespace][:0]
	for _, a := range h.absent[namespace] {
		if now.Before(a.until) {
			kept = append(kept, a)
		}
	}
	if len(kept) == maxAbsent {
		kept = kept[1:]
	}
	h.absent[namespace] = append(kept, absentHost{acked: r.Acked(), until: now.Add(absentAge)})
}

// returned takes the absent host that goes on after since to be back; h.mu is held.
func (h *hub) returned(namespace string, since uint64) {
	hosts := h.absent[namespace]
	best := -1
	for i, a := range hosts { // what it acked last may have been lost on its way
		if a.acked <= since && (best < 0 || a.acked > hosts[best].acked) {
			best = i
		}
	}
	if best >= 0 {
		h.absent[namespace] = append(hosts[:best], hosts[best+1:]...)
	}
}

// gapRecord is the log record that tells a neighbour's host of events that were lost; h.mu
// is held.
func (h *hub) gapRecord(namespace string, dropped uint64) []byte {
	return logRecord(map[string]any{
		"name": "agentix.runtime", "level": "WARNING", "levelno": 30, "module": "stream",
		"message":         fmt.Sprintf("%d events of %s were lost: more came than are kept while no host acked them", dropped, namespace),
		"agentix_context": workerContext(h.worker),
		"extras":          map[string]any{"agentix_source": namespace, "agentix_dropped": dropped},
	})
}

func workerContext(worker string) string { return hostContext + "-worker-" + worker }

// logRecord completes the map of a log record that no logger made.
func logRecord(fields map[string]any) []byte {
	record := map[string]any{
		"created": now(), "pathname": "", "funcName": "", "lineno": 0, "exc_text": nil, "stack_info": nil,
	}
	maps.Copy(record, fields)
	data, err := wire.Marshal(record)
	if err != nil { // texts and numbers: cannot be
		return nil
	}
	return data
}
