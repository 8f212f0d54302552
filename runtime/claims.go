package runtime

import (
	"time"

	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/wire"
)

// How long outcomes and early cancels are kept.
const (
	maxRetainedAge = 24 * time.Hour   // an outcome that nobody acks
	ackedAge       = time.Minute      // one that was acked by another host than the one that asked for it
	earlyAge       = 10 * time.Second // a cancel whose call did not come yet
	agingInterval  = time.Hour
)

func cancelled() *wire.Error {
	return &wire.Error{Type: wire.ErrCancelled, Message: "remote call cancelled", Cancelled: true}
}

// cancelEarly notes a cancel that overtook its call: hosts send the one over Socket.IO and the
// other over HTTP. c.mu is held.
func (c *calls) cancelEarly(id string) {
	if len(c.early) >= wire.MaxRetained {
		return
	}
	c.early[id] = struct{}{}
	c.clock.AfterFunc(earlyAge, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.early, id)
	})
}

// runsForNeighbour reports whether a call runs that a neighbour's host asked for.
func (c *calls) runsForNeighbour(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, owner, _ := c.table.Lookup(id)
	return state == calltable.StateRunning && owner == calltable.Neighbour
}

// drop forgets an outcome.
func (c *calls) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.Drop(id)
}

// age lets outcomes that nobody acks go in the end. c.mu is held.
func (c *calls) age() {
	if c.aging {
		return
	}
	c.aging = true
	c.clock.AfterFunc(agingInterval, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.table.Expire()
		c.aging = false
		if _, retained := c.table.Len(); retained > 0 {
			c.age()
		}
	})
}

// noNeighbour is in the place of a session when there is none.
const noNeighbour calltable.Owner = -2

// soleNeighbour is the only neighbour's session on /rpc: a call that comes over HTTP must be
// its. With several it is Nobody, for it cannot be told, without any noNeighbour.
func (h *hub) soleNeighbour() calltable.Owner {
	h.mu.Lock()
	defer h.mu.Unlock()
	sole := noNeighbour
	for id, p := range h.peers {
		if p.daemon || p.sockets[wire.NamespaceRPC] == nil {
			continue
		}
		if sole != noNeighbour {
			return calltable.Nobody
		}
		sole = id
	}
	return sole
}
