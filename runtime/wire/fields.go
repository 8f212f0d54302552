package wire

import (
	"encoding/binary"
	"fmt"
)

// Fields checks b, which must be one map, and calls visit with each key and the raw
// msgpack of its value, a part of b. It copies nothing, so large values cost nothing.
func Fields(b []byte, visit func(key string, raw []byte)) error {
	if err := Check(b, maxPayloadDepth); err != nil {
		return err
	}
	if !IsMap(b) {
		return fmt.Errorf("%w: not a map", ErrMalformed)
	}
	t, rest, err := nextToken(b)
	if err != nil {
		return err
	}
	for range t.count {
		key, afterKey, err := nextToken(rest)
		if err != nil {
			return err
		}
		end, err := skip(afterKey)
		if err != nil {
			return err
		}
		n := len(afterKey) - len(end)
		visit(string(key.data), afterKey[:n:n])
		rest = end
	}
	return nil
}

// Peek is Fields for a map of which only the beginning is there, or that is not well-formed:
// it visits the members that are whole, up to the first that is not.
func Peek(b []byte, visit func(key string, raw []byte)) {
	t, rest, err := nextToken(b)
	if err != nil || t.kind != tokenMap {
		return
	}
	for range t.count {
		key, afterKey, err := nextToken(rest)
		if err != nil || key.kind != tokenStr && key.kind != tokenBin {
			return
		}
		end, err := skip(afterKey)
		if err != nil {
			return
		}
		n := len(afterKey) - len(end)
		visit(string(key.data), afterKey[:n:n])
		rest = end
	}
}

// skip returns what follows the value at the front of b.
func skip(b []byte) ([]byte, error) {
	for left := 1; left > 0; left-- {
		t, rest, err := nextToken(b)
		if err != nil {
			return nil, err
		}
		left += t.values() // 0 for a scalar
		b = rest
	}
	return b, nil
}

// Text returns the string of raw; ok is false if raw is not a str.
func Text(raw []byte) (s string, ok bool) {
	t, _, err := nextToken(raw)
	if err != nil || t.kind != tokenStr {
		return "", false
	}
	return string(t.data), true
}

// Blob returns the bytes of raw, a part of it; ok is false if raw is neither bin nor str.
func Blob(raw []byte) (b []byte, ok bool) {
	t, _, err := nextToken(raw)
	if err != nil || t.kind != tokenBin && t.kind != tokenStr {
		return nil, false
	}
	return t.data, true
}

// Int returns the integer of raw; ok is false if raw is not one, or over 2^63-1.
func Int(raw []byte) (n int64, ok bool) {
	t, _, err := nextToken(raw)
	switch {
	case err != nil:
		return 0, false
	case t.kind == tokenInt:
		return t.i, true
	case t.kind == tokenUint && t.u < 1<<63:
		return int64(t.u), true
	}
	return 0, false
}

// Float returns the number of raw as a float; ok is false if raw is not a number.
func Float(raw []byte) (f float64, ok bool) {
	t, _, err := nextToken(raw)
	switch {
	case err != nil:
		return 0, false
	case t.kind == tokenFloat:
		return t.f, true
	case t.kind == tokenUint:
		return float64(t.u), true
	}
	n, ok := Int(raw)
	return float64(n), ok
}

// BinHead is the head of a bin value of n bytes, for a document written in parts.
func BinHead(n int) []byte {
	switch {
	case n < 1<<8:
		return []byte{0xc4, byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{0xc5}, uint16(n))
	}
	return binary.BigEndian.AppendUint32([]byte{0xc6}, uint32(n))
}

// IsBin reports whether raw begins like a bin value.
func IsBin(raw []byte) bool { return len(raw) > 0 && raw[0] >= 0xc4 && raw[0] <= 0xc6 }

// WithoutType takes the field "type", which must come first, off a well-formed small map. It
// works in place, for bodies of any size: b is not to be used any more. ok is false, and b as
// it was, if b is not of that form.
func WithoutType(b []byte) (rest []byte, ok bool) {
	if len(b) == 0 || b[0]&0xf0 != 0x80 || b[0] == 0x80 {
		return nil, false
	}
	key, after, err := nextToken(b[1:])
	if err != nil || key.kind != tokenStr || string(key.data) != "type" {
		return nil, false
	}
	if after, err = skip(after); err != nil {
		return nil, false
	}
	at := len(b) - len(after) - 1
	b[at] = b[0] - 1
	return b[at:], true
}

// ValidCallID reports whether id is [a-z0-9-]{1,63}, as the daemon's ids are.
func ValidCallID(id string) bool {
	if id == "" || len(id) > MaxCallIDBytes {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
