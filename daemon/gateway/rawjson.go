package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// rawTypes remembers which message types hold raw_json fields, themselves or further in.
var rawTypes sync.Map // protoreflect.FullName → bool

// isRaw reports whether a field is a string of JSON text.
func isRaw(field protoreflect.FieldDescriptor) bool {
	raw, _ := proto.GetExtension(field.Options(), agentixv1.E_RawJson).(bool)
	return raw && field.Kind() == protoreflect.StringKind && !field.IsList() && !field.IsMap()
}

// hasRaw reports whether messages of this type can hold raw_json fields.
func hasRaw(message protoreflect.MessageDescriptor) bool {
	if known, ok := rawTypes.Load(message.FullName()); ok {
		return known.(bool)
	}
	found := findRaw(message, map[protoreflect.FullName]bool{})
	rawTypes.Store(message.FullName(), found)
	return found
}

func findRaw(message protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[message.FullName()] {
		return false
	}
	seen[message.FullName()] = true
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if isRaw(field) || field.Message() != nil && findRaw(field.Message(), seen) {
			return true
		}
	}
	return false
}

// special reports whether protojson alone cannot write a field. Maps of messages with
// raw_json fields do not exist in this API (a test goes over the descriptors).
func special(field protoreflect.FieldDescriptor) bool {
	return isRaw(field) || field.Message() != nil && !field.IsMap() && hasRaw(field.Message())
}

// appendMessage appends message as JSON. All but the raw_json fields is protojson's work:
// they stand as they are where their member belongs, so no text can be taken for another.
func appendMessage(out []byte, message protoreflect.Message) ([]byte, error) {
	descriptor := message.Descriptor()
	if !hasRaw(descriptor) {
		return marshalPlain(out, message.Interface())
	}
	plain := message.New()
	var specials []protoreflect.FieldDescriptor
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if special(field) {
			specials = append(specials, field)
		} else {
			plain.Set(field, value)
		}
		return true
	})
	out, err := marshalPlain(out, plain.Interface())
	if err != nil {
		return nil, err
	}
	out = out[:len(out)-1] // its "}"
	for i := range descriptor.Fields().Len() {
		field := descriptor.Fields().Get(i)
		if !contains(specials, field) {
			continue
		}
		before := len(out)
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, field.JSONName()...)
		out = append(out, '"', ':')
		mark := len(out)
		if out, err = appendSpecial(out, field, message.Get(field)); err != nil {
			return nil, fmt.Errorf("write field %s: %w", field.Name(), err)
		}
		if len(out) == mark {
			out = out[:before] // absent
		}
	}
	return append(out, '}'), nil
}

func contains(fields []protoreflect.FieldDescriptor, field protoreflect.FieldDescriptor) bool {
	for _, f := range fields {
		if f.Number() == field.Number() {
			return true
		}
	}
	return false
}

func appendSpecial(out []byte, field protoreflect.FieldDescriptor, value protoreflect.Value) ([]byte, error) {
	switch {
	case isRaw(field):
		return appendRaw(out, value.String())
	case field.IsList():
		out = append(out, '[')
		for i := range value.List().Len() {
			if i > 0 {
				out = append(out, ',')
			}
			var err error
			if out, err = appendMessage(out, value.List().Get(i).Message()); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	default:
		return appendMessage(out, value.Message())
	}
}

// appendRaw appends JSON text as it is; "" appends nothing. Text that is not JSON, which
// only a hostile sandbox can cause, becomes a JSON string.
func appendRaw(out []byte, text string) ([]byte, error) {
	if text == "" {
		return out, nil
	}
	if validJSON(text) {
		return append(out, text...), nil
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, fmt.Errorf("quote text: %w", err)
	}
	return append(out, quoted...), nil
}

// marshalPlain is protojson without the white space that it puts in at random.
func marshalPlain(out []byte, message proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("marshal %s: %w", message.ProtoReflect().Descriptor().FullName(), err)
	}
	buffer := bytes.NewBuffer(out)
	if err := json.Compact(buffer, text); err != nil {
		return nil, fmt.Errorf("compact %s: %w", message.ProtoReflect().Descriptor().FullName(), err)
	}
	return buffer.Bytes(), nil
}

