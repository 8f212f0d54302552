package gateway

import (
	"strings"
	"unicode/utf8"

	"github.com/agentixd/agentixd/internal/errs"
)

// MaxBodyDepth is how deep a request body may nest: one argument may nest 200 deep
// (wire.MaxDepth), inside args, the message and a little of the API's own.
const MaxBodyDepth = 208

// scanner walks over JSON text (RFC 8259) and finds the ends of values, so that raw_json
// parts can be taken as they are, digit by digit, without decoding them.
type scanner struct {
	text string
	at   int
}

func syntaxError(at int, what string) error {
	return errs.Invalid("body", "is not JSON: %s at byte %d", what, at)
}

// space skips whitespace.
func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// take skips whitespace and the byte c; false if something else is next.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// value skips one value of any kind and returns its text without surrounding space.
func (s *scanner) value(depth int) (string, error) {
	s.space()
	start := s.at
	if err := s.skip(depth); err != nil {
		return "", err
	}
	return s.text[start:s.at], nil
}

func (s *scanner) skip(depth int) error {
	if s.at >= len(s.text) {
		return syntaxError(s.at, "unexpected end")
	}
	switch c := s.text[s.at]; {
	case c == '{':
		return s.object(depth, func(*scanner, string) error { _, err := s.value(depth - 1); return err })
	case c == '[':
		return s.array(depth, func(*scanner) error { _, err := s.value(depth - 1); return err })
	case c == '"':
		_, err := s.stringToken()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	default:
		return s.literal()
	}
}

// object walks over an object; member is called with each key's token, at its value, and must skip that.
func (s *scanner) object(depth int, member func(s *scanner, key string) error) error {
	if depth <= 0 {
		return errs.Invalid("body", "nests deeper than %d", MaxBodyDepth)
	}
	if !s.take('{') {
		return syntaxError(s.at, "an object is wanted")
	}
	if s.take('}') {
		return nil
	}
	for {
		s.space()
		key, err := s.stringToken()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return syntaxError(s.at, "':' is wanted")
		}
		if err := member(s, key); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return syntaxError(s.at, "',' or '}' is wanted")
		}
	}
}

// array walks over an array; element is called at each element and must skip it.
func (s *scanner) array(depth int, element func(s *scanner) error) error {
	if depth <= 0 {
		return errs.Invalid("body", "nests deeper than %d", MaxBodyDepth)
	}
	if !s.take('[') {
		return syntaxError(s.at, "an array is wanted")
	}
	if s.take(']') {
		return nil
	}
	for {
		if err := element(s); err != nil {
			return err
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return syntaxError(s.at, "',' or ']' is wanted")
		}
	}
}

// stringToken skips a string and returns its text with the quotes.
func (s *scanner) stringToken() (string, error) {
	start := s.at
	if s.at >= len(s.text) || s.text[s.at] != '"' {
		return "", syntaxError(s.at, "a string is wanted")
	}
	s.at++
	for {
		at, text := s.at, s.text
		for at < len(text) && !ends[text[at]] {
			at++
		}
		s.at = at
		switch {
		case at == len(text):
			return "", syntaxError(at, "a string without end")
		case text[at] == '"':
			s.at++
			return text[start:s.at], nil
		case text[at] != '\\':
			return "", syntaxError(at, "a control character in a string")
		}
		if err := s.escape(); err != nil {
			return "", err
		}
	}
}

// ends are the bytes that cannot stand in a string as they are.
var ends = func() (table [256]bool) {
	for c := range 0x20 {
		table[c] = true
	}
	table['"'], table['\\'] = true, true
	return table
}()

func (s *scanner) escape() error {
	rest := s.text[s.at+1:]
	if len(rest) == 0 {
		return syntaxError(s.at, "a string without end")
	}
	if strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0 {
		s.at += 2
		return nil
	}
	if rest[0] == 'u' && len(rest) >= 5 {
		for i := range 4 {
			if !isHex(rest[1+i]) {
				return syntaxError(s.at, `a malformed \u escape`)
			}
		}
		s.at += 6
		return nil
	}
	return syntaxError(s.at, "a malformed escape")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (s *scanner) digits() bool {
	at, text := s.at, s.text
	for at < len(text) && '0' <= text[at] && text[at] <= '9' {
		at++
	}
	found := at > s.at
	s.at = at
	return found
}

func (s *scanner) next(of string) bool {
	if s.at < len(s.text) && strings.IndexByte(of, s.text[s.at]) >= 0 {
		s.at++
		return true
	}
	return false
}

func (s *scanner) number() error {
	start := s.at
	s.next("-")
	ok := s.next("0") || s.digits()
	if ok && s.next(".") {
		ok = s.digits()
	}
	if ok && s.next("eE") {
		s.next("+-")
		ok = s.digits()
	}
	if !ok {
		return syntaxError(start, "a malformed number")
	}
	return nil
}

func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(s.text[s.at:], word) {
			s.at += len(word)
			return nil
		}
	}
	return syntaxError(s.at, "a value is wanted")
}

// end fails if anything but space follows.
func (s *scanner) end() error {
	s.space()
	if s.at != len(s.text) {
		return syntaxError(s.at, "something follows the value")
	}
	return nil
}

// validJSON reports whether text is one JSON value in UTF-8 of bounded depth.
func validJSON(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	s := scanner{text: text}
	_, err := s.value(MaxBodyDepth)
	return err == nil && s.end() == nil
}
