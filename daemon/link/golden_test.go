package link

import (
	"testing"

	"github.com/agentixd/agentixd/runtime/wire/wiretest"
)

func TestS21_GoldenPackets(t *testing.T) {
	kinds := map[int]packetKind{0: packetConnect, 1: packetDisconnect, 4: packetConnectError, 5: packetEvent}
	for _, g := range wiretest.Golden(t, "packet") {
		got, err := parseText(g.Bytes(t))
		if err != nil || got.kind != kinds[g.Type] || got.namespace != g.Namespace || got.event != g.Event {
			t.Errorf("%s: got %+v, %v", g.Name, got, err)
		}
		if g.Type == 5 && string(eventHeader(g.Namespace, g.Event)) != g.Name {
			t.Errorf("%s: written as %s", g.Name, eventHeader(g.Namespace, g.Event))
		}
	}
}
