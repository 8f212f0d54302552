package pickle

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

// string reads a string; the next byte is its quote.
func (s *scanner) string() (val, error) {
	s.pos++
	start := s.pos
	for s.pos < s.end {
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			return textAt(kindStr, start, s.pos-1-start), nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return val{}, s.fail("a control character in a string at byte %d", s.pos)
		}
		s.pos++
	}
	return val{}, s.fail("a string without an end")
}

// escaped reads a string that began at start and has an escape at pos.
func (s *scanner) escaped(start int) (val, error) {
	text := append([]byte(nil), s.src[start:s.pos]...)
	for s.pos < s.end {
		c := s.src[s.pos]
		s.pos++
		switch {
		case c == '"':
			return s.newText(textKind(text), text)
		case c < 0x20:
			return val{}, s.fail("a control character in a string at byte %d", s.pos-1)
		case c != '\\':
			text = append(text, c)
		default:
			var err error
			if text, err = s.escape(text); err != nil {
				return val{}, err
			}
		}
	}
	return val{}, s.fail("a string without an end")
}

// escape reads what follows a backslash.
func (s *scanner) escape(text []byte) ([]byte, error) {
	if s.pos >= s.end {
		return nil, s.fail("a string without an end")
	}
	c := s.src[s.pos]
	s.pos++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		return append(text, "\"\\/\b\f\n\r\t"[i]), nil
	}
	r := s.hex4()
	if c != 'u' || r < 0 {
		return nil, s.fail("a bad escape at byte %d", s.pos)
	}
	s.pos += 4
	if utf16.IsSurrogate(r) && s.pos+1 < s.end && s.src[s.pos] == '\\' && s.src[s.pos+1] == 'u' {
		s.pos += 2
		if pair := utf16.DecodeRune(r, s.hex4()); pair != 0xfffd {
			s.pos += 4
			return appendRune(text, pair), nil
		}
		s.pos -= 2 // not the second half: a lone surrogate, then another escape
	}
	return appendRune(text, r), nil
}

// hex4 returns the number in the next four bytes without taking them, -1 if there is none.
func (s *scanner) hex4() rune {
	if s.end-s.pos < 4 {
		return -1
	}
	n, err := strconv.ParseUint(string(s.src[s.pos:s.pos+4]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
