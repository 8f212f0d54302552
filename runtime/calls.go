package runtime

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/internal/mutant"
	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/wire"
	"github.com/agentixd/agentixd/runtime/workerproc"
)

// unknownGrace is how long a resume of an unknown id waits for its call.
const unknownGrace = 2 * time.Second

// callWorkers is what calls need of workerproc.Pool.
type callWorkers interface {
	Send(callID string, alone bool, body ...[]byte) error
	Unsend(callID string) bool
	Cancel(callID string) workerproc.Cancelled
}

// calls runs the call table: it starts calls on workers and delivers each outcome once.
type calls struct {
	hub     *hub
	workers callWorkers
	foreign bool // the worker is a neighbour's: it knows only the public protocol
	clock   clock.Clock

	mu      sync.Mutex // taken before hub.mu
	table   *calltable.Table
	stops   map[string]func() bool                  // deadline timers
	waiters map[string][]chan calltable.Outcome     // POST /call
	asked   map[string]map[calltable.Owner]struct{} // unknown ids that neighbours resumed
	early   map[string]struct{}                     // unknown ids that neighbours cancelled
	aging   bool                                    // a timer will look for outcomes that are too old
	running map[string]struct{}                     // stopped calls whose code may still run
}

func newCalls(h *hub, foreign bool, c clock.Clock) *calls {
	return &calls{
		hub: h, foreign: foreign, clock: c,
		table:   calltable.NewTable(calltable.Limits{Entries: wire.MaxRetained, Bytes: wire.MaxRetainedBytes, Age: maxRetainedAge, Now: c.Now}),
		stops:   map[string]func() bool{},
		waiters: map[string][]chan calltable.Outcome{},
		asked:   map[string]map[calltable.Owner]struct{}{},
		early:   map[string]struct{}{},
		running: map[string]struct{}{},
	}
}

// start runs c for owner; session is the neighbour's session that asked, see soleNeighbour.
// wait, if not nil, gets the outcome too. The verdict says whether the call was new; an
// outcome that is already there comes back with it.
func (c *calls) start(call *wire.Call, owner, session calltable.Owner, wait chan calltable.Outcome) (calltable.Verdict, calltable.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	verdict := c.table.Start(call.CallID, owner)
	if session > 0 || session == calltable.Nobody && verdict == calltable.New {
		c.table.Claim(call.CallID, session)
	}
	_, _, outcome := c.table.Lookup(call.CallID)
	if verdict != calltable.New {
		return verdict, outcome
	}
	delete(c.asked, call.CallID)
	if wait != nil {
		c.waiters[call.CallID] = append(c.waiters[call.CallID], wait)
	}
	if _, ok := c.early[call.CallID]; ok {
		c.finishLocked(call.CallID, errorOutcome(call.CallID, cancelled()))
		return verdict, outcome
	}
	if err := c.submit(call); err != nil {
		c.finishLocked(call.CallID, errorOutcome(call.CallID, err))
		return verdict, outcome
	}
	if call.TimeoutMS > 0 {
		d := time.Duration(min(call.TimeoutMS, maxTimeoutMS)) * time.Millisecond
		c.stops[call.CallID] = c.clock.AfterFunc(d, func() { c.expire(call.CallID, d) })
	}
	return verdict, outcome
}

// maxTimeoutMS keeps a timeout within time.Duration: a hundred years.
const maxTimeoutMS = 100 * 365 * 24 * 3600 * 1000

// callHead is the call as the worker gets it, but for its arguments.
type callHead struct {
	Type           string            `msgpack:"type"`
	CallID         string            `msgpack:"call_id"`
	Callable       string            `msgpack:"callable"`
	Context        []byte            `msgpack:"context"`
	Encoding       string            `msgpack:"encoding,omitempty"`
	ResultEncoding string            `msgpack:"result_encoding,omitempty"`
	TimeoutMS      int64             `msgpack:"timeout_ms,omitempty"`
	Traceparent    string            `msgpack:"traceparent,omitempty"`
	Baggage        map[string]string `msgpack:"baggage,omitempty"`
}

// callFrame makes the frame of a call in parts, so that its arguments are not copied.
func callFrame(h *callHead, arguments []byte) ([][]byte, error) {
	head, err := wire.Marshal(h)
	if err != nil {
		return nil, err
	}
	head[0]++ // one more field in a map of at most 9
	head = append(append(head, "\xa9arguments"...), wire.BinHead(len(arguments))...)
	return [][]byte{head, arguments}, nil
}

// submit hands a call to a worker.
func (c *calls) submit(call *wire.Call) *wire.Error {
	head := callHead{Type: wire.FrameCall, CallID: call.CallID, Callable: call.Callable, Context: call.Context}
	if c.foreign {
		if e := call.Encoding; e != "" && e != wire.EncodingPickle {
			return &wire.Error{Type: wire.ErrBadRequest, Message: fmt.Sprintf("arguments in %s: this worker knows only pickle", e)}
		}
	} else {
		head.Encoding, head.ResultEncoding, head.TimeoutMS = call.Encoding, call.ResultEncoding, call.TimeoutMS
		head.Traceparent, head.Baggage = call.Traceparent, call.Baggage
	}
	body, err := callFrame(&head, call.Arguments)
	if err == nil {
		err = c.workers.Send(call.CallID, call.Isolation == wire.IsolationProcess, body...)
	}
	if mutant.Is(mutant.DoubleSend) {
		c.clock.AfterFunc(30*time.Millisecond, func() { _ = c.workers.Send(call.CallID, false, body...) })
	}
	switch {
	case errors.Is(err, wire.ErrFrameLimit):
		return &wire.Error{
			Type: wire.ErrFrameTooLarge, Limit: wire.MaxFrameBytes, Size: int64(len(body[0]) + len(body[1])),
			Message: fmt.Sprintf("the call takes %d bytes, a frame at most %d", len(body[0])+len(body[1]), wire.MaxFrameBytes),
		}
	case err != nil:
		return &wire.Error{Type: "RuntimeError", Message: err.Error()}
	}
	return nil
}

