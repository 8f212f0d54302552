package pickle

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
)

// renderer writes a tree as JSON or msgpack, the way a worker writes a result.
type renderer struct {
	*tree
	bounds
	binary  bool
	out     []byte
	exact   bool   // out has room for all
	dropped int    // bytes that were counted and dropped to keep out small
	path    []step // from the root to the container at work
	slots   []uint32
	seed    maphash.Seed
	big     val // the integer that digits are of
	bigText []byte
}

// chunk is the output above which it is first counted, then written into room of just that
// size: a small pickle that expands beyond its bound costs time but no memory.
const chunk = 1 << 20

// step is one container on the way to a value and where in it the value is.
type step struct {
	in    val
	name  []byte // of a member, nil for containers without names
	index int
}

func render(t *tree, root val, binary bool, b bounds) ([]byte, error) {
	r := &renderer{tree: t, bounds: b, binary: binary, seed: maphash.MakeSeed()}
	r.out = make([]byte, 0, min(len(t.src)+len(t.src)/4+16, 2*chunk))
	if err := r.value(root); err != nil {
		return nil, err
	}
	if r.dropped > 0 {
		size := r.dropped + len(r.out)
		r.out, r.exact, r.dropped = nil, true, 0
		r.out = make([]byte, 0, size)
		if err := r.value(root); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

// fail refuses the value at the current place, in a worker's words.
func (r *renderer) fail(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if len(r.path) == 0 {
		return fmt.Errorf("%w: the result %s", ErrNoForm, text)
	}
	var place strings.Builder
	for _, s := range r.path {
		if s.name != nil {
			place.WriteString("." + string(s.name[:min(len(s.name), 1000)]))
		} else {
			place.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
		if place.Len() > 1000 {
			break
		}
	}
	at := place.String()
	return fmt.Errorf("%w: the result at value%s %s", ErrNoForm, strings.ToValidUTF8(at[:min(len(at), 1000)], ""), text)
}

func (r *renderer) format() string {
	if r.binary {
		return "msgpack"
	}
	return "JSON"
}

// enter goes into a container; the caller leaves it with r.leave.
func (r *renderer) enter(v val) error {
	if len(r.path) >= r.depth {
		for _, s := range r.path {
			if s.in == v && v != (val{}) {
				return r.fail("contains itself")
			}
		}
		return r.fail("is nested deeper than %d levels", r.depth)
	}
	r.path = append(r.path, step{in: v})
	return nil
}

func (r *renderer) leave() { r.path = r.path[:len(r.path)-1] }

func (r *renderer) value(v val) error {
	if len(r.out) > chunk && !r.exact {
		r.dropped += len(r.out)
		r.out = r.out[:0]
	}
	var err error
	switch v.kind() {
	case kindList, kindTuple, kindSet:
		if err = r.enter(v); err == nil {
			err = r.array(r.items(v))
			r.leave()
		}
	case kindDict:
		if err = r.enter(v); err == nil {
			err = r.mapping(r.items(v))
			r.leave()
		}
	case kindObject:
		return r.object(v)
	case kindGlobal:
		return r.fail("is the class or function %s, which has no %s form", r.globals[v.bits].name, r.format())
	case kindBroken:
		return r.fail("is a string with a lone surrogate, which is not Unicode text")
	default:
		err = r.leaf(v)
	}
	if err == nil && r.dropped+len(r.out) > r.output {
		err = fmt.Errorf("%w: it expands to more than %d bytes", ErrTooLarge, r.output)
	}
	return err
}

func (r *renderer) array(items []val) error {
	if r.binary {
		r.out = appendHeader(r.out, len(items), 0x90, 15, 0xdc)
		for i, item := range items {
			r.path[len(r.path)-1].index = i
			if err := r.value(item); err != nil {
				return err
			}
		}
		return nil
	}
	r.out = append(r.out, '[')
	for i, item := range items {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		r.path[len(r.path)-1].index = i
		if err := r.value(item); err != nil {
			return err
		}
	}
	r.out = append(r.out, ']')
	return nil
}

// mapping writes keys and values that alternate.
func (r *renderer) mapping(items []val) error {
	if err := r.checkKeys(items); err != nil {
		return err
	}
	r.open(len(items) / 2)
	for i := 0; i < len(items); i += 2 {
		key, err := r.keyText(items[i])
		if err != nil {
			return err
		}
		if err := r.member(i == 0, key, items[i+1]); err != nil {
			return err
		}
	}
	r.close()
	return nil
}

func (r *renderer) open(members int) {
	if r.binary {
		r.out = appendHeader(r.out, members, 0x80, 15, 0xde)
	} else {
		r.out = append(r.out, '{')
	}
}

func (r *renderer) close() {
	if !r.binary {
		r.out = append(r.out, '}')
	}
}

// name writes the name of a member.
func (r *renderer) name(first bool, name []byte) {
	if r.binary {
		r.out = appendMsgpackString(r.out, name)
		return
	}
	if !first {
		r.out = append(r.out, ',')
	}
	r.out = append(appendString(r.out, name), ':')
}

func (r *renderer) member(first bool, name []byte, v val) error {
	r.name(first, name)
	r.path[len(r.path)-1].name = name
	return r.value(v)
}

// keyText is the text of a key: a string or an integer, as a worker has it.
func (r *renderer) keyText(v val) ([]byte, error) {
	switch v.kind() {
	case kindStr:
		return r.text(v), nil
	case kindInt:
		return strconv.AppendInt(nil, int64(v.bits), 10), nil
	case kindBig:
		if b := r.text(v); r.binary && !fitsUnsigned(b) {
			return nil, r.fail("has an integer key that does not fit in 64 bits, which msgpack cannot carry")
		}
		return r.digits(v)
	case kindObject:
		if o := r.objects[v.bits]; o.hasValue {
			return r.text(o.value), nil
		}
	case kindBroken:
		return nil, r.fail("has a key with a lone surrogate, which is not Unicode text")
	default: // no text
	}
	return nil, r.fail("has a key of type %s, which cannot be a string", r.typeName(v))
}

func (r *renderer) digits(v val) ([]byte, error) {
	if v == r.big {
		return r.bigText, nil
	}
	if b := r.text(v); len(b) <= maxIntBytes {
		text := bigInt(b).Append(nil, 10)
		if len(bytes.TrimPrefix(text, []byte{'-'})) <= maxIntDigits {
			r.big, r.bigText = v, text
			return text, nil
		}
	}
	return nil, r.fail("is an integer of more than %d digits", maxIntDigits)
}

// checkKeys refuses a key that has no text, and two of the same text.
func (r *renderer) checkKeys(items []val) error {
	n := len(items) / 2
	size := 16
	for size < 2*n {
		size *= 2
	}
	if size > len(r.slots) {
		if err := r.charge(4 * (size - len(r.slots))); err != nil {
			return err
		}
		r.slots = make([]uint32, size)
	}
	slots := r.slots[:size]
	clear(slots)
	for i := range n {
		key, err := r.keyText(items[2*i])
		if err != nil {
			return err
		}
		at := maphash.Bytes(r.seed, key) & uint64(size-1)
		for ; slots[at] != 0; at = (at + 1) & uint64(size-1) {
			other, err := r.keyText(items[2*(slots[at]-1)])
			if err != nil {
				return err
			}
			if bytes.Equal(key, other) {
				return r.fail("has a second key of the text %.100q", key)
			}
		}
		slots[at] = uint32(i + 1)
	}
	return nil
}
