package runtime

import (
	"testing"

	"github.com/agentixd/agentixd/runtime/wire/wiretest"
)

func TestS21_GoldenPackets(t *testing.T) {
	for _, g := range wiretest.Golden(t, "packet") {
		text := string(g.Bytes(t)[1:]) // what Engine.IO hands on
		in := []string{text}
		if g.Type == 5 {
			in = append(in, "bpayload")
		}
		got, err := decoded(t, in...)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d packets, %v", g.Name, len(got), err)
			continue
		}
		event := ""
		if args, ok := got[0].Data.([]any); ok {
			event, _ = args[0].(string)
		}
		if int(got[0].Type-'0') != g.Type && int(got[0].Type) != g.Type || got[0].Nsp != g.Namespace || event != g.Event {
			t.Errorf("%s: got type %d, %s, %q", g.Name, got[0].Type, got[0].Nsp, event)
		}
	}
}