// finish ends a call; a call that has an outcome keeps its first one.
func (c *calls) finish(id string, o calltable.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishLocked(id, o)
}

func (c *calls) finishLocked(id string, o calltable.Outcome) {
	owner, ok := c.table.Finish(id, o)
	if !ok {
		return
	}
	if stop := c.stops[id]; stop != nil {
		stop()
		delete(c.stops, id)
	}
	for _, w := range c.waiters[id] {
		w <- o // capacity 1, one outcome
	}
	delete(c.waiters, id)
	c.hub.deliver(owner, o)
	c.age()
}

// unwait takes a waiter of POST /call back.
func (c *calls) unwait(id string, wait chan calltable.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, w := range c.waiters[id] {
		if w == wait {
			c.waiters[id] = append(c.waiters[id][:i], c.waiters[id][i+1:]...)
		}
	}
	if len(c.waiters[id]) == 0 {
		delete(c.waiters, id)
	}
}

// ack forgets an outcome that p confirmed.
func (c *calls) ack(p *peer, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ackLocked(p, id)
}

func (c *calls) ackLocked(p *peer, id string) {
	_, _, outcome := c.table.Lookup(id)
	switch {
	case !p.daemon && !c.table.Claimed(id, p.id): // it may not have been for p
		if c.table.Doom(id) {
			c.clock.AfterFunc(ackedAge, func() { c.drop(id) })
		}
	case c.table.Ack(id, p.owner()):
		p.trim.saw(len(outcome.Payload))
	}
}

// release lets the calls of a peer that left wait for a resume.
func (c *calls) release(p *peer) {
	if p.daemon {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.table.Release(p.id)
	}
}

// resume answers for ids: an outcome that is there is sent again, one that is to come will
// go to p, and an unknown id is fenced, now or after a while, unless its call comes again.
func (c *calls) resume(p *peer, r wire.Resume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range r.CallIDs {
		state, owner, outcome := c.table.Lookup(id)
		if state == calltable.StateRunning || state == calltable.StateRetained {
			if p.daemon == (owner == calltable.Neighbour) {
				c.sendTo(p, unavailable(id)) // of the other side
				continue
			}
			c.table.Own(id, p.owner())
			if !p.daemon {
				c.table.Claim(id, p.id)
			}
		}
		switch {
		case state == calltable.StateRetained:
			c.sendTo(p, outcome)
		case state == calltable.StateRunning:
		case state == calltable.StateUnknown && !r.Fence:
			c.askLater(p, id)
		case state == calltable.StateUnknown && r.Again:
			c.sendTo(p, errorOutcome(id, &wire.Error{Type: wire.ErrNotReceived, Message: "the call did not come to the runtime"}))
		default:
			if !mutant.Is(mutant.SkippedTombstone) {
				c.table.Fence(id)
			}
			c.sendTo(p, unavailable(id))
		}
	}
}

// askLater answers for an unknown id once its call had time to come.
func (c *calls) askLater(p *peer, id string) {
	if c.asked[id] == nil {
		if len(c.asked) >= wire.MaxCallIDs {
			c.sendTo(p, unavailable(id))
			return
		}
		c.asked[id] = map[calltable.Owner]struct{}{}
		c.clock.AfterFunc(unknownGrace, func() { c.answerUnknown(id) })
	}
	c.asked[id][p.id] = struct{}{}
}

func (c *calls) answerUnknown(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked[id]
	if asked == nil {
		return // its call came
	}
	delete(c.asked, id)
	c.table.Fence(id)
	for owner := range asked {
		c.hub.direct(owner, unavailable(id))
	}
}

// sendTo queues an outcome for one peer.
func (c *calls) sendTo(p *peer, o calltable.Outcome) { c.hub.direct(p.id, o) }

// workerDied ends the calls of the worker that died.
func (c *calls) workerDied(d workerproc.Death) {
	e := &wire.Error{Type: wire.ErrWorkerDied, Message: d.Message, Returncode: d.Returncode, Cause: d.Cause, Limit: d.Limit}
	for _, id := range d.Calls {
		c.finish(id, errorOutcome(id, e))
	}
}

// bootFailed ends each call that waited for a worker.
func (c *calls) bootFailed(b workerproc.BootError) {
	for _, id := range b.Calls {
		c.finish(id, errorOutcome(id, &wire.Error{Type: b.Type, Message: "worker does not start: " + b.Message}))
	}
}

func unavailable(id string) calltable.Outcome {
	return errorOutcome(id, &wire.Error{Type: wire.ErrResultUnavailable, Message: "the runtime has no result for this call"})
}

func errorOutcome(id string, e *wire.Error) calltable.Outcome {
	var body any = wire.CallError{CallID: id, Error: e}
	if e.Type == wire.ErrBadRequest { // the protocol has two keys here
		body = map[string]any{"call_id": id, "error": map[string]string{"type": e.Type, "message": e.Message}}
	}
	payload, err := wire.Marshal(body)
	if err != nil { // strings and numbers only: cannot be
		payload = nil
	}
	return calltable.Outcome{Event: wire.EventCallError, Payload: payload}
}

// adopt makes p the owner of a call of its side that it sent again.
func (c *calls) adopt(p *peer, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, owner, _ := c.table.Lookup(id); p.daemon != (owner == calltable.Neighbour) {
		c.table.Own(id, p.owner())
	}
}
