package wire

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// maxPayloadDepth is how deep a whole payload may nest: a value of MaxDepth inside its envelope.
const maxPayloadDepth = MaxDepth + 16

type encoderBuffer struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := &encoderBuffer{}
	e.enc = msgpack.NewEncoder(&e.buf)
	e.enc.UseCompactInts(true)
	e.enc.SetSortMapKeys(true)
	return e
}}

// Marshal returns v as msgpack: smallest integers, float64 for floats, struct tags `msgpack`.
func Marshal(v any) (out []byte, err error) {
	defer func() { // the encoder reflects on v; a bad v is the caller's error, not a crash
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("marshal %T: %v", v, r)
		}
	}()
	e := encoders.Get().(*encoderBuffer)
	defer func() {
		if e.buf.Cap() <= 1<<20 { // a rare large payload must not stay pinned in the pool
			encoders.Put(e)
		}
	}()
	e.buf.Reset()
	if err := e.enc.Encode(v); err != nil {
		return nil, fmt.Errorf("marshal %T: %w", v, err)
	}
	return bytes.Clone(e.buf.Bytes()), nil
}

// Unmarshal decodes one msgpack document into v. It checks b first, so that a hostile b
// costs no more than its length; unknown map keys are ignored.
func Unmarshal(b []byte, v any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("unmarshal %T: %v", v, r)
		}
	}()
	if err := Check(b, maxPayloadDepth); err != nil {
		return fmt.Errorf("unmarshal %T: %w", v, err)
	}
	if err := msgpack.Unmarshal(b, v); err != nil {
		return fmt.Errorf("unmarshal %T: %w", v, err)
	}
	return nil
}

// IsMap reports whether b begins like a msgpack map.
func IsMap(b []byte) bool {
	return len(b) > 0 && (b[0]&0xf0 == 0x80 || b[0] == 0xde || b[0] == 0xdf)
}

// ErrMalformed is what every error of Check wraps.
var ErrMalformed = errors.New("malformed msgpack")
