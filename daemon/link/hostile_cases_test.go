package link

import (
	"bytes"
	"io"
	"math"
	"strings"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

const (
	resultHeader  = `451-/rpc,["call:result",{"_placeholder":true,"num":0}]`
	errorHeader   = `451-/rpc,["call:error",{"_placeholder":true,"num":0}]`
	recordsHeader = `451-/log,["records",{"_placeholder":true,"num":0}]`
)

// joined is a script that first behaves.
func joined(script func(p *peer)) func(p *peer) {
	return func(p *peer) { p.join(); script(p) }
}

// opened is a script that behaves up to the open packet.
func opened(script func(p *peer)) func(p *peer) {
	return func(p *peer) { p.upgrade(); p.text(openPacket); script(p) }
}

func textAfterJoin(s string) func(p *peer) { return joined(func(p *peer) { p.text(s) }) }

func attachment(header string, b []byte) func(p *peer) {
	return joined(func(p *peer) { p.text(header); p.binary(b) })
}

func marshal(v any) []byte {
	b, err := wire.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// nest is a msgpack array in an array, n deep.
func nest(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 0xc0) }

// field is a one-entry msgpack map.
func field(key string, value []byte) []byte {
	return append(append([]byte{0x81, 0xa0 | byte(len(key))}, key...), value...)
}

func flood(n int, frame []byte) func(p *peer) {
	return joined(func(p *peer) {
		block := bytes.Repeat(frame, 1000)
		for range n / 1000 {
			p.write(block)
		}
	})
}

var longSid = strings.Repeat("s", maxSidBytes+1)

// hostile is what a runtime may do on its first connection; each must cost it that
// connection, with this error, and nothing else.
var hostile = []struct {
	name   string
	script func(p *peer)
	want   string
}{
	// HTTP.
	{"redirect", func(p *peer) {
		p.request()
		p.write([]byte("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"))
	}, "redirect"},
	{"status 200", func(p *peer) { p.request(); p.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) }, "expected handshake response status code"},
	{"wrong accept key", func(p *peer) {
		p.request()
		p.write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"))
	}, "Sec-WebSocket-Accept"},
	{"endless headers", func(p *peer) {
		p.request()
		p.write([]byte("HTTP/1.1 101 Switching Protocols\r\n"))
		for {
			p.write([]byte("X-A: " + strings.Repeat("a", 4096) + "\r\n"))
		}
	}, "open websocket"},
	{"garbage instead of HTTP", func(p *peer) { p.request(); p.write([]byte("\x00\x01\x02\x03\r\n\r\n")) }, "malformed HTTP"},
	{"hangs up at once", func(*peer) { check(io.EOF) }, "open websocket"},

	// WebSocket frames.
	{"101 then garbage", func(p *peer) { p.upgrade(); p.write(bytes.Repeat([]byte{0xff}, 64)) }, "read from the runtime"},
	{"reserved bit, as of a compressed frame", joined(func(p *peer) { p.write([]byte{0xc1, 1, '2'}) }), "rsv"},
	{"unknown opcode", joined(func(p *peer) { p.write([]byte{0x83, 0}) }), "opcode"},
	{"fragmented control frame", joined(func(p *peer) { p.write([]byte{0x09, 0}) }), "control frame"},
	{"control frame over 125 bytes", joined(func(p *peer) { p.write(head(true, 9, 126)) }), "control"},
	{"continuation of nothing", joined(func(p *peer) { p.write(head(true, 0, 0)) }), "continuation"},
	{"message within a message", joined(func(p *peer) { p.write(head(false, 1, 1)); p.write([]byte("2")); p.text("2") }), "without finishing"},
	{"length of 4 GiB, then silence", joined(func(p *peer) { p.text(resultHeader); p.write(head(true, 2, 1<<32)); p.write([]byte("x")); p.idle() }), "no progress"},
	{"length of 2^63", joined(func(p *peer) { p.text(resultHeader); p.write(head(true, 2, 1<<63)) }), "read from the runtime"},
	{"silence within a text", joined(func(p *peer) { p.write(head(true, 1, 10)); p.write([]byte("4")); p.idle() }), "no progress"},
	{"silence before an attachment", joined(func(p *peer) { p.text(resultHeader); p.idle() }), "no progress"},
	{"a message of empty fragments", joined(func(p *peer) {
		p.text(resultHeader)
		p.write(head(false, 2, 0))
		for {
			p.write(head(false, 0, 0))
			p.idleFor(10 * time.Millisecond)
		}
	}), "took longer"},
	{"a slow message", joined(func(p *peer) {
		p.text(resultHeader)
		p.write(head(true, 2, 1<<20))
		for {
			p.write([]byte("x"))
			p.idleFor(10 * time.Millisecond)
		}
	}), "took longer"},
	{"text over its limit", textAfterJoin("4" + strings.Repeat("2", maxTextBytes)), "over its limit of 65536"},
	{"error over its limit", attachment(errorHeader, make([]byte, maxErrorBytes+1)), "over its limit of 16777216"},
	{"ignored attachment over its limit", joined(func(p *peer) {
		p.text(`451-/rpc,["other",{"_placeholder":true,"num":0}]`)
		p.write(head(true, 2, wire.MaxMessageBytes+1))
		block := make([]byte, 1<<20)
		for {
			p.write(block)
		}
	}), "over its limit of 268435456"},
	{"flood of noops", flood(20000, append(head(true, 1, 1), '6')), "meaningless"},
	{"flood of pings", flood(20000, append(head(true, 1, 1), '2')), "meaningless"},
	{"flood of control pings", flood(20000, head(true, 9, 0)), "meaningless"},
	{"flood of ready events", joined(func(p *peer) {
		one := append(head(true, 1, uint64(len(eventHeader("/rpc", "ready")))), eventHeader("/rpc", "ready")...)
		one = append(append(one, head(true, 2, 1)...), 0x80)
		for range 20000 {
			p.write(one)
		}
	}), "meaningless"},
	{"attachment without its event", joined(func(p *peer) { p.binary([]byte{0xc0}) }), "no event announced"},
	{"text where an attachment is due", joined(func(p *peer) { p.text(resultHeader); p.text(resultHeader) }), "where an attachment is due"},
	{"text is not UTF-8", textAfterJoin("42\xff\xfe"), "UTF-8"},

	// Engine.IO.
	{"empty text", textAfterJoin(""), "empty text frame"},
	{"unknown packet type", textAfterJoin("9"), "packet type"},
	{"NUL", textAfterJoin("\x00"), "packet type"},
	{"a packet before open", func(p *peer) { p.upgrade(); p.text("2") }, "before the open packet"},
	{"open is no JSON", func(p *peer) { p.upgrade(); p.text("0{") }, "open packet"},
	{"open without sid", func(p *peer) { p.upgrade(); p.text("0{}") }, "without sid"},
	{"open with text for a number", func(p *peer) { p.upgrade(); p.text(`0{"sid":"S","pingInterval":"x"}`) }, "open packet"},
	{"open nests", func(p *peer) { p.upgrade(); p.text("0" + strings.Repeat("[", 60000)) }, "open packet"},
	{"second open", textAfterJoin(openPacket), "second open"},
	{"engine close", textAfterJoin("1"), "closed the connection"},
	{"silence after the upgrade", func(p *peer) { p.upgrade(); p.idle() }, "handshake in time"},

	// Socket.IO.
	{"empty message", textAfterJoin("4"), "empty message"},
	{"unknown message type", textAfterJoin("47"), "socket packet type"},
	{"no attachment count", textAfterJoin(`45/rpc,["x"]`), "attachment count"},
	{"0 attachments", textAfterJoin(`450-/rpc,["call:result",{"_placeholder":true,"num":0}]`), "attachment count"},
	{"11 attachments", textAfterJoin(`4511-/rpc,["x"]`), "attachment count"},
	{"10^9 attachments", textAfterJoin(`451000000000-/rpc,["x"]`), "attachment count"},
	{"-1 attachments", textAfterJoin(`45-1-/rpc,["x"]`), "attachment count"},
	{"many digits", textAfterJoin(`45` + strings.Repeat("1", 1000) + `-/rpc,["x"]`), "attachment count"},
	{"event is no JSON", textAfterJoin(`451-/rpc,["x"`), "not a JSON array"},
	{"event is an object", textAfterJoin(`451-/rpc,{}`), "not a JSON array"},
	{"event nests", textAfterJoin(`451-/rpc,` + strings.Repeat("[", 60000)), "not a JSON array"},
	{"event without argument", textAfterJoin(`451-/rpc,["x"]`), "0 arguments"},
	{"event with two arguments", textAfterJoin(`451-/rpc,["x",1,{"_placeholder":true,"num":0}]`), "2 arguments"},
	{"event name is a number", textAfterJoin(`451-/rpc,[1,{"_placeholder":true,"num":0}]`), "not a string"},
	{"argument is no placeholder", textAfterJoin(`451-/rpc,["x",{"num":0}]`), "placeholder"},
	{"placeholder num is text", textAfterJoin(`451-/rpc,["x",{"_placeholder":true,"num":"0"}]`), "placeholder"},
	{"placeholder num is negative", textAfterJoin(`451-/rpc,["x",{"_placeholder":true,"num":-1}]`), "placeholder"},
	{"placeholder num out of range", textAfterJoin(`451-/rpc,["x",{"_placeholder":true,"num":1}]`), "placeholder"},
	{"placeholder without num", textAfterJoin(`451-/rpc,["x",{"_placeholder":true}]`), "placeholder"},
	{"event before CONNECT", opened(func(p *peer) { p.event("/rpc", "ready", wire.Ready{}); p.idle() }), "before its CONNECT"},
	{"records before resume", opened(func(p *peer) {
		p.readText()
		p.text(`40/log,{"sid":"N"}`)
		p.event("/log", wire.EventRecords, wire.Batch{Sid: "s", Seq: 1, Records: []wire.Record{{Kind: wire.RecordGap}}})
		p.idle()
	}), "before they were asked for"},
	{"CONNECT refused", opened(func(p *peer) { p.readText(); p.text(`44/rpc,{"message":"bad \u001b[31m token"}`); p.idle() }), `"bad \x1b[31m token"`},
	{"CONNECT of another namespace", opened(func(p *peer) { p.text(`40/other,{"sid":"N"}`); p.idle() }), "not asked for"},
	{"CONNECT twice", opened(func(p *peer) { p.text(`40/rpc,{"sid":"N"}`); p.text(`40/rpc,{"sid":"N"}`); p.idle() }), "not asked for"},
	{"CONNECT after the handshake", textAfterJoin(`40/rpc,{"sid":"N"}`), "not asked for"},
	{"DISCONNECT", textAfterJoin(`41/rpc,`), "disconnected namespace"},
	{"never ready", opened(func(p *peer) { p.text(`40/rpc,{"sid":"N"}`); p.text(`40/log,{"sid":"N"}`); p.idle() }), "handshake in time"},

	// Payloads.
	{"no msgpack", attachment(resultHeader, []byte{0xc1}), "malformed msgpack"},
	{"empty attachment", attachment(resultHeader, nil), "malformed msgpack"},
	{"trailing bytes", attachment(resultHeader, append(marshal(wire.Result{CallID: "c"}), 0xc0)), "after the document"},
	{"not a map", attachment(resultHeader, []byte{0x01}), "not a map"},
	{"call_id is a number", attachment(resultHeader, field("call_id", []byte{1})), "call_id has the wrong type"},
	{"number as key", attachment(resultHeader, []byte{0x81, 1, 1}), "key is not a string"},
	{"nesting of 10^5", attachment(resultHeader, field("x", nest(100000))), "nests deeper"},
	{"string longer than the frame", attachment(resultHeader, field("call_id", []byte{0xdb, 0xff, 0xff, 0xff, 0xff, 'x'})), "malformed msgpack"},
	{"array longer than the frame", attachment(recordsHeader, field("records", []byte{0xdd, 0xff, 0xff, 0xff, 0xff})), "malformed msgpack"},
	{"ready nests", joined(func(p *peer) { p.frame(1, eventHeader("/rpc", "ready")); p.binary(nest(1000)) }), "nests deeper"},
	{"ready with a long sid", joined(func(p *peer) { p.event("/rpc", "ready", wire.Ready{Sid: longSid}) }), "_sid"},
	{"records: no sid", attachment(recordsHeader, marshal(wire.Batch{Seq: 1, Records: []wire.Record{{Kind: wire.RecordGap}}})), "out of range"},
	{"records: long sid", attachment(recordsHeader, marshal(wire.Batch{Sid: longSid, Seq: 1, Records: []wire.Record{{}}})), "out of range"},
	{"records: seq 0", attachment(recordsHeader, marshal(wire.Batch{Sid: "s", Records: []wire.Record{{}}})), "out of range"},
	{"records: seq at its end", attachment(recordsHeader, marshal(wire.Batch{Sid: "s", Seq: math.MaxUint64, Records: []wire.Record{{}}})), "out of range"},
	{"records: negative seq", attachment(recordsHeader, marshal(map[string]any{"_sid": "s", "_seq": -1, "records": []any{}})), "out of range"},
	{"records: none", attachment(recordsHeader, marshal(wire.Batch{Sid: "s", Seq: 1})), "not 1 to 1024"},
	{"records: 1025", attachment(recordsHeader, marshal(wire.Batch{Sid: "s", Seq: 1, Records: make([]wire.Record, 1025)})), "not 1 to 1024"},
	{"records: 10^7 times nil", attachment(recordsHeader, append(
		append([]byte{0x83, 0xa4, '_', 's', 'i', 'd', 0xa1, 's', 0xa4, '_', 's', 'e', 'q', 1, 0xa7}, "records"...),
		append([]byte{0xdd, 0x00, 0x98, 0x96, 0x80}, bytes.Repeat([]byte{0xc0}, 10000000)...)...)), "not 1 to 1024"},
}
