package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// unpacker reads a msgpack document into a tree.
type unpacker struct {
	*tree
	pos   int
	depth int
	keys  [2]map[string]val // of strings, of binaries
}

// fromMsgpack does FromMsgpack within bounds.
func fromMsgpack(data []byte, b bounds) ([]byte, error) {
	if len(data) > b.input {
		return nil, fmt.Errorf("%w: arguments of %d bytes, of at most %d", ErrTooLarge, len(data), b.input)
	}
	u := &unpacker{
		tree: newTree(data, b), depth: b.depth + 2,
		keys: [2]map[string]val{{}, {}},
	}
	pair, err := u.value()
	if err != nil {
		return nil, err
	}
	if u.pos != len(data) {
		return nil, u.fail("%d bytes after the document", len(data)-u.pos)
	}
	if pair.kind() != kindList || len(u.items(pair)) != 2 {
		return nil, u.fail("not a pair [args, kwargs]")
	}
	list, dict := u.items(pair)[0], u.items(pair)[1]
	if list.kind() != kindList || dict.kind() != kindDict {
		return nil, u.fail("not a pair [args, kwargs]")
	}
	for i, key := range u.items(dict) {
		if i%2 == 0 && key.kind() != kindStr {
			return nil, u.fail("a keyword that is no string")
		}
	}
	return writePair(u.tree, list, dict, b)
}

func (u *unpacker) fail(format string, args ...any) error {
	return fmt.Errorf("%w: msgpack: %s", ErrArguments, fmt.Sprintf(format, args...))
}

// uint reads a big-endian number of size bytes.
func (u *unpacker) uint(size int) (uint64, error) {
	if size > len(u.src)-u.pos {
		return 0, u.fail("it ends too early")
	}
	var n uint64
	for _, c := range u.src[u.pos : u.pos+size] {
		n = n<<8 | uint64(c)
	}
	u.pos += size
	return n, nil
}

func (u *unpacker) value() (val, error) {
	head, err := u.uint(1)
	if err != nil {
		return val{}, err
	}
	switch c := byte(head); {
	case c <= 0x7f, c >= 0xe0:
		return makeInt(int64(int8(c))), nil
	case c <= 0x8f:
		return u.container(kindDict, uint64(c&0x0f))
	case c <= 0x9f:
		return u.container(kindList, uint64(c&0x0f))
	case c <= 0xbf:
		return u.blob(kindStr, uint64(c&0x1f))
	case c == 0xc0:
		return val{}, nil
	case c == 0xc2, c == 0xc3:
		return makeBool(c == 0xc3), nil
	default:
		return u.sized(c)
	}
}

// sized reads what has a number after its first byte.
func (u *unpacker) sized(c byte) (val, error) {
	var size int
	switch c {
	case 0xc4, 0xd9, 0xcc, 0xd0:
		size = 1
	case 0xc5, 0xda, 0xcd, 0xd1, 0xdc, 0xde:
		size = 2
	case 0xc6, 0xdb, 0xce, 0xd2, 0xdd, 0xdf, 0xca:
		size = 4
	case 0xcf, 0xd3, 0xcb:
		size = 8
	case 0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return val{}, u.fail("an extension, which has no pickle")
	default:
		return val{}, u.fail("byte 0x%02x", c)
	}
	n, err := u.uint(size)
	if err != nil {
		return val{}, err
	}
	switch c {
	case 0xc4, 0xc5, 0xc6:
		return u.blob(kindBytes, n)
	case 0xd9, 0xda, 0xdb:
		return u.blob(kindStr, n)
	case 0xdc, 0xdd:
		return u.container(kindList, n)
	case 0xde, 0xdf:
		return u.container(kindDict, n)
	case 0xca:
		return makeFloat(float64(math.Float32frombits(uint32(n)))), nil
	case 0xcb:
		return val{uint64(kindFloat), n}, nil
	case 0xd0:
		return makeInt(int64(int8(n))), nil
	case 0xd1:
		return makeInt(int64(int16(n))), nil
	case 0xd2:
		return makeInt(int64(int32(n))), nil
	case 0xcf:
		if n > math.MaxInt64 {
			return u.newText(kindBig, append(binary.LittleEndian.AppendUint64(nil, n), 0))
		}
	}
	return makeInt(int64(n)), nil
}

func (u *unpacker) blob(k kind, n uint64) (val, error) {
	if n > uint64(len(u.src)-u.pos) {
		return val{}, u.fail("it ends too early")
	}
	v := textAt(k, u.pos, int(n))
	u.pos += int(n)
	if k == kindStr && !utf8.Valid(u.text(v)) {
		return val{}, u.fail("a string is not UTF-8")
	}
	return v, nil
}

// container reads n elements or n pairs, each of which takes a byte at least.
func (u *unpacker) container(k kind, n uint64) (val, error) {
	if k == kindDict {
		n *= 2
	}
	if n > uint64(len(u.src)-u.pos) {
		return val{}, u.fail("it ends too early")
	}
	if u.depth--; u.depth < 0 {
		return val{}, u.fail("an argument is nested deeper than the limit")
	}
	if err := u.charge(sizeList + sizeVal*int(n)); err != nil {
		return val{}, err
	}
	items := make([]val, n)
	for i := range items {
		v, err := u.value()
		if err == nil && k == kindDict && i%2 == 0 {
			v, err = u.key(v)
		}
		if err != nil {
			return val{}, err
		}
		items[i] = v
	}
	u.depth++
	if k == kindDict {
		items = lastWins(items)
	}
	u.lists = append(u.lists, items)
	return val{uint64(k), uint64(len(u.lists) - 1)}, nil
}

func (u *unpacker) key(v val) (val, error) {
	switch v.kind() {
	case kindStr:
		return u.intern(v, u.keys[0])
	case kindBytes:
		return u.intern(v, u.keys[1])
	default:
		return val{}, u.fail("a map key is not a string")
	}
}
