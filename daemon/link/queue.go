package link

import (
	"context"
	"sync"
)

// Bounds of the queues of one connection.
const (
	maxInboxBytes   = 8388608  // 8 MiB: received and not handled yet; then the socket is not read any more
	maxInboxItems   = 16384    // the same in events
	maxOutboxBytes  = 67108864 // 64 MiB: calls that wait to be written; then Call waits
	maxControlBytes = 8388608  // 8 MiB: cancels and acks that wait; further ones are lost
)

// inbound is one packet on its way from the socket to the handler goroutine.
type inbound struct {
	kind      packetKind
	namespace string
	event     string
	data      []byte
	cut       bool // data is only the beginning of an attachment over its limit
}

// size is what an item counts against maxInboxBytes.
func (i inbound) size() int { return len(i.data) + 64 }

// inbox is the bounded queue between the socket's reader and the handler goroutine.
type inbox struct {
	mu     sync.Mutex
	cond   sync.Cond
	items  []inbound
	bytes  int
	closed bool
}

func newInbox() *inbox {
	q := &inbox{}
	q.cond.L = &q.mu
	return q
}

// tryPut appends i unless the queue is full; an empty queue takes an item of any size.
func (q *inbox) tryPut(i inbound) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full(i) {
		return false
	}
	q.append(i)
	return true
}

// put waits for room; it gives up when the queue is closed.
func (q *inbox) put(i inbound) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.full(i) && !q.closed {
		q.cond.Wait()
	}
	q.append(i)
}

func (q *inbox) full(i inbound) bool {
	return len(q.items) > 0 && (q.bytes+i.size() > maxInboxBytes || len(q.items) >= maxInboxItems)
}

func (q *inbox) append(i inbound) {
	if q.closed {
		return
	}
	q.items = append(q.items, i)
	q.bytes += i.size()
	q.cond.Broadcast()
}

// get waits for the next item; false means that the queue is closed and empty.
func (q *inbox) get() (inbound, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.cond.Wait()
	}
	if len(q.items) == 0 {
		return inbound{}, false
	}
	i := q.items[0]
	q.items[0] = inbound{}
	q.items = q.items[1:]
	q.bytes -= i.size()
	q.cond.Broadcast()
	return i, true
}

// close ends put at once, and get after what is queued.
func (q *inbox) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

// outbound is one event to write: a text frame and, unless nil, its binary frame.
type outbound struct {
	text   []byte
	binary []byte
	callID string // of the call that it is, if it is one
}

func (o outbound) size() int { return len(o.text) + len(o.binary) }

// outbox is the queue to the one writer goroutine of a connection.
type outbox struct {
	mu      sync.Mutex
	cond    sync.Cond
	items   []outbound
	bytes   int // of items and of what the writer took and has not written yet
	control int // bytes of queued control events
	pong    bool
	acks    map[string]Position // what may be acked, by stream
	senders map[string]string   // of a neighbour's streams, by stream: only they are acked
	closed  bool
	left    []string // calls that were queued when it was closed
}

func newOutbox() *outbox {
	q := &outbox{acks: map[string]Position{}}
	q.cond.L = &q.mu
	return q
}

// push queues o; it waits while the queue is full. It reports false if o was not queued
// because the connection or ctx ended.
func (q *outbox) push(ctx context.Context, o outbound) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes > 0 && q.bytes+o.size() > maxOutboxBytes {
		stop := context.AfterFunc(ctx, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.cond.Broadcast()
		})
		defer stop()
		for q.bytes > 0 && q.bytes+o.size() > maxOutboxBytes && !q.closed && ctx.Err() == nil {
			q.cond.Wait()
		}
	}
	if q.closed || ctx.Err() != nil {
		return false
	}
	q.append(o)
	return true
}

// tryPush queues o unless the queue is full or closed.
func (q *outbox) tryPush(o outbound) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || (q.bytes > 0 && q.bytes+o.size() > maxOutboxBytes) {
		return false
	}
	q.append(o)
	return true
}

// pushControl queues o without waiting, or loses it if too many wait already.
func (q *outbox) pushControl(o outbound) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.control+o.size() > maxControlBytes {
		return
	}
	q.control += o.size()
	q.append(o)
}

func (q *outbox) append(o outbound) {
	q.items = append(q.items, o)
	q.bytes += o.size()
	q.cond.Broadcast()
}

// pushPong queues one pong before everything else.
func (q *outbox) pushPong() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pong = true
	q.cond.Broadcast()
}

// setAck notes what may be acked; a later ack of the same sender replaces an earlier one.
func (q *outbox) setAck(stream string, at Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if known, ok := q.acks[stream]; ok && known.Sid == at.Sid && at.Seq <= known.Seq {
		return
	}
	if q.senders != nil && q.senders[stream] != at.Sid {
		return // without a name of the sender in it, it would free records of the one that is there now
	}
	q.acks[stream] = at
	q.cond.Broadcast()
}

// setSender notes who sends a neighbour's stream now.
func (q *outbox) setSender(stream, sid string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.senders == nil {
		q.senders = map[string]string{}
	}
	q.senders[stream] = sid
	delete(q.acks, stream)
}

// work is what the writer takes at a time.
type work struct {
	pong  bool
	items []outbound
	acks  map[string]Position
}

// take waits for work; false means that the connection ended.
func (q *outbox) take() (work, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.pong && len(q.acks) == 0 && !q.closed {
		q.cond.Wait()
	}
	if q.closed {
		return work{}, false
	}
	w := work{pong: q.pong, items: q.items}
	if len(q.acks) > 0 {
		w.acks, q.acks = q.acks, map[string]Position{}
	}
	q.items, q.pong, q.control = nil, false, 0
	return w, true
}

// takePong reports whether a pong came due while the writer is at work.
func (q *outbox) takePong() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.pong
	q.pong = false
	return due
}

// written frees the room of n bytes.
func (q *outbox) written(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= n
	q.cond.Broadcast()
}

func (q *outbox) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.leave(q.items)
		q.items = nil
	}
	q.cond.Broadcast()
}

// putBack takes what the writer did not begin to write.
func (q *outbox) putBack(items []outbound) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(items)
}

func (q *outbox) leave(items []outbound) {
	for _, o := range items {
		if o.callID != "" {
			q.left = append(q.left, o.callID)
		}
	}
}

// unsent are the calls that were queued and surely did not leave, once the writer has ended.
func (q *outbox) unsent() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left
}
