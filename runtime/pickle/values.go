package pickle

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"unicode/utf8"
)

// makeBytes is a call that protocols 0 to 2 write bytes as, or bytearray.
func (p *parser) makeBytes(g global, a []val) (val, error) {
	switch {
	case len(a) == 0 && g.known != knownEncode:
		return p.newText(kindBytes, nil)
	case len(a) == 1 && g.known == knownBytearray && a[0].kind() == kindBytes:
		return a[0], nil
	case len(a) == 2 && g.known != knownBytes && a[0].kind() == kindStr && a[1].kind() == kindStr:
		switch string(p.text(a[1])) {
		case "latin1", "latin-1":
			return p.latin1(a[0])
		}
	}
	return val{}, p.unusual(g)
}

func (p *parser) latin1(v val) (val, error) {
	text := p.text(v)
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r > 0xff {
			return val{}, p.malformed("bytes written with a character above U+00FF")
		}
		out = append(out, byte(r))
		text = text[size:]
	}
	return p.newText(kindBytes, out)
}

// makeContainer is a call of a container class with nothing or with one container.
func (p *parser) makeContainer(g global, a []val) (val, error) {
	k := kindDict
	switch g.known {
	case knownList:
		k = kindList
	case knownTuple:
		k = kindTuple
	case knownSet:
		k = kindSet
	case knownDefaultDict: // the argument is the factory of defaults
		if len(a) > 1 {
			return val{}, p.unusual(g)
		}
		a = nil
	default: // a dictionary
	}
	switch {
	case len(a) == 0:
		return p.newList(k, nil)
	case len(a) != 1 || !a[0].isNested():
		return val{}, p.unusual(g)
	case k != kindDict && a[0].kind() != kindDict, k == kindDict && a[0].kind() == kindDict:
		return p.newList(k, p.items(a[0]))
	}
	return val{}, p.unusual(g)
}

// isDecimal tells whether str(Decimal) gives such a text.
func isDecimal(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte{'-'})
	if string(text) == "Infinity" {
		return true
	}
	if rest, ok := bytes.CutPrefix(bytes.TrimPrefix(text, []byte{'s'}), []byte("NaN")); ok {
		return len(skipDigits(rest)) == 0
	}
	rest := skipDigits(text)
	if len(rest) == len(text) {
		return false
	}
	if len(rest) > 1 && rest[0] == '.' {
		fraction := rest[1:]
		if rest = skipDigits(fraction); len(rest) == len(fraction) {
			return false
		}
	}
	if len(rest) > 2 && (rest[0] == 'E' || rest[0] == 'e') && (rest[1] == '+' || rest[1] == '-') {
		rest = skipDigits(rest[2:])
	}
	return len(rest) == 0
}

func skipDigits(b []byte) []byte {
	for len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
		b = b[1:]
	}
	return b
}

// makeDecimal is the text of a Decimal.
func (p *parser) makeDecimal(g global, a []val) (val, error) {
	if len(a) != 1 || a[0].kind() != kindStr {
		return val{}, p.unusual(g)
	}
	text := p.text(a[0])
	if err := p.charge(len(text)); err != nil { // a shared text is looked at again for each use
		return val{}, err
	}
	if !isDecimal(text) {
		return val{}, p.unusual(g)
	}
	return a[0], nil
}

// makePath joins the parts of a POSIX path as pathlib does.
func (p *parser) makePath(g global, parts []val) (val, error) {
	size := 0
	for _, part := range parts {
		if part.kind() != kindStr && part.kind() != kindBroken {
			return val{}, p.unusual(g)
		}
		size += len(p.text(part)) + 1
	}
	if err := p.charge(size); err != nil {
		return val{}, err
	}
	joined := make([]byte, 0, size)
	for _, part := range parts {
		text := p.text(part)
		if len(text) > 0 && text[0] == '/' {
			joined = joined[:0]
		} else if n := len(joined); n > 0 && joined[n-1] != '/' {
			joined = append(joined, '/')
		}
		joined = append(joined, text...)
	}
	clean := cleanPath(joined)
	return p.newText(textKind(clean), clean)
}

