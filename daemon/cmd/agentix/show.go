package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// explain returns one text for people: message, reason, and each field that is wrong.
func explain(err error) string {
	var sent interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &sent) {
		return err.Error()
	}
	found := sent.GRPCStatus()
	reason := found.Code().String()
	var fields strings.Builder
	for _, detail := range found.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = detail.GetReason()
		case *errdetails.BadRequest:
			for _, v := range detail.GetFieldViolations() {
				fmt.Fprintf(&fields, "\n  %s: %s", printable(v.GetField()), printable(v.GetDescription()))
			}
		}
	}
	if found.Code() == codes.Unavailable && strings.Contains(found.Message(), "while dialing") { // no daemon has answered
		fields.WriteString("\n  is agentixd running there? choose another daemon by --address or AGENTIX_ADDRESS")
	}
	return fmt.Sprintf("%s: %s%s", reason, printable(found.Message()), fields.String())
}

// steers reports whether a character could steer a terminal or stands for a byte that is
// not UTF-8.
func steers(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
}

// printable writes characters that could steer a terminal, and bytes that are not UTF-8,
// as \xNN or \uNNNN; newline and tab stay.
func printable(text string) string {
	if strings.IndexFunc(text, steers) < 0 {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		switch {
		case !steers(r):
			out.WriteRune(r)
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// oneLine is printable text without line ends.
func oneLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(printable(text))
}

// writeJSON writes a message as one line of JSON; fields that hold JSON text are JSON in it.
func writeJSON(w io.Writer, message proto.Message) error {
	text, err := protojson.Marshal(message)
	if err == nil {
		text, err = unquoteRaw(text, message.ProtoReflect().Descriptor())
	}
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	writeln(w, string(text))
	return nil
}

// unquoteRaw turns the raw_json fields of a message's JSON, strings that hold JSON text,
// into that JSON.
func unquoteRaw(text []byte, descriptor protoreflect.MessageDescriptor) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return text, nil //nolint:nilerr // a well-known type that is no object, such as a Timestamp
	}
	for i := range descriptor.Fields().Len() {
		field := descriptor.Fields().Get(i)
		member, ok := members[field.JSONName()]
		if !ok || field.IsMap() {
			continue
		}
		changed, err := unquoteField(member, field)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", field.Name(), err)
		}
		members[field.JSONName()] = changed
	}
	return json.Marshal(members)
}

func unquoteField(member json.RawMessage, field protoreflect.FieldDescriptor) (json.RawMessage, error) {
	if raw, _ := proto.GetExtension(field.Options(), agentixv1.E_RawJson).(bool); raw {
		var inner string
		if err := json.Unmarshal(member, &inner); err != nil {
			return nil, err
		}
		if json.Valid([]byte(inner)) {
			return json.RawMessage(inner), nil
		}
		return member, nil
	}
	if field.Message() == nil {
		return member, nil
	}
	if !field.IsList() {
		return unquoteRaw(member, field.Message())
	}
	var items []json.RawMessage
	if err := json.Unmarshal(member, &items); err != nil {
		return nil, err
	}
	for i, item := range items {
		changed, err := unquoteRaw(item, field.Message())
		if err != nil {
			return nil, err
		}
		items[i] = changed
	}
	return json.Marshal(items)
}
