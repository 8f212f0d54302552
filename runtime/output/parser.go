// Package output reads what the processes of a sandbox write to fd 1 and 2. Python-level
// writes of a call carry a marker with its id; everything else is taken as it is. The bytes
// are hostile: a malformed marker is plain output.
package output

import (
	"bytes"
	"encoding/binary"
)

// MarkerBytes is the length of the random marker that a worker announces.
const MarkerBytes = 16

// maxPiece is the largest marked write: one pipe write that is atomic (PIPE_BUF).
const maxPiece = 4096

// parser splits chunks into pieces with and without a call id.
type parser struct {
	marker []byte
	tail   []byte
}

// feed takes what one read returned. full says that the read filled its buffer, so that a
// marked piece may go on in the next read; otherwise the chunk ends at the end of a write.
// emit gets slices of chunk that are good until it returns.
func (p *parser) feed(chunk []byte, full bool, emit func(callID string, b []byte)) {
	if len(p.tail) > 0 {
		chunk = append(p.tail, chunk...)
		p.tail = nil
	}
	if len(p.marker) == 0 {
		p.plain(chunk, emit)
		return
	}
	for from := 0; len(chunk) > 0; {
		i := bytes.Index(chunk[from:], p.marker)
		if i < 0 {
			keep := 0
			if full {
				keep = p.prefixAtEnd(chunk)
			}
			p.plain(chunk[:len(chunk)-keep], emit)
			p.tail = bytes.Clone(chunk[len(chunk)-keep:])
			return
		}
		i += from
		id, data, n, state := cut(chunk[i+len(p.marker):])
		switch {
		case state == whole:
			p.plain(chunk[:i], emit)
			if len(data) > 0 {
				emit(id, data)
			}
			chunk, from = chunk[i+len(p.marker)+n:], 0
		case state == partial && full:
			p.plain(chunk[:i], emit)
			p.tail = bytes.Clone(chunk[i:])
			return
		default: // not a marker after all
			from = i + 1
		}
	}
}

func (p *parser) plain(b []byte, emit func(string, []byte)) {
	if len(b) > 0 {
		emit("", b)
	}
}

// flush gives up on a piece that was kept.
func (p *parser) flush(emit func(string, []byte)) {
	p.plain(p.tail, emit)
	p.tail = nil
}

// prefixAtEnd is how many bytes at the end of b could begin a marker.
func (p *parser) prefixAtEnd(b []byte) int {
	for n := min(len(b), len(p.marker)-1); n > 0; n-- {
		if bytes.HasPrefix(p.marker, b[len(b)-n:]) {
			return n
		}
	}
	return 0
}

type pieceState int

const (
	malformed pieceState = iota
	partial
	whole
)

// cut reads what follows a marker: u8 length and call id, u16-LE length and data.
func cut(b []byte) (id string, data []byte, n int, state pieceState) {
	if len(b) == 0 {
		return "", nil, 0, partial
	}
	idLen := int(b[0])
	if idLen == 0 {
		return "", nil, 0, malformed
	}
	if len(b) < 1+idLen+2 {
		return "", nil, 0, partial
	}
	size := int(binary.LittleEndian.Uint16(b[1+idLen:]))
	n = 1 + idLen + 2 + size
	switch {
	case MarkerBytes+n > maxPiece:
		return "", nil, 0, malformed
	case len(b) < n:
		return "", nil, 0, partial
	}
	return string(b[1 : 1+idLen]), b[n-size : n], n, whole
}
