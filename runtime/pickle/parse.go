package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
)

// parser is a pickle machine that only builds data.
type parser struct {
	*tree
	pos   int // of the next byte
	op    int // position of the opcode at work, for errors
	stack []val
	marks []int // heights of the stack, ascending
	memo  []val
}

// unset is a memo entry that nothing was put in.
var unset = val{meta: 0xff}

// parse decodes one pickle, which must fill data.
func parse(data []byte, b bounds) (*tree, val, error) {
	if len(data) > b.input {
		return nil, val{}, fmt.Errorf("%w: %d bytes of at most %d", ErrTooLarge, len(data), b.input)
	}
	p := &parser{tree: newTree(data, b)}
	for {
		if p.pos >= len(data) {
			p.op = p.pos
			return nil, val{}, p.malformed("it ends before STOP")
		}
		p.op = p.pos
		op := data[p.pos]
		p.pos++
		if op == opStop {
			break
		}
		if err := p.step(op); err != nil {
			return nil, val{}, err
		}
	}
	if len(p.stack) != 1 || len(p.marks) != 0 {
		return nil, val{}, p.malformed("STOP with %d values on the stack", len(p.stack))
	}
	if p.pos != len(data) {
		return nil, val{}, p.malformed("%d bytes after STOP", len(data)-p.pos)
	}
	return p.tree, p.stack[0], nil
}

func (p *parser) malformed(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrMalformed, p.op, fmt.Sprintf(format, args...))
}

// step does one opcode. The frequent ones come first, the rest by their groups.
func (p *parser) step(op byte) error {
	switch op {
	case opBinInt1, opBinInt2, opBinInt, opLong1, opLong4, opBinFloat:
		return p.number(op)
	case opNone:
		return p.push(val{})
	case opNewTrue, opNewFalse:
		return p.push(makeBool(op == opNewTrue))
	case opShortBinUnicode, opBinUnicode, opBinUnicode8, opShortBinBytes, opBinBytes, opBinBytes8,
		opByteArray8, opShortBinString, opBinString:
		return p.counted(op)
	case opMemoize, opBinPut, opLongBinPut, opPut, opBinGet, opLongBinGet, opGet:
		return p.remember(op)
	case opEmptyList, opEmptyDict, opEmptyTuple, opEmptySet:
		return p.empty(op)
	case opTuple1, opTuple2, opTuple3, opTuple, opList, opDict, opFrozenSet:
		return p.collect(op)
	case opAppend, opAppends, opSetItem, opSetItems, opAddItems:
		return p.fill(op)
	case opMark, opPop, opPopMark, opDup:
		return p.shuffle(op)
	case opGlobal, opStackGlobal, opReduce, opNewObj, opNewObjEx, opBuild, opInst, opObj:
		return p.instance(op)
	case opInt, opLong, opFloat, opString, opUnicode:
		return p.line(op)
	case opProto:
		b, err := p.take(1)
		if err == nil && b[0] > highestProtocol {
			return p.malformed("protocol %d", b[0])
		}
		return err
	case opFrame:
		n, err := p.length(8)
		if err == nil && n > len(p.src)-p.pos {
			return p.malformed("a frame of %d bytes where %d remain", n, len(p.src)-p.pos)
		}
		return err
	}
	return p.refused(op)
}

// refused explains an opcode that is not read.
func (p *parser) refused(op byte) error {
	switch op {
	case opExt1, opExt2, opExt4:
		return fmt.Errorf("%w: the pickle uses the extension registry", ErrNoForm)
	case opPersID, opBinPersID:
		return fmt.Errorf("%w: the pickle has a persistent id", ErrNoForm)
	case opNextBuffer, opReadonlyBuffer:
		return fmt.Errorf("%w: the pickle has out-of-band buffers", ErrNoForm)
	}
	return p.malformed("opcode 0x%02x", op)
}

// take returns the next n bytes.
func (p *parser) take(n int) ([]byte, error) {
	if n > len(p.src)-p.pos {
		return nil, p.malformed("%d bytes wanted where %d remain", n, len(p.src)-p.pos)
	}
	b := p.src[p.pos : p.pos+n : p.pos+n]
	p.pos += n
	return b, nil
}

// length reads a little-endian count of size bytes; one over the input's size is malformed.
func (p *parser) length(size int) (int, error) {
	b, err := p.take(size)
	if err != nil {
		return 0, err
	}
	var n uint64
	switch size {
	case 1:
		n = uint64(b[0])
	case 4:
		n = uint64(binary.LittleEndian.Uint32(b))
	case 8:
		n = binary.LittleEndian.Uint64(b)
	}
	if n > uint64(len(p.src)) {
		return 0, p.malformed("a length of %d in a pickle of %d bytes", n, len(p.src))
	}
	return int(n), nil
}

func (p *parser) push(v val) error {
	if len(p.stack) == cap(p.stack) {
		bigger, err := p.grow(p.stack, []val{v})
		if err != nil {
			return err
		}
		p.stack = bigger
		return nil
	}
	p.stack = append(p.stack, v)
	return nil
}

// pushed pushes the result of a constructor.
func (p *parser) pushed(v val, err error) error {
	if err != nil {
		return err
	}
	return p.push(v)
}

