package events

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/agentixd/agentixd/internal/errs"
)

// A cursor is base64url of: its form, what it belongs to (8 bytes), two numbers as
// varints, and a checksum over all that. It is opaque to clients.
const (
	formOne = 1 // of one journal: its id, the seq, 0
	formAll = 2 // of all journals: the state directory's instance, the batch, how many of its events were seen
)

// maxCursorBytes bounds what is decoded.
const maxCursorBytes = 64

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// owner is what a cursor belongs to.
type owner [8]byte

type cursor struct {
	form  byte
	owner owner
	a, b  uint64
}

func (c cursor) String() string {
	var space [maxCursorBytes]byte
	out := append(space[:0], c.form)
	out = append(out, c.owner[:]...)
	out = binary.AppendUvarint(out, c.a)
	out = binary.AppendUvarint(out, c.b)
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
	return base64.RawURLEncoding.EncodeToString(out)
}

// parseCursor returns OutOfRange for anything that is not a cursor of ours.
func parseCursor(text string) (cursor, error) {
	if len(text) > base64.RawURLEncoding.EncodedLen(maxCursorBytes) {
		return cursor{}, errCursor("is not a cursor of this server")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < 1+len(owner{})+2+4 {
		return cursor{}, errCursor("is not a cursor of this server")
	}
	body, sum := raw[:len(raw)-4], raw[len(raw)-4:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(sum) {
		return cursor{}, errCursor("is not a cursor of this server")
	}
	c := cursor{form: body[0], owner: owner(body[1:9])}
	a, n := binary.Uvarint(body[9:])
	if n <= 0 {
		return cursor{}, errCursor("is not a cursor of this server")
	}
	b, m := binary.Uvarint(body[9+n:])
	if m <= 0 || 9+n+m != len(body) {
		return cursor{}, errCursor("is not a cursor of this server")
	}
	c.a, c.b = a, b
	if c.String() != text { // a number written in more bytes than it needs
		return cursor{}, errCursor("is not a cursor of this server")
	}
	return c, nil
}

func errCursor(what string) error {
	return errs.New(errs.OutOfRange, errs.CursorExpired, "the cursor %s; begin without one", what)
}
