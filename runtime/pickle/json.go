package pickle

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// scanner reads one JSON text into a tree.
type scanner struct {
	*tree
	what  string // "args" or "kwargs"
	pos   int
	end   int // the text is src[pos:end]
	depth int
	stack []val
	keys  map[string]val
}

// fromJSON does FromJSON within bounds.
func fromJSON(args, kwargs string, b bounds) ([]byte, error) {
	if len(args)+len(kwargs) > b.input {
		return nil, fmt.Errorf("%w: arguments of %d bytes, of at most %d", ErrTooLarge, len(args)+len(kwargs), b.input)
	}
	t := newTree([]byte(args+kwargs), b)
	list, err := t.newList(kindList, nil)
	if err == nil && args != "" {
		s := &scanner{tree: t, what: "args", end: len(args), depth: b.depth + 1, keys: map[string]val{}}
		list, err = s.document(kindList, "array")
	}
	if err != nil {
		return nil, err
	}
	dict, err := t.newList(kindDict, nil)
	if err == nil && kwargs != "" {
		s := &scanner{tree: t, what: "kwargs", pos: len(args), end: len(t.src), depth: b.depth + 1, keys: map[string]val{}}
		dict, err = s.document(kindDict, "object")
	}
	if err != nil {
		return nil, err
	}
	return writePair(t, list, dict, b)
}

// writePair writes (tuple(list), dict).
func writePair(t *tree, list, dict val, b bounds) ([]byte, error) {
	w := newWriter(t, b.output)
	list.meta = uint64(kindTuple)
	pair, err := t.newList(kindTuple, []val{list, dict})
	if err == nil {
		err = w.value(pair)
	}
	if err != nil {
		return nil, err
	}
	return w.finish()
}

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrArguments, s.what, fmt.Sprintf(format, args...))
}

// document reads the whole text, which must be a container of that kind.
func (s *scanner) document(k kind, name string) (val, error) {
	start := s.pos
	if !utf8.Valid(s.src[s.pos:s.end]) {
		return val{}, s.fail("not UTF-8")
	}
	v, err := s.value()
	if err != nil {
		return val{}, err
	}
	if s.space(); s.pos < s.end {
		return val{}, s.fail("text after the value at byte %d", s.pos-start)
	}
	if v.kind() != k {
		return val{}, s.fail("not a JSON %s", name)
	}
	return v, nil
}

func (s *scanner) space() {
	for s.pos < s.end {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// next skips space and returns the next byte without taking it, 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if s.pos < s.end {
		return s.src[s.pos]
	}
	return 0
}

func (s *scanner) value() (val, error) {
	switch c := s.next(); c {
	case '{', '[':
		if s.depth--; s.depth < 0 {
			return val{}, s.fail("an argument is nested deeper than the limit")
		}
		s.pos++
		height := len(s.stack)
		var v val
		var err error
		if c == '[' {
			v, err = s.array(height)
		} else {
			v, err = s.object(height)
		}
		s.stack = s.stack[:height]
		s.depth++
		return v, err
	case '"':
		return s.string()
	case 't':
		return makeBool(true), s.word("true")
	case 'f':
		return makeBool(false), s.word("false")
	case 'n':
		return val{}, s.word("null")
	}
	return s.number()
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.src[s.pos:s.end], []byte(w)) {
		return s.fail("not JSON at byte %d", s.pos)
	}
	s.pos += len(w)
	return nil
}

// keep puts a value on the scratch stack of containers being read.
func (s *scanner) keep(v val) (err error) {
	s.stack, err = s.grow(s.stack, []val{v})
	return err
}

func (s *scanner) array(height int) (val, error) {
	if s.next() == ']' {
		s.pos++
		return s.newList(kindList, nil)
	}
	for {
		v, err := s.value()
		if err == nil {
			err = s.keep(v)
		}
		if err != nil {
			return val{}, err
		}
		c := s.next()
		s.pos++
		if c == ']' {
			return s.newList(kindList, s.stack[height:])
		}
		if c != ',' {
			return val{}, s.fail("an array without an end at byte %d", s.pos-1)
		}
	}
}

func (s *scanner) object(height int) (val, error) {
	if s.next() == '}' {
		s.pos++
		return s.newList(kindDict, nil)
	}
	for {
		if s.next() != '"' {
			return val{}, s.fail("an object without a key at byte %d", s.pos)
		}
		key, err := s.string()
		if err == nil {
			key, err = s.intern(key, s.keys)
		}
		if err == nil && s.next() != ':' {
			err = s.fail("a key without a value at byte %d", s.pos)
		}
		if err != nil {
			return val{}, err
		}
		s.pos++
		v, err := s.value()
		if err == nil {
			err = s.keep(key)
		}
		if err == nil {
			err = s.keep(v)
		}
		if err != nil {
			return val{}, err
		}
		c := s.next()
		s.pos++
		if c == '}' {
			return s.newList(kindDict, lastWins(s.stack[height:]))
		}
		if c != ',' {
			return val{}, s.fail("an object without an end at byte %d", s.pos-1)
		}
	}
}

// intern returns the first key of that text.
func (t *tree) intern(key val, keys map[string]val) (val, error) {
	text := t.text(key)
	if first, ok := keys[string(text)]; ok {
		return first, nil
	}
	keys[string(text)] = key
	return key, t.charge(64 + len(text))
}

// lastWins drops the earlier values of keys that come again; the first place stays. Equal
// keys are the same val.
func lastWins(items []val) []val {
	n := 0
	if len(items) <= 16 {
		for i := 0; i < len(items); i += 2 {
			at := 0
			for at < n && items[at] != items[i] {
				at += 2
			}
			items[at], items[at+1] = items[i], items[i+1]
			n = max(n, at+2)
		}
		return items[:n]
	}
	places := make(map[val]int, len(items)/2)
	for i := 0; i < len(items); i += 2 {
		at, again := places[items[i]]
		if !again {
			at = n
			n += 2
			places[items[i]] = at
		}
		items[at], items[at+1] = items[i], items[i+1]
	}
	return items[:n]
}

// number reads a number: an int, or a float if it has a point or an exponent.
func (s *scanner) number() (val, error) {
	start, isFloat := s.pos, false
	s.accept("-")
	if !s.accept("0") && s.digits() == 0 {
		return val{}, s.fail("not JSON at byte %d", start)
	}
	if s.accept(".") {
		if isFloat = true; s.digits() == 0 {
			return val{}, s.fail("a number without an end at byte %d", s.pos)
		}
	}
	if s.accept("eE") {
		isFloat = true
		s.accept("+-")
		if s.digits() == 0 {
			return val{}, s.fail("a number without an end at byte %d", s.pos)
		}
	}
	text := s.src[start:s.pos]
	if isFloat {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil || math.IsInf(f, 0) {
			return val{}, s.fail("number %.40s is out of range", text)
		}
		return makeFloat(f), nil
	}
	if len(bytes.TrimPrefix(text, []byte{'-'})) > maxIntDigits {
		return val{}, s.fail("an integer of more than %d digits", maxIntDigits)
	}
	return s.newInt(string(text))
}

func (s *scanner) accept(set string) bool {
	if s.pos < s.end && bytes.IndexByte([]byte(set), s.src[s.pos]) >= 0 {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) digits() (n int) {
	for s.pos < s.end && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
		s.pos++
		n++
	}
	return n
}
