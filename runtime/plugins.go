package runtime

import (
	"strings"
	"sync"

	"github.com/agentixd/agentixd/runtime/wire"
)

// maxNamespaces bounds the plugin namespaces that a worker may open.
const maxNamespaces = 1024

// plugins are the namespaces that the worker opened: events on them go to it.
type plugins struct {
	mu     sync.Mutex
	opened map[string]bool
}

// open registers a namespace, for the runtime's life. Those of the protocol are refused.
func (p *plugins) open(namespace string) {
	switch {
	case !strings.HasPrefix(namespace, "/"), namespace == "/", namespace == wire.NamespaceRPC,
		namespace == wire.NamespaceLog, namespace == wire.NamespaceTrace:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.opened) < maxNamespaces {
		p.opened[namespace] = true
	}
}

func (p *plugins) isOpen(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened[namespace]
}

// inbound forwards an event of a host to the workers, of which those that opened the
// namespace take it; false if no worker opened the namespace.
func (p *plugins) inbound(r *Runtime, namespace, event string, payload []byte) bool {
	if !p.isOpen(namespace) || wire.Check(payload, wire.MaxDepth) != nil || len(payload) > wire.MaxEventBytes {
		return false
	}
	return r.sendInbound("", namespace, event, payload) == nil
}

// sendInbound sends an event to a worker, or with "" to all of them.
func (r *Runtime) sendInbound(worker, namespace, event string, payload []byte) error {
	body, err := wire.Marshal(map[string]any{
		"type": wire.FrameSIOInbound, "namespace": namespace, "event": event, "data": rawMessage(payload),
	})
	if err != nil {
		return err
	}
	return r.workers.Tell(worker, body)
}
