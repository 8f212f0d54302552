package runtime

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/wire"
	"github.com/agentixd/agentixd/runtime/workerproc"
)

// expire ends a call whose timeout ran out.
func (c *calls) expire(id string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop(id, &wire.Error{Type: wire.ErrDeadlineExceeded, Message: fmt.Sprintf("the call did not end within %s", d)})
}

// cancel ends a call on behalf of p.
func (c *calls) cancel(p *peer, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, owner, _ := c.table.Lookup(id)
	if state == calltable.StateUnknown && !p.daemon {
		c.cancelEarly(id)
	}
	if p.daemon == (owner == calltable.Neighbour) && state != calltable.StateUnknown {
		return // not of this side
	}
	switch {
	case state == calltable.StateRunning:
		c.stop(id, cancelled())
	case state == calltable.StateRetained && !p.daemon:
		c.ackLocked(p, id)
	}
	if _, running := c.running[id]; p.daemon && !running && state != calltable.StateRunning {
		c.tellStopped(id)
	}
}

// stop gives a running call the outcome e at once and cancels it on its worker, whose own
// outcome then comes too late and is dropped. c.mu is held.
func (c *calls) stop(id string, e *wire.Error) {
	if state, _, _ := c.table.Lookup(id); state != calltable.StateRunning {
		return
	}
	found := workerproc.NotThere
	if !c.workers.Unsend(id) {
		found = c.workers.Cancel(id)
	}
	switch found {
	case workerproc.Settled: // its own outcome comes just now
	case workerproc.Stopping:
		c.running[id] = struct{}{}
		c.finishLocked(id, errorOutcome(id, e))
	case workerproc.NotThere:
		c.finishLocked(id, errorOutcome(id, e))
		c.tellStopped(id)
	}
}

// ended takes the error with which a worker ended a call; running says that code of a call
// that the worker itself stopped goes on.
func (c *calls) ended(id string, e *wire.Error, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if running {
		c.running[id] = struct{}{}
	}
	c.finishLocked(id, errorOutcome(id, e))
	if stopped := e.Type == wire.ErrDeadlineExceeded || e.Type == wire.ErrCancelled; stopped && !running {
		c.tellStopped(id)
	}
}

// stopped notes that the code of stopped calls does not run any more.
func (c *calls) stopped(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.running, id)
		c.tellStopped(id)
	}
}

// tellStopped sends call:stopped to the daemons that know it, behind the call's outcome; c.mu is
// held.
func (c *calls) tellStopped(id string) {
	if !wire.ValidCallID(id) {
		return // of a neighbour's host
	}
	payload, err := wire.Marshal(wire.CallRef{CallID: id})
	if err != nil {
		return // a string: cannot be
	}
	c.hub.tellDaemons(wire.EventCallStopped, payload)
}

// stillRunning lists the stopped calls whose code may still run.
func (c *calls) stillRunning() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.running))
}

// tellDaemons sends an event on /rpc to each daemon that knows about stopped calls.
func (h *hub) tellDaemons(event string, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.peers {
		if p.knows[wire.CapRetire] && p.sockets[wire.NamespaceRPC] != nil {
			p.queue(wire.NamespaceRPC, event, payload)
		}
	}
}
