package events

import "encoding/binary"

// splitValue cuts the first value off a document that wire.Check found well-formed; ok is
// false where it cannot.
func splitValue(b []byte) (value, rest []byte, ok bool) {
	at, open := 0, 1
	for open > 0 {
		if at >= len(b) {
			return nil, nil, false
		}
		head, size, inside := shape(b[at:])
		if head == 0 || size > len(b)-at-head {
			return nil, nil, false
		}
		at += head + size
		open += inside - 1
	}
	return b[:at], b[at:], true
}

// shape of the token at the front of b: how long its head is (0 = none), how many bytes
// belong to it after that, and how many values are inside.
func shape(b []byte) (head, size, inside int) {
	c := b[0]
	switch {
	case c <= 0x7f || c >= 0xe0:
		return 1, 0, 0
	case c <= 0x8f:
		return 1, 0, 2 * int(c&0x0f)
	case c <= 0x9f:
		return 1, 0, int(c & 0x0f)
	case c <= 0xbf:
		return 1, int(c & 0x1f), 0
	}
	switch c {
	case 0xc0, 0xc2, 0xc3:
		return 1, 0, 0
	case 0xcc, 0xd0:
		return 1, 1, 0
	case 0xcd, 0xd1:
		return 1, 2, 0
	case 0xca, 0xce, 0xd2:
		return 1, 4, 0
	case 0xcb, 0xcf, 0xd3:
		return 1, 8, 0
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return 1, 1 + 1<<(c-0xd4), 0
	case 0xc4, 0xd9:
		return length(b, 1, 0)
	case 0xc5, 0xda:
		return length(b, 2, 0)
	case 0xc6, 0xdb:
		return length(b, 4, 0)
	case 0xc7:
		return length(b, 1, 1)
	case 0xc8:
		return length(b, 2, 1)
	case 0xc9:
		return length(b, 4, 1)
	case 0xdc, 0xde:
		head, inside, _ = length(b, 2, 0)
	case 0xdd, 0xdf:
		head, inside, _ = length(b, 4, 0)
	}
	if c >= 0xde {
		inside *= 2
	}
	return head, 0, inside
}

// length reads the n bytes of a length, to which more bytes are added.
func length(b []byte, n, more int) (head, size, inside int) {
	if len(b) < 1+n {
		return 0, 0, 0
	}
	switch n {
	case 1:
		return 2, int(b[1]) + more, 0
	case 2:
		return 3, int(binary.BigEndian.Uint16(b[1:])) + more, 0
	}
	return 5, int(binary.BigEndian.Uint32(b[1:])) + more, 0
}

// content is the bytes of a str or bin.
func content(value []byte) (data []byte, ok bool) {
	if len(value) == 0 || value[0] < 0xa0 || value[0] > 0xbf && (value[0] < 0xc4 || value[0] > 0xc6) && (value[0] < 0xd9 || value[0] > 0xdb) {
		return nil, false
	}
	head, size, _ := shape(value)
	if head == 0 || head+size != len(value) {
		return nil, false
	}
	return value[head:], true
}

// integer reads an int of any form.
func integer(value []byte) (n int64, ok bool) {
	if len(value) == 0 {
		return 0, false
	}
	c, rest := value[0], value[1:]
	switch {
	case c <= 0x7f || c >= 0xe0:
		return int64(int8(c)), true
	case c < 0xcc || c > 0xd3 || len(rest) != 1<<((c-0xcc)%4):
		return 0, false
	}
	var u uint64
	for _, b := range rest {
		u = u<<8 | uint64(b)
	}
	if c >= 0xd0 {
		shift := 64 - 8*len(rest)
		return int64(u<<shift) >> shift, true
	}
	return int64(min(u, 1<<63-1)), true
}
