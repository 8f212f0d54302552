package pickle

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
)

// leaf writes a value that holds no other.
func (r *renderer) leaf(v val) error {
	if r.binary {
		return r.msgpackLeaf(v)
	}
	switch v.kind() {
	case kindNone:
		r.out = append(r.out, "null"...)
	case kindBool:
		r.out = strconv.AppendBool(r.out, v.bits == 1)
	case kindInt:
		r.out = strconv.AppendInt(r.out, int64(v.bits), 10)
	case kindBig:
		digits, err := r.digits(v)
		if err != nil {
			return err
		}
		r.out = append(r.out, digits...)
	case kindFloat:
		f := math.Float64frombits(v.bits)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return r.fail("is %s, which JSON cannot carry", nonFinite(f))
		}
		r.out = appendFloat(r.out, f)
	case kindStr:
		r.out = appendString(r.out, r.text(v))
	case kindBytes:
		r.out = append(r.out, '"')
		r.out = base64.StdEncoding.AppendEncode(r.out, r.text(v))
		r.out = append(r.out, '"')
	default: // value has no other
	}
	return nil
}

func (r *renderer) msgpackLeaf(v val) error {
	switch v.kind() {
	case kindNone:
		r.out = append(r.out, 0xc0)
	case kindBool:
		r.out = append(r.out, 0xc2+byte(v.bits))
	case kindInt:
		r.out = appendMsgpackInt(r.out, int64(v.bits))
	case kindBig:
		b := r.text(v)
		if !fitsUnsigned(b) {
			return r.fail("is an integer that does not fit in 64 bits, which msgpack cannot carry")
		}
		r.out = binary.BigEndian.AppendUint64(append(r.out, 0xcf), binary.LittleEndian.Uint64(b))
	case kindFloat:
		r.out = binary.BigEndian.AppendUint64(append(r.out, 0xcb), v.bits)
	case kindStr:
		r.out = appendMsgpackString(r.out, r.text(v))
	case kindBytes:
		b := r.text(v)
		switch n := len(b); {
		case n < 1<<8:
			r.out = append(r.out, 0xc4, byte(n))
		case n < 1<<16:
			r.out = binary.BigEndian.AppendUint16(append(r.out, 0xc5), uint16(n))
		default:
			r.out = binary.BigEndian.AppendUint32(append(r.out, 0xc6), uint32(n))
		}
		r.out = append(r.out, b...)
	default: // value has no other
	}
	return nil
}

// fitsUnsigned tells whether the text of a kindBig is 2^63 to 2^64-1.
func fitsUnsigned(b []byte) bool { return len(b) == 9 && b[8] == 0 }

// string writes a string that is not of the tree.
func (r *renderer) string(s string) {
	if r.binary {
		r.out = appendMsgpackString(r.out, s)
	} else {
		r.out = appendString(r.out, s)
	}
}

func nonFinite(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return "nan"
}

// appendFloat writes what repr writes in Python.
func appendFloat(out []byte, f float64) []byte {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(out, f, 'e', -1, 64)
	}
	start := len(out)
	out = strconv.AppendFloat(out, f, 'f', -1, 64)
	for _, c := range out[start:] {
		if c == '.' {
			return out
		}
	}
	return append(out, ".0"...)
}

// escapes are the characters that json.dumps(ensure_ascii=False) does not write as they are.
var escapes = func() (table [256]string) {
	const digits = "0123456789abcdef"
	for c := range 0x20 {
		table[c] = `\u00` + string(digits[c>>4]) + string(digits[c&0xf])
	}
	table['\b'], table['\f'], table['\n'], table['\r'], table['\t'] = `\b`, `\f`, `\n`, `\r`, `\t`
	table['"'], table['\\'] = `\"`, `\\`
	return table
}()

func appendString[T string | []byte](out []byte, s T) []byte {
	out = append(out, '"')
	from := 0
	for i := range len(s) {
		if e := escapes[s[i]]; e != "" {
			out = append(append(out, s[from:i]...), e...)
			from = i + 1
		}
	}
	return append(append(out, s[from:]...), '"')
}

// appendHeader writes the head of a msgpack array or map of n elements.
func appendHeader(out []byte, n int, fix byte, most int, code16 byte) []byte {
	switch {
	case n <= most:
		return append(out, fix|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(out, code16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(out, code16+1), uint32(n))
}

func appendMsgpackString[T string | []byte](out []byte, s T) []byte {
	switch n := len(s); {
	case n < 32:
		out = append(out, 0xa0|byte(n))
	case n < 1<<8:
		out = append(out, 0xd9, byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0xda), uint16(n))
	default:
		out = binary.BigEndian.AppendUint32(append(out, 0xdb), uint32(n))
	}
	return append(out, s...)
}

// appendMsgpackInt writes i in the smallest form.
func appendMsgpackInt(out []byte, i int64) []byte {
	switch {
	case i >= -32 && i < 128:
		return append(out, byte(i))
	case i >= 0 && i < 1<<8:
		return append(out, 0xcc, byte(i))
	case i >= 0 && i < 1<<16:
		return binary.BigEndian.AppendUint16(append(out, 0xcd), uint16(i))
	case i >= 0 && i < 1<<32:
		return binary.BigEndian.AppendUint32(append(out, 0xce), uint32(i))
	case i >= 0:
		return binary.BigEndian.AppendUint64(append(out, 0xcf), uint64(i))
	case i >= math.MinInt8:
		return append(out, 0xd0, byte(i))
	case i >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(out, 0xd1), uint16(i))
	case i >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(out, 0xd2), uint32(i))
	}
	return binary.BigEndian.AppendUint64(append(out, 0xd3), uint64(i))
}
