package pickle

import (
	"encoding/binary"
	"fmt"
)

// kind is what a val is.
type kind uint8

const (
	kindNone   kind = iota
	kindBool        // bits is 0 or 1
	kindInt         // bits is an int64
	kindBig         // text is a two's complement integer, little-endian
	kindFloat       // bits is a float64
	kindStr         // text is UTF-8
	kindBroken      // text is a string with lone surrogates
	kindBytes       // text is the bytes
	kindList        // bits is an index in lists
	kindTuple       // the same
	kindSet         // the same
	kindDict        // the same; keys and values alternate
	kindGlobal      // bits is an index in globals
	kindObject      // bits is an index in objects
)

// val is one value. It holds no pointer, so that trees of millions of them cost the
// garbage collector nothing, and it may be shared freely.
type val struct {
	meta uint64 // the kind in the low byte, the length of a text above it
	bits uint64
}

const (
	sizeVal    = 16
	sizeList   = 24
	sizeGlobal = 64
	sizeObject = 160
	sideBit    = 1 << 63 // of bits: the text is in tree.side
)

func (v val) kind() kind { return kind(v.meta & 0xff) }

// isNested tells whether v is a list, tuple, set or dict.
func (v val) isNested() bool { return v.kind() >= kindList && v.kind() <= kindDict }

func makeBool(b bool) val {
	if b {
		return val{uint64(kindBool), 1}
	}
	return val{uint64(kindBool), 0}
}

func makeInt(i int64) val { return val{uint64(kindInt), uint64(i)} }

// global is a reference to a class or function by name; it is never resolved.
type global struct {
	name  string // "module.qualname", Python 2 module names translated
	known known
}

// object is an instance of a class, as far as a pickle tells.
type object struct {
	class    uint32 // index in globals
	known    known
	hasState bool
	hasValue bool
	value    val // what it stands for, for a known class
	args     val // a tuple, or None
	kwargs   val // a dict, or None
	state    val
	items    []val // appended to it
	pairs    []val // set in it; keys and values alternate
}

// tree holds the parts of decoded values.
type tree struct {
	src     []byte // the input, which texts refer to
	side    []byte // texts that are not a part of the input
	lists   [][]val
	globals []global
	objects []object
	left    int // bytes of the memory budget that remain
	budget  int
}

func newTree(src []byte, b bounds) *tree {
	return &tree{src: src, left: b.memory, budget: b.memory}
}

// charge takes n bytes from the memory budget.
func (t *tree) charge(n int) error {
	if t.left -= n; t.left < 0 {
		return fmt.Errorf("%w: it decodes to more than %d bytes of memory", ErrTooLarge, t.budget)
	}
	return nil
}

// text returns the bytes of a val whose kind has a text.
func (t *tree) text(v val) []byte {
	n := v.meta >> 8
	if v.bits&sideBit != 0 {
		off := v.bits &^ sideBit
		return t.side[off : off+n : off+n]
	}
	return t.src[v.bits : v.bits+n : v.bits+n]
}

// textAt is the text src[off:off+n].
func textAt(k kind, off, n int) val {
	return val{uint64(k) | uint64(n)<<8, uint64(off)}
}

// newText keeps a copy of b.
func (t *tree) newText(k kind, b []byte) (val, error) {
	if err := t.charge(len(b)); err != nil {
		return val{}, err
	}
	off := len(t.side)
	t.side = append(t.side, b...)
	return val{uint64(k) | uint64(len(b))<<8, uint64(off) | sideBit}, nil
}

// newList makes a container of kind k of a copy of items.
func (t *tree) newList(k kind, items []val) (val, error) {
	if err := t.charge(sizeList + sizeVal*len(items)); err != nil {
		return val{}, err
	}
	var own []val
	if len(items) > 0 {
		own = make([]val, len(items))
		copy(own, items)
	}
	t.lists = append(t.lists, own)
	return val{uint64(k), uint64(len(t.lists) - 1)}, nil
}

// items returns the elements of a val for which isNested holds.
func (t *tree) items(v val) []val { return t.lists[v.bits] }

// grow appends items to list within the budget.
func (t *tree) grow(list, items []val) ([]val, error) {
	if need := len(list) + len(items); need > cap(list) {
		size := need
		if len(list) > 0 {
			size = max(need, len(list)+len(list)/2, 4)
		}
		if err := t.charge(sizeVal * (size - cap(list))); err != nil {
			return nil, err
		}
		bigger := make([]val, len(list), size)
		copy(bigger, list)
		list = bigger
	}
	return append(list, items...), nil
}

// integer returns the value of little-endian two's complement bytes b, which are at src[off:].
func integer(b []byte, off int) val {
	for len(b) > 8 { // a longer writing than needed
		last, next := b[len(b)-1], b[len(b)-2]
		if (last == 0 && next < 0x80) || (last == 0xff && next >= 0x80) {
			b = b[:len(b)-1]
			continue
		}
		return textAt(kindBig, off, len(b))
	}
	var buf [8]byte
	copy(buf[:], b)
	if len(b) > 0 && b[len(b)-1] >= 0x80 {
		for i := len(b); i < 8; i++ {
			buf[i] = 0xff
		}
	}
	return val{uint64(kindInt), binary.LittleEndian.Uint64(buf[:])}
}
