package wire

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// ToJSON turns one msgpack document into JSON text. Integers keep every digit and floats
// stay floats (1.0, not 1); bin becomes a base64 string, a float without a JSON form and an
// extension become strings that name them.
func ToJSON(raw []byte) ([]byte, error) {
	out := make([]byte, 0, len(raw)+len(raw)/2+16)
	err := walk(raw, maxPayloadDepth, &visitor{
		token: func(t token, key, first bool) {
			out = appendSeparator(out, key, first)
			out = appendToken(out, t)
			if key {
				out = append(out, ':')
			}
		},
		closed: func(isMap bool) {
			if isMap {
				out = append(out, '}')
			} else {
				out = append(out, ']')
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// appendSeparator writes the comma before all but the first element; a map's value follows its colon.
func appendSeparator(out []byte, key, first bool) []byte {
	if first || len(out) == 0 {
		return out
	}
	if last := out[len(out)-1]; !key && last == ':' {
		return out
	}
	return append(out, ',')
}

func appendToken(out []byte, t token) []byte {
	switch t.kind {
	case tokenBool:
		return strconv.AppendBool(out, t.b)
	case tokenInt:
		return strconv.AppendInt(out, t.i, 10)
	case tokenUint:
		return strconv.AppendUint(out, t.u, 10)
	case tokenFloat:
		return appendFloat(out, t.f)
	case tokenStr:
		return appendString(out, t.data)
	case tokenBin:
		return appendString(out, []byte(base64.StdEncoding.EncodeToString(t.data)))
	case tokenExt:
		return appendString(out, fmt.Appendf(nil, "ext %d: %s", t.ext, base64.StdEncoding.EncodeToString(t.data)))
	case tokenArray:
		return append(out, '[')
	case tokenMap:
		return append(out, '{')
	case tokenNil:
	}
	return append(out, "null"...)
}

func appendFloat(out []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(out, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(out, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(out, `"-Infinity"`...)
	}
	start := len(out)
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e16) {
		format = 'e'
	}
	out = strconv.AppendFloat(out, f, format, -1, 64)
	for _, c := range out[start:] {
		if c == '.' || c == 'e' {
			return out
		}
	}
	return append(out, ".0"...)
}

const hexDigits = "0123456789abcdef"

// appendString writes s, which is UTF-8, as a JSON string.
func appendString(out, s []byte) []byte {
	out = append(out, '"')
	for len(s) > 0 {
		c := s[0]
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c == '\n':
			out = append(out, '\\', 'n')
		case c < 0x20 || c == 0x7f:
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		case c < utf8.RuneSelf:
			out = append(out, c)
		default:
			_, size := utf8.DecodeRune(s)
			out = append(out, s[:size]...)
			s = s[size:]
			continue
		}
		s = s[1:]
	}
	return append(out, '"')
}
