package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// The framing and batching of CPython's C pickler.
const (
	frameHeader = 9
	frameMin    = 4        // bytes below which a frame gets no header
	frameTarget = 64 << 10 // bytes at which a frame ends, and over which a text has none
	batchSize   = 1000
)

// writer is a pickler of protocol 4 for a tree of plain data.
type writer struct {
	*tree
	out    []byte
	limit  int
	frame  int // where the open frame begins, -1 without one
	memo   uint32
	shared map[val]uint32    // memo index of each dictionary key, which CPython shares
	names  map[string]uint32 // memo index of each interned name
	short  [257]uint32       // memo index + 1 of each string of one character up to U+00FF, and of ""
	single [257]uint32       // the same of bytes
}

func newWriter(t *tree, limit int) *writer {
	return &writer{
		tree: t, limit: limit, frame: -1, out: []byte{opProto, 4},
		shared: map[val]uint32{}, names: map[string]uint32{},
	}
}

// finish ends the pickle and returns it.
func (w *writer) finish() ([]byte, error) {
	w.put(opStop)
	w.commit()
	return w.out, w.check()
}

func (w *writer) check() error {
	if len(w.out) > w.limit {
		return fmt.Errorf("%w: arguments of more than %d bytes", ErrTooLarge, w.limit)
	}
	return nil
}

// put writes bytes into the open frame, opening one if there is none.
func (w *writer) put(b ...byte) {
	if w.frame < 0 {
		w.frame = len(w.out)
		w.out = append(w.out, make([]byte, frameHeader)...)
	}
	w.out = append(w.out, b...)
}

// boundary may end the frame; it comes before each value.
func (w *writer) boundary() {
	if w.frame >= 0 && len(w.out)-w.frame-frameHeader >= frameTarget {
		w.commit()
	}
}

// commit ends the open frame.
func (w *writer) commit() {
	if w.frame < 0 {
		return
	}
	body := w.frame + frameHeader
	if n := len(w.out) - body; n >= frameMin {
		w.out[w.frame] = opFrame
		binary.LittleEndian.PutUint64(w.out[w.frame+1:], uint64(n))
	} else {
		copy(w.out[w.frame:], w.out[body:])
		w.out = w.out[:w.frame+n]
	}
	w.frame = -1
}

// memoize remembers the value just written.
func (w *writer) memoize() uint32 {
	w.put(opMemoize)
	w.memo++
	return w.memo - 1
}

func (w *writer) get(index uint32) {
	if index < 256 {
		w.put(opBinGet, byte(index))
		return
	}
	w.put(binary.LittleEndian.AppendUint32([]byte{opLongBinGet}, index)...)
}

// text writes a text after the opcodes for a length of 1, 4 and 8 bytes; a long one has no frame.
func (w *writer) text(b []byte, op1, op4, op8 byte) {
	var head []byte
	switch n := len(b); {
	case n < 1<<8:
		head = []byte{op1, byte(n)}
	case n <= math.MaxUint32:
		head = binary.LittleEndian.AppendUint32([]byte{op4}, uint32(n))
	default:
		head = binary.LittleEndian.AppendUint64([]byte{op8}, uint64(n))
	}
	if len(b) >= frameTarget {
		w.commit()
		w.out = append(append(w.out, head...), b...)
		return
	}
	w.put(head...)
	w.out = append(w.out, b...)
}

// string writes a string as an object of its own, but "" and single characters up to
// U+00FF exist only once in CPython.
func (w *writer) string(b []byte) uint32 {
	w.boundary()
	slot := singleton(b)
	if slot >= 0 && w.short[slot] > 0 {
		w.get(w.short[slot] - 1)
		return w.short[slot] - 1
	}
	w.text(b, opShortBinUnicode, opBinUnicode, opBinUnicode8)
	index := w.memoize()
	if slot >= 0 {
		w.short[slot] = index + 1
	}
	return index
}

// bytes writes bytes; b"" and single bytes, too, exist only once.
func (w *writer) bytes(b []byte) {
	slot := 256
	if len(b) == 1 {
		slot = int(b[0])
	}
	if len(b) > 1 {
		w.text(b, opShortBinBytes, opBinBytes, opBinBytes8)
		w.memoize()
		return
	}
	if w.single[slot] > 0 {
		w.get(w.single[slot] - 1)
		return
	}
	w.text(b, opShortBinBytes, opBinBytes, opBinBytes8)
	w.single[slot] = w.memoize() + 1
}