// floor is the height below which nothing may be taken: the last mark.
func (p *parser) floor() int {
	if n := len(p.marks); n > 0 {
		return p.marks[n-1]
	}
	return 0
}

// popN takes n values; the slice is valid until the next push.
func (p *parser) popN(n int) ([]val, error) {
	rest := len(p.stack) - n
	if rest < p.floor() {
		return nil, p.malformed("the stack is empty")
	}
	items := p.stack[rest:]
	p.stack = p.stack[:rest]
	return items, nil
}

func (p *parser) pop() (val, error) {
	items, err := p.popN(1)
	if err != nil {
		return val{}, err
	}
	return items[0], nil
}

// top returns the value on the stack without taking it.
func (p *parser) top() (val, error) {
	if len(p.stack) <= p.floor() {
		return val{}, p.malformed("the stack is empty")
	}
	return p.stack[len(p.stack)-1], nil
}

// popMark takes all values above the last mark, and the mark.
func (p *parser) popMark() ([]val, error) {
	n := len(p.marks)
	if n == 0 {
		return nil, p.malformed("no mark on the stack")
	}
	height := p.marks[n-1]
	p.marks = p.marks[:n-1]
	items := p.stack[height:]
	p.stack = p.stack[:height]
	return items, nil
}

func (p *parser) number(op byte) error {
	size := 0
	switch op {
	case opBinInt1:
		size = 1
	case opBinInt2:
		size = 2
	case opBinInt:
		size = 4
	case opBinFloat:
		size = 8
	case opLong1, opLong4:
		width := 1
		if op == opLong4 {
			width = 4
		}
		n, err := p.length(width)
		if err != nil {
			return err
		}
		size = n
	}
	b, err := p.take(size)
	if err != nil {
		return err
	}
	switch op {
	case opBinInt1:
		return p.push(makeInt(int64(b[0])))
	case opBinInt2:
		return p.push(makeInt(int64(binary.LittleEndian.Uint16(b))))
	case opBinInt:
		return p.push(makeInt(int64(int32(binary.LittleEndian.Uint32(b)))))
	case opBinFloat:
		return p.push(val{uint64(kindFloat), binary.BigEndian.Uint64(b)})
	}
	return p.push(integer(b, p.pos-size))
}

// makeFloat is a val of kindFloat.
func makeFloat(f float64) val { return val{uint64(kindFloat), math.Float64bits(f)} }

// counted reads a text that follows its length.
func (p *parser) counted(op byte) error {
	size, k := 1, kindStr
	switch op {
	case opBinUnicode, opBinBytes, opBinString:
		size = 4
	case opBinUnicode8, opBinBytes8, opByteArray8:
		size = 8
	}
	switch op {
	case opShortBinBytes, opBinBytes, opBinBytes8, opByteArray8:
		k = kindBytes
	}
	n, err := p.length(size)
	if err != nil {
		return err
	}
	b, err := p.take(n)
	if err != nil {
		return err
	}
	if k == kindStr {
		if k = textKind(b); k == kindNone {
			return p.malformed("a string is not UTF-8")
		}
		if op == opShortBinString || op == opBinString {
			if !isASCII(b) { // what Python 3 says, too
				return p.malformed("a Python 2 string is not ASCII")
			}
		}
	}
	return p.push(textAt(k, p.pos-n, n))
}

func (p *parser) shuffle(op byte) error {
	switch op {
	case opMark:
		if len(p.marks) == cap(p.marks) {
			if err := p.charge(8 * max(len(p.marks), 8)); err != nil {
				return err
			}
		}
		p.marks = append(p.marks, len(p.stack))
		return nil
	case opPopMark:
		_, err := p.popMark()
		return err
	case opDup:
		v, err := p.top()
		return p.pushed(v, err)
	}
	if n := len(p.marks); n > 0 && p.marks[n-1] == len(p.stack) { // POP takes a mark, too
		p.marks = p.marks[:n-1]
		return nil
	}
	_, err := p.pop()
	return err
}

// remember puts into the memo or gets out of it.
func (p *parser) remember(op byte) error {
	index := len(p.memo)
	if op != opMemoize {
		n, err := p.memoIndex(op)
		if err != nil {
			return err
		}
		index = n
	}
	if op == opBinGet || op == opLongBinGet || op == opGet {
		if index >= len(p.memo) || p.memo[index] == unset {
			return p.malformed("nothing in the memo at %d", index)
		}
		return p.push(p.memo[index])
	}
	v, err := p.top()
	if err != nil {
		return err
	}
	if index > p.pos { // each entry took a byte at least
		return fmt.Errorf("%w: memo index %d at byte %d", ErrTooLarge, index, p.pos)
	}
	for len(p.memo) <= index {
		if p.memo, err = p.grow(p.memo, []val{unset}); err != nil {
			return err
		}
	}
	p.memo[index] = v
	return nil
}

func (p *parser) memoIndex(op byte) (int, error) {
	switch op {
	case opPut, opGet:
		return p.decimalLine()
	case opBinPut, opBinGet:
		b, err := p.take(1)
		if err != nil {
			return 0, err
		}
		return int(b[0]), nil
	}
	b, err := p.take(4)
	if err != nil {
		return 0, err
	}
	return int(binary.LittleEndian.Uint32(b)), nil
}
