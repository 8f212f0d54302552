package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
)

// marshaler is the gateway's only marshaler: JSON of protocol buffers in which raw_json
// fields stand as the JSON that they hold.
type marshaler struct{}

var _ runtime.Marshaler = marshaler{}

// ContentType is application/json.
func (marshaler) ContentType(any) string { return "application/json" }

// Marshal writes a message; anything else as encoding/json does.
func (marshaler) Marshal(v any) ([]byte, error) {
	if message, ok := v.(proto.Message); ok {
		return appendMessage(nil, message.ProtoReflect())
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("marshal %T: %w", v, err)
	}
	return text, nil
}

// Unmarshal reads a message.
func (m marshaler) Unmarshal(data []byte, v any) error { return m.parse(string(data), v) }

// parse reads a message; its raw_json fields are parts of text, not copies.
func (marshaler) parse(text string, v any) error {
	message, ok := v.(proto.Message)
	if !ok { // for `body: "field"` the generated handlers give the address of a field
		field := reflect.ValueOf(v)
		if field.Kind() != reflect.Pointer || field.Elem().Kind() != reflect.Pointer {
			return fmt.Errorf("unmarshal %T: not a message", v)
		}
		made := reflect.New(field.Type().Elem().Elem())
		if message, ok = made.Interface().(proto.Message); !ok {
			return fmt.Errorf("unmarshal %T: not a message", v)
		}
		field.Elem().Set(made)
	}
	return parseMessage(text, message.ProtoReflect())
}

// NewDecoder reads one message that takes the whole body. An error also stays with the
// body, because the generated handlers pass on its text only.
func (m marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		var text strings.Builder
		_, err := io.Copy(&text, r)
		if err == nil {
			if text.Len() == 0 {
				return io.EOF
			}
			err = m.parse(text.String(), v)
		}
		if b, ok := r.(*body); ok && err != nil {
			b.fail(err)
		}
		return err
	})
}

// NewEncoder writes messages one after the other.
func (m marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		text, err := m.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}
