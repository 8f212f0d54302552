package runtime

import "testing"

func TestPacketHead(t *testing.T) {
	for text, want := range map[string]struct {
		kind        byte
		attachments int
		namespace   string
	}{
		"":                      {0, 0, "/"},
		"0":                     {'0', 0, "/"},
		"0{}":                   {'0', 0, "/"},
		"0/rpc,{}":              {'0', 0, "/rpc"},
		"0/rpc":                 {'0', 0, "/rpc"},
		"0/rpc?a=b,{}":          {'0', 0, "/rpc"},
		"2[1]":                  {'2', 0, "/"},
		`2/a/b,7["x"]`:          {'2', 0, "/a/b"},
		`51-/rpc,["call",{}]`:   {'5', 1, "/rpc"},
		`512-["call"]`:          {'5', 12, "/"},
		`5999999999-/rpc,["x"]`: {'5', 999, "/"}, // refused by the decoder, if it gets that far
		"5x":                    {'5', 0, "/"},
		"x":                     {'x', 0, "/"},
	} {
		kind, attachments, namespace := packetHead(text)
		if kind != want.kind || attachments != want.attachments || namespace != want.namespace {
			t.Errorf("%q: got %c %d %s", text, kind, attachments, namespace)
		}
	}
}
