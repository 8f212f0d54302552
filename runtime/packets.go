package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/zishang520/socket.io/parsers/socket/v3/parser"
	"github.com/zishang520/socket.io/servers/socket/v3"
	"github.com/zishang520/socket.io/v3/pkg/types"

	"github.com/agentixd/agentixd/runtime/wire"
)

// packetParser is the server's parser with our own decoder of binary events: one that
// bounds the attachments and does not copy them, for they may have 256 MiB.
type packetParser struct{ parser.Parser }

// NewDecoder makes the decoder of one connection.
func (packetParser) NewDecoder() parser.Decoder {
	opts := parser.DefaultDecoderOptions()
	opts.SetMaxAttachments(wire.MaxAttachments)
	return &packetDecoder{Decoder: parser.NewDecoder(opts)}
}

// packetDecoder decodes binary events and leaves the rest to the server's decoder.
type packetDecoder struct {
	parser.Decoder
	pending *binaryPacket // waits for its attachments
}

type binaryPacket struct {
	parser.Packet
	attachments []types.BufferInterface
	missing     int
}

var (
	errTextInBinary = errors.New("text between an event and its attachments")
	errStrayBinary  = errors.New("binary data without an event")
	errAttachments  = fmt.Errorf("an event has 1 to %d attachments", wire.MaxAttachments)
	errBinaryPacket = errors.New("malformed binary packet")
)

// Add takes one Engine.IO message and emits "decoded" for each whole packet.
func (d *packetDecoder) Add(data any) error {
	switch v := data.(type) {
	case *types.StringBuffer:
		if d.pending != nil {
			return errTextInBinary
		}
		text := v.String()
		if strings.HasPrefix(text, "5") || strings.HasPrefix(text, "6") {
			pending, err := parseBinaryPacket(text)
			d.pending = pending
			return err
		}
		if plain := withoutQuery(text); plain != text {
			return d.Decoder.Add(plain)
		}
		return d.Decoder.Add(v)
	case types.BufferInterface:
		return d.attach(v)
	}
	return d.Decoder.Add(data)
}

// Destroy forgets a packet that is not whole.
func (d *packetDecoder) Destroy() {
	d.pending = nil
	d.Decoder.Destroy()
}

func (d *packetDecoder) attach(b types.BufferInterface) error {
	p := d.pending
	if p == nil {
		return errStrayBinary
	}
	p.attachments = append(p.attachments, b)
	if p.missing--; p.missing > 0 {
		return nil
	}
	d.pending = nil
	args, ok := p.Data.([]any)
	if !ok {
		return errBinaryPacket
	}
	for i, arg := range args { // only arguments themselves: no event of ours nests them
		m, ok := arg.(map[string]any)
		if !ok || m["_placeholder"] != true {
			continue
		}
		n, ok := m["num"].(float64)
		if !ok || n != float64(int(n)) || n < 0 || int(n) >= len(p.attachments) {
			return errBinaryPacket
		}
		args[i] = p.attachments[int(n)]
	}
	d.Emit("decoded", &p.Packet)
	return nil
}

// withoutQuery drops a query after the namespace of a packet.
func withoutQuery(text string) string {
	if len(text) < 2 || text[1] != '/' {
		return text
	}
	end := strings.IndexByte(text, ',')
	if end < 0 {
		end = len(text)
	}
	if at := strings.IndexByte(text[:end], '?'); at >= 0 {
		return text[:at] + text[end:]
	}
	return text
}

// maxPacketText bounds the text of a binary event: its name and its placeholders.
const maxPacketText = 1 << 20

// parseBinaryPacket reads `5<n>-[<namespace>,][<id>]<json>`; a query after the namespace is
// dropped.
func parseBinaryPacket(text string) (*binaryPacket, error) {
	if len(text) > maxPacketText {
		return nil, errBinaryPacket
	}
	p := &binaryPacket{Packet: parser.Packet{Type: parser.PacketType(text[0] - '0'), Nsp: "/"}}
	count, rest, ok := strings.Cut(text[1:], "-")
	n, err := strconv.ParseUint(count, 10, 32)
	if !ok || err != nil {
		return nil, errBinaryPacket
	}
	if n < 1 || n > wire.MaxAttachments {
		return nil, errAttachments
	}
	p.missing, p.Attachments = int(n), &n
	if strings.HasPrefix(rest, "/") {
		if p.Nsp, rest, ok = strings.Cut(rest, ","); !ok {
			return nil, errBinaryPacket
		}
		p.Nsp, _, _ = strings.Cut(p.Nsp, "?")
	}
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if digits > 0 {
		id, err := strconv.ParseUint(rest[:digits], 10, 64)
		if err != nil {
			return nil, errBinaryPacket
		}
		p.Id = &id
	}
	var args []any
	if err := json.Unmarshal([]byte(rest[digits:]), &args); err != nil || len(args) == 0 {
		return nil, errBinaryPacket
	}
	if _, named := args[0].(string); !named && p.Type == parser.BINARY_EVENT {
		return nil, errBinaryPacket
	}
	p.Data = args
	return p, nil
}

// emit sends an event with one binary argument. It goes past the server's encoder, which
// would copy the payload three times; the payload must not change any more.
func emit(sock *socket.Socket, event string, payload []byte) error {
	if sock.Conn().ReadyState() != "open" {
		return nil // it is gone: what matters is sent again on a resume
	}
	name, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode event name: %w", err)
	}
	head := make([]byte, 0, 80)
	head = append(head, "51-"...)
	if ns := sock.Nsp().Name(); ns != "/" {
		head = append(append(head, ns...), ',')
	}
	head = append(append(append(head, '['), name...), `,{"_placeholder":true,"num":0}]`...)
	sock.Client().WriteToEngine([]types.BufferInterface{
		types.NewStringBuffer(head), sharedBuffer{types.NewBytesBuffer(payload)},
	}, &socket.WriteOptions{})
	return nil
}

// sharedBuffer is a buffer that nobody writes to, so that a clone needs no copy.
type sharedBuffer struct{ types.BufferInterface }

// Clone returns a reader of its own on the same bytes.
func (b sharedBuffer) Clone() types.BufferInterface { return types.NewBytesBuffer(b.Bytes()) }
