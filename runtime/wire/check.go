package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// kind of one msgpack token.
type tokenKind uint8

const (
	tokenNil tokenKind = iota
	tokenBool
	tokenInt
	tokenUint
	tokenFloat
	tokenStr
	tokenBin
	tokenExt
	tokenArray
	tokenMap
)

// token is one msgpack token: a scalar with its value, or the head of an array or map.
type token struct {
	kind  tokenKind
	ext   int8
	b     bool
	i     int64
	u     uint64
	f     float64
	data  []byte // of str, bin and ext; a part of the input
	count int    // elements of an array, pairs of a map
}

// values is how many values follow the head of an array or map before it ends.
func (t *token) values() int {
	if t.kind == tokenMap {
		return 2 * t.count
	}
	return t.count
}

// nextToken reads the token at the front of b and returns what follows it.
func nextToken(b []byte) (token, []byte, error) {
	if len(b) == 0 {
		return token{}, nil, fmt.Errorf("%w: ends too early", ErrMalformed)
	}
	c, rest := b[0], b[1:]
	switch {
	case c <= 0x7f:
		return token{kind: tokenInt, i: int64(c)}, rest, nil
	case c <= 0x8f:
		return container(tokenMap, uint64(c&0x0f), rest)
	case c <= 0x9f:
		return container(tokenArray, uint64(c&0x0f), rest)
	case c <= 0xbf:
		return blob(token{kind: tokenStr}, uint64(c&0x1f), rest)
	case c >= 0xe0:
		return token{kind: tokenInt, i: int64(int8(c))}, rest, nil
	}
	switch c {
	case 0xc0:
		return token{kind: tokenNil}, rest, nil
	case 0xc2, 0xc3:
		return token{kind: tokenBool, b: c == 0xc3}, rest, nil
	}
	size, ok := lengthBytes[c]
	if !ok {
		return token{}, nil, fmt.Errorf("%w: byte 0x%02x", ErrMalformed, c)
	}
	if len(rest) < size {
		return token{}, nil, fmt.Errorf("%w: ends too early", ErrMalformed)
	}
	n, rest := bigEndian(rest[:size]), rest[size:]
	switch c {
	case 0xc4, 0xc5, 0xc6:
		return blob(token{kind: tokenBin}, n, rest)
	case 0xd9, 0xda, 0xdb:
		return blob(token{kind: tokenStr}, n, rest)
	case 0xdc, 0xdd:
		return container(tokenArray, n, rest)
	case 0xde, 0xdf:
		return container(tokenMap, n, rest)
	case 0xca:
		return token{kind: tokenFloat, f: float64(math.Float32frombits(uint32(n)))}, rest, nil
	case 0xcb:
		return token{kind: tokenFloat, f: math.Float64frombits(n)}, rest, nil
	case 0xcc, 0xcd, 0xce, 0xcf:
		return token{kind: tokenUint, u: n}, rest, nil
	case 0xd0:
		return token{kind: tokenInt, i: int64(int8(n))}, rest, nil
	case 0xd1:
		return token{kind: tokenInt, i: int64(int16(n))}, rest, nil
	case 0xd2:
		return token{kind: tokenInt, i: int64(int32(n))}, rest, nil
	case 0xd3:
		return token{kind: tokenInt, i: int64(n)}, rest, nil
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return extension(1<<(c-0xd4), rest)
	default: // 0xc7, 0xc8, 0xc9
		return extension(n, rest)
	}
}

// lengthBytes is how many bytes of value or length follow each first byte.
var lengthBytes = map[byte]int{
	0xc4: 1, 0xc5: 2, 0xc6: 4, // bin
	0xc7: 1, 0xc8: 2, 0xc9: 4, // ext
	0xca: 4, 0xcb: 8, // float
	0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, // uint
	0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8, // int
	0xd4: 0, 0xd5: 0, 0xd6: 0, 0xd7: 0, 0xd8: 0, // fixext
	0xd9: 1, 0xda: 2, 0xdb: 4, // str
	0xdc: 2, 0xdd: 4, // array
	0xde: 2, 0xdf: 4, // map
}

func bigEndian(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// container is the head of an array or map; each element takes at least one byte.
func container(kind tokenKind, n uint64, rest []byte) (token, []byte, error) {
	least := n
	if kind == tokenMap {
		least = 2 * n
	}
	if least > uint64(len(rest)) {
		return token{}, nil, fmt.Errorf("%w: %d elements in %d bytes", ErrMalformed, n, len(rest))
	}
	return token{kind: kind, count: int(n)}, rest, nil
}

func blob(t token, n uint64, rest []byte) (token, []byte, error) {
	if n > uint64(len(rest)) {
		return token{}, nil, fmt.Errorf("%w: length %d in %d bytes", ErrMalformed, n, len(rest))
	}
	t.data = rest[:n:n]
	if t.kind == tokenStr && !utf8.Valid(t.data) {
		return token{}, nil, fmt.Errorf("%w: a string is not UTF-8", ErrMalformed)
	}
	return t, rest[n:], nil
}

func extension(n uint64, rest []byte) (token, []byte, error) {
	if n+1 > uint64(len(rest)) {
		return token{}, nil, fmt.Errorf("%w: length %d in %d bytes", ErrMalformed, n, len(rest))
	}
	return token{kind: tokenExt, ext: int8(rest[0]), data: rest[1 : n+1 : n+1]}, rest[n+1:], nil
}

// level is one open array or map: values still to come, of which every second is a key in a map;
// fresh until its first value came.
type level struct {
	left  int
	isMap bool
	fresh bool
}

// Check reports whether b is exactly one well-formed msgpack document that nests at most
// maxDepth containers, with string or bin map keys and UTF-8 strings. It allocates nothing
// that depends on a claimed length.
func Check(b []byte, maxDepth int) error {
	return walk(b, maxDepth, nil)
}

// visitor sees the tokens of a document in order; closed is called for each container's end.
type visitor struct {
	token  func(t token, key, first bool)
	closed func(isMap bool)
}

// walk checks b as Check does and shows v (if any) each token.
func walk(b []byte, maxDepth int, v *visitor) error {
	var space [32]level
	stack := space[:0]
	for first := true; first || len(stack) > 0; first = false {
		for len(stack) > 0 && stack[len(stack)-1].left == 0 {
			if v != nil {
				v.closed(stack[len(stack)-1].isMap)
			}
			stack = stack[:len(stack)-1]
			if len(stack) == 0 {
				return trailing(b)
			}
		}
		t, rest, err := nextToken(b)
		if err != nil {
			return err
		}
		b = rest
		key, head := false, false
		if len(stack) > 0 {
			top := &stack[len(stack)-1]
			key = top.isMap && top.left%2 == 0
			head, top.fresh = top.fresh, false
			top.left--
		}
		if key && t.kind != tokenStr && t.kind != tokenBin {
			return fmt.Errorf("%w: a map key is not a string", ErrMalformed)
		}
		if v != nil {
			v.token(t, key, head)
		}
		if t.kind == tokenArray || t.kind == tokenMap {
			stack = append(stack, level{left: t.values(), isMap: t.kind == tokenMap, fresh: true})
		}
		if len(stack) > maxDepth {
			return fmt.Errorf("%w: nests deeper than %d", ErrMalformed, maxDepth)
		}
	}
	return trailing(b)
}

func trailing(b []byte) error {
	if len(b) > 0 {
		return fmt.Errorf("%w: %d bytes after the document", ErrMalformed, len(b))
	}
	return nil
}
