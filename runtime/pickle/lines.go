package pickle

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readLine returns the bytes before the next line feed.
func (p *parser) readLine() ([]byte, error) {
	n := bytes.IndexByte(p.src[p.pos:], '\n')
	if n < 0 {
		return nil, p.malformed("a line without an end")
	}
	b := p.src[p.pos : p.pos+n : p.pos+n]
	p.pos += n + 1
	return b, nil
}

func (p *parser) decimalLine() (int, error) {
	b, err := p.readLine()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(b[:min(len(b), 20)]), 10, 32)
	if err != nil || len(b) > 20 {
		return 0, p.malformed("a memo index that is no number")
	}
	return int(n), nil
}

// line reads a number or string of protocol 0.
func (p *parser) line(op byte) error {
	start := p.pos
	b, err := p.readLine()
	if err != nil {
		return err
	}
	switch op {
	case opInt, opLong:
		return p.textInt(op, b)
	case opFloat:
		return p.textFloat(b)
	case opString:
		return p.quoted(b)
	}
	if bytes.IndexByte(b, '\\') < 0 && isASCII(b) {
		return p.push(textAt(kindStr, start, len(b)))
	}
	text, ok := rawUnicodeEscape(b)
	if !ok {
		return p.malformed("a bad escape in a string")
	}
	return p.pushed(p.newText(textKind(text), text))
}

func (p *parser) textInt(op byte, b []byte) error {
	if op == opInt && (string(b) == "00" || string(b) == "01") {
		return p.push(makeBool(b[1] == '1'))
	}
	if op == opLong {
		b = bytes.TrimSuffix(b, []byte{'L'})
	}
	digits := bytes.TrimPrefix(b, []byte{'-'})
	if len(digits) > maxIntDigits {
		return fmt.Errorf("%w: an integer of %d digits, of at most %d", ErrTooLarge, len(digits), maxIntDigits)
	}
	if len(digits) == 0 {
		return p.malformed("an integer without digits")
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return p.malformed("an integer that is no number")
		}
	}
	return p.pushed(p.newInt(string(b)))
}

// newInt is the integer of a decimal text with a sign or without.
func (t *tree) newInt(text string) (val, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return makeInt(i), nil
	}
	n, _ := new(big.Int).SetString(text, 10)
	return t.newText(kindBig, littleEndian(n))
}

// littleEndian returns the two's complement of n in the fewest bytes.
func littleEndian(n *big.Int) []byte {
	size := n.BitLen()/8 + 1
	if n.Sign() < 0 {
		size = new(big.Int).Not(n).BitLen()/8 + 1
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	b := n.FillBytes(make([]byte, size))
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return b
}

// bigInt is the inverse of littleEndian.
func bigInt(b []byte) *big.Int {
	reversed := make([]byte, len(b))
	for i, c := range b {
		reversed[len(b)-1-i] = c
	}
	n := new(big.Int).SetBytes(reversed)
	if len(b) > 0 && b[len(b)-1] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

func (p *parser) textFloat(b []byte) error {
	text := string(b[:min(len(b), 400)])
	if len(b) > 400 || strings.ContainsAny(text, "xXpP_") {
		return p.malformed("a float that is no number")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) {
		return p.malformed("a float that is no number")
	}
	if math.IsNaN(f) {
		return p.push(val{uint64(kindFloat), 0x7ff8 << 48}) // Python's, Go's has another payload
	}
	return p.push(makeFloat(f))
}

// quoted reads a string as Python 2 wrote it: a literal in quotes.
func (p *parser) quoted(b []byte) error {
	b = bytes.TrimRight(b, " \t\r")
	if len(b) < 2 || b[0] != b[len(b)-1] || (b[0] != '\'' && b[0] != '"') {
		return p.malformed("a string without quotes")
	}
	out := make([]byte, 0, len(b))
	for b = b[1 : len(b)-1]; len(b) > 0; b = b[1:] {
		if b[0] != '\\' {
			out = append(out, b[0])
			continue
		}
		if len(b) < 2 {
			return p.malformed("a bad escape in a string")
		}
		b = b[1:]
		if i := strings.IndexByte(`\'"abtnvfr`, b[0]); i >= 0 {
			out = append(out, "\\'\"\a\b\t\n\v\f\r"[i])
			continue
		}
		if b[0] != 'x' || len(b) < 3 {
			return p.malformed("a bad escape in a string")
		}
		c, err := strconv.ParseUint(string(b[1:3]), 16, 8)
		if err != nil {
			return p.malformed("a bad escape in a string")
		}
		out = append(out, byte(c))
		b = b[2:]
	}
	if !isASCII(out) {
		return p.malformed("a Python 2 string is not ASCII")
	}
	return p.pushed(p.newText(kindStr, out))
}

// rawUnicodeEscape decodes Latin-1 with \u and \U escapes; a surrogate takes three bytes.
func rawUnicodeEscape(b []byte) ([]byte, bool) {
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		c := b[0]
		if c != '\\' || len(b) < 2 {
			out = utf8.AppendRune(out, rune(c))
			b = b[1:]
			continue
		}
		size := 4
		if b[1] == 'U' {
			size = 8
		} else if b[1] != 'u' {
			out = utf8.AppendRune(append(out, c), rune(b[1]))
			b = b[2:]
			continue
		}
		if len(b) < 2+size {
			return nil, false
		}
		r, err := strconv.ParseUint(string(b[2:2+size]), 16, 32)
		if err != nil || r > utf8.MaxRune {
			return nil, false
		}
		out = appendRune(out, rune(r))
		b = b[2+size:]
	}
	return out, true
}

// appendRune writes r as UTF-8, and a surrogate in the same way.
func appendRune(out []byte, r rune) []byte {
	if r >= 0xd800 && r <= 0xdfff {
		return append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
	}
	return utf8.AppendRune(out, r)
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// textKind is kindStr for UTF-8, kindBroken for UTF-8 with surrogates, kindNone otherwise.
func textKind(b []byte) kind {
	if utf8.Valid(b) {
		return kindStr
	}
	for len(b) > 0 {
		if len(b) >= 3 && b[0] == 0xed && b[1] >= 0xa0 && b[1] <= 0xbf && b[2] >= 0x80 && b[2] <= 0xbf {
			b = b[3:]
			continue
		}
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size <= 1 {
			return kindNone
		}
		b = b[size:]
	}
	return kindBroken
}