// cleanPath drops empty and "." segments but keeps ".." and a root of exactly two slashes.
func cleanPath(path []byte) []byte {
	out := make([]byte, 0, len(path)+1)
	root := 0
	for root < len(path) && path[root] == '/' {
		root++
	}
	switch {
	case root == 2:
		out = append(out, "//"...)
	case root > 0:
		out = append(out, '/')
	}
	start := len(out)
	for path = path[root:]; len(path) > 0; {
		n := 0
		for n < len(path) && path[n] != '/' {
			n++
		}
		if segment := path[:n]; n > 0 && string(segment) != "." {
			if len(out) > start {
				out = append(out, '/')
			}
			out = append(out, segment...)
		}
		path = path[min(n+1, len(path)):]
	}
	if len(out) == 0 {
		return append(out, '.')
	}
	return out
}

// makeUUID is the text of a UUID with that state, {"int": n} and at most a few members more.
func (p *parser) makeUUID(state val) (val, error) {
	if state.kind() == kindDict {
		items := p.items(state)
		items = items[:min(len(items), 16)]
		for i := 0; i+1 < len(items); i += 2 {
			if items[i].kind() == kindStr && string(p.text(items[i])) == "int" {
				return p.uuidText(items[i+1])
			}
		}
	}
	return val{}, p.malformed("a UUID without its number")
}

func (p *parser) uuidText(v val) (val, error) {
	var n [16]byte // big-endian
	switch v.kind() {
	case kindInt:
		if int64(v.bits) < 0 {
			return val{}, p.malformed("a UUID of a negative number")
		}
		binary.BigEndian.PutUint64(n[8:], v.bits)
	case kindBig:
		b := p.text(v)
		if len(b) > 17 || (len(b) == 17 && b[16] != 0) || (len(b) < 17 && b[len(b)-1] >= 0x80) {
			return val{}, p.malformed("a UUID of a number over 128 bits")
		}
		for i, c := range b[:min(len(b), 16)] {
			n[15-i] = c
		}
	default:
		return val{}, p.malformed("a UUID without its number")
	}
	h := hex.EncodeToString(n[:])
	return p.newText(kindStr, []byte(h[:8]+"-"+h[8:12]+"-"+h[12:16]+"-"+h[16:20]+"-"+h[20:]))
}

// makeScalar is a numpy scalar: float64, str_ and bytes_ are subclasses of Python's own
// types and have their JSON, no other has any.
func (p *parser) makeScalar(class uint32, args val) (val, error) {
	a := p.items(args)
	if len(a) != 2 || a[0].kind() != kindObject || a[1].kind() != kindBytes {
		return p.newObject(class, args, val{})
	}
	code, order := p.dtype(p.objects[a[0].bits])
	data := p.text(a[1])
	var bytesOrder binary.ByteOrder = binary.LittleEndian
	if order == ">" {
		bytesOrder = binary.BigEndian
	}
	switch {
	case code == "f8" && len(data) == 8:
		return makeFloat(math.Float64frombits(bytesOrder.Uint64(data))), nil
	case code != "" && code[0] == 'S' && code == fmt.Sprintf("S%d", len(data)):
		return a[1], nil
	case code != "" && code[0] == 'U' && code == fmt.Sprintf("U%d", len(data)/4) && len(data)%4 == 0:
		text := make([]byte, 0, len(data))
		for ; len(data) > 0; data = data[4:] {
			r := bytesOrder.Uint32(data)
			if r > utf8.MaxRune {
				return val{}, p.malformed("a numpy string with a character above U+10FFFF")
			}
			text = appendRune(text, rune(r))
		}
		return p.newText(textKind(text), text)
	}
	return p.newObject(class, args, val{})
}

// dtype returns the type code and byte order of a numpy dtype, "" for one that is not simple.
func (p *parser) dtype(o object) (code, order string) {
	if o.known != knownDtype || o.args.kind() != kindTuple || o.state.kind() != kindTuple {
		return "", ""
	}
	args, state := p.items(o.args), p.items(o.state)
	if len(args) == 0 || args[0].kind() != kindStr || len(state) < 2 || state[1].kind() != kindStr {
		return "", ""
	}
	a, b := p.text(args[0]), p.text(state[1])
	if len(a) > 20 || len(b) != 1 {
		return "", ""
	}
	return string(a), string(b)
}
