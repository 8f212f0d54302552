package gateway

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// violationMark separates field and description in an error's text, the only thing that
// the generated handlers keep of it.
const violationMark = "\x00"

func violation(field, format string, args ...any) error {
	return fmt.Errorf("%s%s%s", clip(field), violationMark, fmt.Sprintf(format, args...))
}

func splitViolation(text string) (field, description string, ok bool) {
	return strings.Cut(text, violationMark)
}

// textual are messages that are one text in JSON.
var textual = map[protoreflect.FullName]bool{
	"google.protobuf.Timestamp": true, "google.protobuf.Duration": true, "google.protobuf.FieldMask": true,
}

// strictQuery reads query parameters into a message and refuses those that are no fields of it.
type strictQuery struct{ runtime.DefaultQueryParser }

// Parse implements runtime.QueryParameterParser.
func (q strictQuery) Parse(msg proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	fields := msg.ProtoReflect().Descriptor().Fields()
	seen := map[protoreflect.FieldNumber]bool{}
	for key, texts := range values {
		field := fields.ByTextName(key)
		if field == nil {
			field = fields.ByJSONName(key)
		}
		if field == nil || field.Message() != nil && !textual[field.Message().FullName()] {
			return violation(key, "is no query parameter of this method")
		}
		if filter.HasCommonPrefix([]string{string(field.Name())}) {
			return violation(string(field.Name()), "belongs into the path or the body")
		}
		if seen[field.Number()] || !field.IsList() && len(texts) > 1 {
			return violation(string(field.Name()), "is given twice")
		}
		seen[field.Number()] = true
		if err := q.DefaultQueryParser.Parse(msg, url.Values{key: texts}, filter); err != nil {
			return violation(string(field.Name()), "%q cannot be read as %s", clip(texts[0]), kindOf(field))
		}
	}
	return nil
}

func kindOf(field protoreflect.FieldDescriptor) string {
	if field.Message() != nil {
		return string(field.Message().Name())
	}
	if field.Enum() != nil {
		return string(field.Enum().Name())
	}
	return field.Kind().String()
}
