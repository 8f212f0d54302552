package dispatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/agentixd/agentixd/runtime/wire"
)

const jsonSpace = " \t\r\n"

// checkJSONArguments accepts the text of one JSON array or object (as first says) of values
// that nest no deeper than wire.MaxDepth.
func checkJSONArguments(text string, first byte) error {
	return checkJSON(unsafe.Slice(unsafe.StringData(text), len(text)), first, wire.MaxDepth+1) //nolint:gosec // only read
}

// checkJSON accepts one well-formed JSON text that begins with first (0 = any), is UTF-8 and
// nests at most depth arrays and objects. It keeps no tree, so numbers stay as written.
func checkJSON(b []byte, first byte, depth int) error {
	trimmed := bytes.TrimLeft(b, jsonSpace)
	if len(trimmed) == 0 {
		return errors.New("it is empty")
	}
	if !utf8.Valid(b) {
		return errors.New("it is not UTF-8")
	}
	if first != 0 && trimmed[0] != first {
		r, _ := utf8.DecodeRune(trimmed)
		return fmt.Errorf("it begins with %q", r)
	}
	if deepest := nesting(trimmed); deepest > depth {
		return fmt.Errorf("it nests %d deep, over the limit of %d", deepest-(depth-wire.MaxDepth), wire.MaxDepth)
	}
	if !json.Valid(b) {
		return errors.New(syntaxError(b))
	}
	return nil
}

// nesting is how deep brackets nest in a JSON text, well-formed or not.
func nesting(b []byte) int {
	deepest, depth := 0, 0
	for n := 0; n < len(b); n++ {
		switch b[n] {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		case '"':
			for n++; n < len(b) && b[n] != '"'; n++ {
				if b[n] == '\\' {
					n++
				}
			}
		}
	}
	return deepest
}

// syntaxError says where b is no JSON.
func syntaxError(b []byte) string {
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(b, &raw); errors.As(err, &syntax) {
		return fmt.Sprintf("%s at byte %d", syntax.Error(), syntax.Offset)
	}
	return "it is no JSON"
}

// secondIsMap reports whether the second of two checked msgpack documents is a map.
func secondIsMap(b []byte) bool {
	r := bytes.NewReader(b)
	if msgpack.NewDecoder(r).Skip() != nil {
		return false
	}
	return wire.IsMap(b[len(b)-r.Len():])
}
