package link

import (
	"fmt"

	"github.com/agentixd/agentixd/runtime/wire"
)

// handshake joins both namespaces of one of our runtimes and waits until it is ready on each.
func (l *Link) handshake(s *session, p Peer) (Peer, error) {
	h := &p.Health
	joined := map[string]bool{}
	ready := map[string]bool{}
	auth := wire.Auth{
		Token: l.opts.Token, Role: wire.RoleDaemon, Epoch: l.opts.Epoch,
		Capabilities: []string{wire.CapFence, wire.CapEncoding, wire.CapDeadline, wire.CapOwnedResults, wire.CapSidAck, wire.CapBaggage, wire.CapIsolation, wire.CapRetire},
	}
	for len(ready) < 2 {
		i, ok := s.in.get()
		if !ok {
			return p, s.err
		}
		switch i.kind {
		case packetOpen:
			for _, namespace := range []string{wire.NamespaceRPC, wire.NamespaceLog} {
				connect, err := connectPacket(namespace, auth)
				if err != nil {
					return p, err
				}
				s.out.pushControl(connect)
			}
		case packetConnect:
			if joined[i.namespace] || (i.namespace != wire.NamespaceRPC && i.namespace != wire.NamespaceLog) {
				return p, violation("CONNECT of namespace %s that was not asked for", quote(i.namespace))
			}
			joined[i.namespace] = true
		case packetConnectError:
			return p, fmt.Errorf("%w namespace %s: %s", errRefused, quote(i.namespace), connectErrorText(i.data))
		case packetDisconnect:
			return p, fmt.Errorf("the runtime disconnected namespace %s", quote(i.namespace))
		default:
			if !joined[i.namespace] {
				return p, violation("an event on namespace %s before its CONNECT", quote(i.namespace))
			}
			if i.event == wire.EventRecords {
				return p, violation("records before they were asked for")
			}
			if i.event != wire.EventReady {
				continue // an outcome of a call of an older session
			}
			r, err := decodeReady(i.data)
			if err != nil {
				return p, err
			}
			ready[i.namespace] = true
			if i.namespace == wire.NamespaceRPC {
				h.Ready, h.Error, h.Python = r.WorkerOK, r.Error, r.Python
				p.StillRunning = r.StillRunning
				if len(r.Capabilities) > 0 {
					h.Capabilities = r.Capabilities
				}
			} else {
				p.Life = r.Sid
			}
		}
	}
	return p, nil
}