// parseMessage reads one JSON object into message. Unknown members, members that come
// twice and trailing text are errors that name them.
func parseMessage(text string, message protoreflect.Message) error {
	if !utf8.ValidString(text) {
		return errs.Invalid("body", "is not UTF-8")
	}
	s := scanner{text: text}
	if err := parseObject(&s, MaxBodyDepth, message, ""); err != nil {
		return err
	}
	return s.end()
}

func parseObject(s *scanner, depth int, message protoreflect.Message, path string) error {
	fields := message.Descriptor().Fields()
	seen := map[protoreflect.FieldNumber]bool{}
	return s.object(depth, func(s *scanner, keyToken string) error {
		var key string
		if err := json.Unmarshal([]byte(keyToken), &key); err != nil {
			return syntaxError(s.at, "a malformed key")
		}
		field := fields.ByJSONName(key)
		if field == nil {
			field = fields.ByTextName(key)
		}
		if field == nil {
			return errs.Invalid(path+clip(key), "is no field of %s", message.Descriptor().Name())
		}
		name := path + string(field.Name())
		if seen[field.Number()] {
			return errs.Invalid(name, "is given twice")
		}
		seen[field.Number()] = true
		return parseField(s, depth-1, message, field, name)
	})
}

func parseField(s *scanner, depth int, message protoreflect.Message, field protoreflect.FieldDescriptor, name string) error {
	if of := field.ContainingOneof(); of != nil && message.WhichOneof(of) != nil {
		return errs.Invalid(name, "cannot be given together with %s", message.WhichOneof(of).Name())
	}
	s.space()
	// As everywhere in the JSON of protocol buffers null means absent, unless it is a JSON value of its own.
	rawValue := isRaw(field) && field.HasPresence()
	if !rawValue && strings.HasPrefix(s.text[s.at:], "null") {
		return s.literal()
	}
	switch {
	case isRaw(field):
		value, err := s.value(depth)
		if err != nil {
			return err
		}
		message.Set(field, protoreflect.ValueOfString(value))
		return nil
	case !ours(field):
		return parsePlain(s, depth, message, field, name)
	case field.IsList():
		list := message.Mutable(field).List()
		return s.array(depth, func(s *scanner) error {
			return parseObject(s, depth-1, list.AppendMutable().Message(), fmt.Sprintf("%s[%d].", name, list.Len()-1))
		})
	default:
		return parseObject(s, depth, message.Mutable(field).Message(), name+".")
	}
}

// ours reports whether the values of a field are messages of this API, which are walked
// into; all other values are protojson's work.
func ours(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && !field.IsMap() &&
		field.Message().ParentFile().Package() == agentixv1.File_agentix_v1_options_proto.Package()
}

func parsePlain(s *scanner, depth int, message protoreflect.Message, field protoreflect.FieldDescriptor, name string) error {
	value, err := s.value(depth)
	if err != nil {
		return err
	}
	text := make([]byte, 0, len(value)+len(field.JSONName())+5)
	text = append(text, `{"`...)
	text = append(text, field.JSONName()...)
	text = append(text, `":`...)
	text = append(append(text, value...), '}')
	parsed := message.New()
	if err := protojson.Unmarshal(text, parsed.Interface()); err != nil {
		return errs.Invalid(name, "%s", clip(protojsonText(err)))
	}
	if parsed.Has(field) {
		message.Set(field, parsed.Get(field))
	}
	return nil
}

// protojsonText is protojson's complaint without its prefix, which differs from build to build.
func protojsonText(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "): "); ok {
		return after
	}
	_, after, _ := strings.Cut(text, " ")
	return after
}

// clip keeps a name from outside short enough to be repeated in an answer.
func clip(text string) string {
	const most = 128
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