// singleton is the index in writer.short of a string, or -1.
func singleton(b []byte) int {
	switch len(b) {
	case 0:
		return 256
	case 1:
		return int(b[0])
	case 2:
		if r, size := utf8.DecodeRune(b); size == 2 && r <= 0xff {
			return int(r)
		}
	}
	return -1
}

// name writes a string that CPython interns: later ones are references to the first.
func (w *writer) name(s string) {
	if index, ok := w.names[s]; ok {
		w.boundary()
		w.get(index)
		return
	}
	w.names[s] = w.string([]byte(s))
}

func (w *writer) int(i int64) {
	switch {
	case i >= 0 && i <= math.MaxUint8:
		w.put(opBinInt1, byte(i))
	case i >= 0 && i <= math.MaxUint16:
		w.put(opBinInt2, byte(i), byte(i>>8))
	case i >= math.MinInt32 && i <= math.MaxInt32:
		w.put(binary.LittleEndian.AppendUint32([]byte{opBinInt}, uint32(i))...)
	default:
		b := binary.LittleEndian.AppendUint64(nil, uint64(i))
		for n := len(b); ; n-- { // drop bytes that only repeat the sign
			if last, next := b[n-1], b[n-2]; (last != 0 || next >= 0x80) && (last != 0xff || next < 0x80) {
				w.put(append([]byte{opLong1, byte(n)}, b[:n]...)...)
				return
			}
		}
	}
}

// value writes any value of a tree of plain data.
func (w *writer) value(v val) error {
	w.boundary()
	switch v.kind() {
	case kindNone:
		w.put(opNone)
	case kindBool:
		w.put(opNewFalse - byte(v.bits))
	case kindInt:
		w.int(int64(v.bits))
	case kindBig:
		b := w.tree.text(v)
		if len(b) < 256 {
			w.put(opLong1, byte(len(b)))
		} else {
			w.put(binary.LittleEndian.AppendUint32([]byte{opLong4}, uint32(len(b)))...)
		}
		w.out = append(w.out, b...)
	case kindFloat:
		w.put(binary.BigEndian.AppendUint64([]byte{opBinFloat}, v.bits)...)
	case kindStr, kindBroken:
		w.string(w.tree.text(v))
	case kindBytes:
		w.bytes(w.tree.text(v))
	case kindList:
		return w.list(w.items(v))
	case kindTuple:
		return w.tuple(w.items(v))
	case kindDict:
		return w.dict(w.items(v))
	default: // not in plain data
	}
	return w.check()
}

func (w *writer) list(items []val) error {
	w.put(opEmptyList)
	w.memoize()
	if len(items) == 1 {
		err := w.value(items[0])
		w.put(opAppend)
		return err
	}
	for len(items) > 0 {
		batch := items[:min(batchSize, len(items))]
		items = items[len(batch):]
		w.put(opMark)
		for _, item := range batch {
			if err := w.value(item); err != nil {
				return err
			}
		}
		w.put(opAppends)
	}
	return nil
}

// tuple writes a tuple, which is never empty within the arguments of a call but as a whole.
func (w *writer) tuple(items []val) error {
	if len(items) == 0 {
		w.put(opEmptyTuple)
		return nil
	}
	if len(items) > 3 {
		w.put(opMark)
	}
	for _, item := range items {
		if err := w.value(item); err != nil {
			return err
		}
	}
	if len(items) > 3 {
		w.put(opTuple)
	} else {
		w.put(opTuple1 + byte(len(items)-1))
	}
	w.memoize()
	return nil
}

func (w *writer) dict(items []val) error {
	w.put(opEmptyDict)
	w.memoize()
	if len(items) == 2 {
		err := w.member(items[0], items[1])
		w.put(opSetItem)
		return err
	}
	if len(items) == 0 {
		return nil
	}
	for full := true; full; { // after a full batch comes another, even an empty one
		batch := items[:min(2*batchSize, len(items))]
		items = items[len(batch):]
		full = len(batch) == 2*batchSize
		w.put(opMark)
		for i := 0; i < len(batch); i += 2 {
			if err := w.member(batch[i], batch[i+1]); err != nil {
				return err
			}
		}
		w.put(opSetItems)
	}
	return nil
}

// member writes a key, which decoders of JSON and msgpack share by its text, and its value.
func (w *writer) member(key, v val) error {
	switch index, ok := w.shared[key]; {
	case key.kind() != kindStr && key.kind() != kindBroken:
		if err := w.value(key); err != nil {
			return err
		}
	case ok:
		w.boundary()
		w.get(index)
	default:
		w.shared[key] = w.string(w.tree.text(key))
	}
	return w.value(v)
}
