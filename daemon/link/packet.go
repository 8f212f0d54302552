package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/agentixd/agentixd/runtime/wire"
)

// maxTextBytes is the longest text frame that is read: our protocol carries every payload
// in a binary frame, so text holds a namespace, an event name and a placeholder only.
const maxTextBytes = 65536 // 64 KiB

// errProtocol is wrapped by every error about bytes that the peer must not send.
var errProtocol = errors.New("protocol violation")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

// packetKind is what a text frame says.
type packetKind uint8

const (
	packetIgnored      packetKind = iota // legal, but nothing for us
	packetOpen                           // Engine.IO open; data is its JSON
	packetPing                           // Engine.IO ping
	packetClose                          // Engine.IO close
	packetConnect                        // Socket.IO CONNECT; data is its JSON or empty
	packetConnectError                   // Socket.IO CONNECT_ERROR; data is its JSON or empty
	packetDisconnect                     // Socket.IO DISCONNECT
	packetEvent                          // Socket.IO event with one attachment, which follows
	packetTick                           // not of the peer: something is due
	packetSkip                           // an event or ack that is not ours; its attachments follow and are dropped
)

// packet is one parsed text frame.
type packet struct {
	kind        packetKind
	namespace   string
	event       string
	data        []byte
	attachments int
}

// parseText reads one text frame. It does no I/O and keeps nothing.
func parseText(b []byte) (packet, error) {
	if len(b) == 0 {
		return packet{}, violation("empty text frame")
	}
	if len(b) > maxTextBytes {
		return packet{}, violation("text frame over %d bytes", maxTextBytes)
	}
	if !utf8.Valid(b) {
		return packet{}, violation("text frame is not UTF-8")
	}
	switch b[0] {
	case '0':
		return packet{kind: packetOpen, data: b[1:]}, nil
	case '1':
		return packet{kind: packetClose}, nil
	case '2':
		return packet{kind: packetPing}, nil
	case '3', '5', '6':
		return packet{kind: packetIgnored}, nil
	case '4':
		return parseMessage(b[1:])
	}
	return packet{}, violation("engine packet type %q", b[0])
}

// parseMessage reads a Socket.IO packet: <type>[<n>-][<namespace>,][<id>][<json>].
func parseMessage(b []byte) (packet, error) {
	if len(b) == 0 {
		return packet{}, violation("empty message")
	}
	kind, b := b[0], b[1:]
	if kind < '0' || kind > '6' {
		return packet{}, violation("socket packet type %q", kind)
	}
	p := packet{namespace: "/"}
	if kind == '5' || kind == '6' {
		n, rest, err := attachmentCount(b)
		if err != nil {
			return packet{}, err
		}
		p.attachments, b = n, rest
	}
	if len(b) > 0 && b[0] == '/' {
		name, rest, found := bytes.Cut(b, []byte{','})
		if !found {
			rest = nil
		}
		name, _, _ = bytes.Cut(name, []byte{'?'})
		p.namespace, b = string(name), rest
	}
	switch kind {
	case '0':
		p.kind, p.data = packetConnect, b
	case '1':
		p.kind = packetDisconnect
	case '4':
		p.kind, p.data = packetConnectError, b
	case '5':
		return parseEvent(p, b)
	case '6':
		p.kind = packetSkip
	default: // an event without an attachment, an ack: not part of our protocol
		p.kind = packetIgnored
	}
	return p, nil
}

// attachmentCount reads "<n>-".
func attachmentCount(b []byte) (int, []byte, error) {
	digits, rest, found := bytes.Cut(b, []byte{'-'})
	if !found || len(digits) == 0 || len(digits) > 10 {
		return 0, nil, violation("attachment count missing")
	}
	n, err := strconv.ParseUint(string(digits), 10, 32)
	if err != nil || n < 1 || n > wire.MaxAttachments {
		return 0, nil, violation("attachment count %q is not 1 to %d", digits, wire.MaxAttachments)
	}
	return int(n), rest, nil
}

// placeholderTail is how every event of our protocol ends.
const placeholderTail = `,{"_placeholder":true,"num":0}]`

// parseEvent reads ["<event>",{"_placeholder":true,"num":0}] with an optional ack id before it.
func parseEvent(p packet, b []byte) (packet, error) {
	for len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
		b = b[1:]
	}
	if p.attachments != 1 {
		p.kind = packetSkip
		return p, nil
	}
	p.kind = packetEvent
	if name, ok := bytes.CutSuffix(b, []byte(placeholderTail)); ok && plainName(name) {
		p.event = string(name[2 : len(name)-1])
		return p, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return packet{}, violation("event is not a JSON array")
	}
	if len(parts) != 2 {
		return packet{}, violation("event with %d arguments, not 1", len(parts)-1)
	}
	if err := json.Unmarshal(parts[0], &p.event); err != nil {
		return packet{}, violation("event name is not a string")
	}
	var holder struct {
		Placeholder bool `json:"_placeholder"`
		Num         *int `json:"num"`
	}
	if err := json.Unmarshal(parts[1], &holder); err != nil || !holder.Placeholder || holder.Num == nil || *holder.Num != 0 {
		return packet{}, violation("event argument is not the placeholder of its attachment")
	}
	return p, nil
}

// plainName reports whether b is `["name"` with a name that needs no unescaping.
func plainName(b []byte) bool {
	if len(b) < 3 || b[0] != '[' || b[1] != '"' || b[len(b)-1] != '"' {
		return false
	}
	for _, c := range b[2 : len(b)-1] {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// eventHeader is the text frame that announces an event with one attachment.
func eventHeader(namespace, event string) []byte {
	return []byte(`451-` + namespace + `,["` + event + `"` + placeholderTail)
}

// open is the payload of the Engine.IO open packet.
type open struct {
	Sid          string  `json:"sid"`
	PingInterval float64 `json:"pingInterval"`
	PingTimeout  float64 `json:"pingTimeout"`
	MaxPayload   float64 `json:"maxPayload"`
}

func parseOpen(b []byte) (open, error) {
	var o open
	if err := json.Unmarshal(b, &o); err != nil {
		return open{}, violation("open packet is not its JSON object")
	}
	if o.Sid == "" {
		return open{}, violation("open packet without sid")
	}
	return o, nil
}

// connectErrorText is the message of a CONNECT_ERROR, cut and quoted for our own error texts.
func connectErrorText(b []byte) string {
	var m struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		_ = json.Unmarshal(b, &m.Message)
	}
	return quote(m.Message)
}

// quote makes text of the peer fit for our own error texts: cut to 200 bytes, quoted.
func quote(s string) string {
	if len(s) > 200 {
		s = s[:200]
	}
	return strconv.QuoteToASCII(s)
}
