package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
)

// values are JSON values that must cross the gateway byte for byte.
var values = []string{
	`9007199254740993`, `1180591620717411303424`, `1`, `1.0`, `-0.0`, `1e22`, `1E+22`, `0.1`, `-0`, `null`, `true`, `false`,
	`""`, `"é \u00e9 \ud83d\ude00 \u0000 \" \\ \/"`, `"\ud800"`, `"\u2028 "`, `[]`, `{}`, `[ 1 , 2 ]`, "{\n\t\"a\" : 1,\r\n\"a\":2}",
	`{"value":"x","error":{"type":"y"}}`, `"\",\"error\":{\"type\":\"injected\"}"`, `"}"`, `"{\"callId\":\"x\"}"`,
	strings.Repeat("[", 200) + strings.Repeat("]", 200), strings.Repeat(`{"a":`, 200) + "0.10" + strings.Repeat("}", 200),
}

func TestRawValuesCrossVerbatim(t *testing.T) {
	for _, value := range values {
		out, err := marshaler{}.Marshal(&agentixv1.RemoteResponse{CallId: "c", Outcome: &agentixv1.RemoteResponse_Value{Value: value}})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(out), `{"callId":"c","value":`+value+`}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		in := `{"callable":"m::f", "args": [` + value + `] ,"kwargs":{"k":` + value + "}}"
		var request agentixv1.RemoteRequest
		if err := (marshaler{}).Unmarshal([]byte(in), &request); err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		want := &agentixv1.RemoteRequest{Callable: "m::f", Args: "[" + value + "]", Kwargs: `{"k":` + value + "}"}
		if diff := cmp.Diff(&request, want, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", value, diff)
		}
	}
}

func TestRawFieldsOfNestedMessages(t *testing.T) {
	event := &agentixv1.Event{Seq: 1 << 60, CallId: "c", Kind: &agentixv1.Event_Log{Log: &agentixv1.LogRecord{
		Message: `"},"extras":{"injected":1}`, Extras: `{"n":9007199254740993}`,
	}}}
	span := &agentixv1.Event{Kind: &agentixv1.Event_Span{Span: &agentixv1.SpanEvent{
		Name: "s", Attributes: `{"a":1.0}`, Events: "[ ]", Error: "",
	}}}
	out, err := marshaler{}.Marshal(&agentixv1.StreamEventsResponse{Events: []*agentixv1.Event{event, span}, Cursor: "x"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cursor":"x","events":[{"seq":"1152921504606846976","callId":"c","log":{"message":"\"},\"extras\":{\"injected\":1}","extras":{"n":9007199254740993}}},` +
		`{"span":{"name":"s","attributes":{"a":1.0},"events":[ ]}}]}`
	if got := string(out); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	var back agentixv1.StreamEventsResponse
	if err := (marshaler{}).Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(back.GetEvents(), []*agentixv1.Event{event, span}, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestTextThatIsNotJSONBecomesAString(t *testing.T) {
	for _, text := range []string{`{"a":`, `1,"callId":"x"`, `nan`, `01`, `"a" "b"`, "\"\n\""} {
		out, err := marshaler{}.Marshal(&agentixv1.RemoteResponse{Outcome: &agentixv1.RemoteResponse_Value{Value: text}})
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if diff := cmp.Diff(got, map[string]any{"value": text}); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestParseRefusals(t *testing.T) {
	for _, c := range []struct{ body, field, says string }{
		{`{"callable":"a","nope":1}`, "nope", "is no field of RemoteRequest"},
		{`{"callable":"a","callable":"b"}`, "callable", "is given twice"},
		{`{"resultEncoding":1,"result_encoding":2}`, "result_encoding", "is given twice"},
		{`{"args":[1],"args":[2]}`, "args", "is given twice"},
		{`{"msgpackArguments":"AA==","pickleArguments":"AA=="}`, "pickle_arguments", "cannot be given together with msgpack_arguments"},
		{`{"callable":1}`, "callable", "invalid value for string field callable: 1"},
		{`{"timeout":"soon"}`, "timeout", `invalid google.protobuf.Duration value "soon"`},
		{`{"callable":"a"} x`, "body", "is not JSON: something follows the value at byte 17"},
		{`{"callable":"a"`, "body", "is not JSON: ',' or '}' is wanted at byte 15"},
		{`[]`, "body", "is not JSON: an object is wanted at byte 0"},
		{"{\"callable\":\"\xff\"}", "body", "is not UTF-8"},
		{`{"args":[` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `]}`, "body", "nests deeper than 208"},
		{`{"args":` + strings.Repeat("[", 1000000), "body", "nests deeper than 208"},
		{`{"` + strings.Repeat("x", 1000) + `":1}`, strings.Repeat("x", 128) + "…", "is no field of RemoteRequest"},
	} {
		err := marshaler{}.Unmarshal([]byte(c.body), &agentixv1.RemoteRequest{})
		var e *errs.Error
		if !errors.As(err, &e) || e.Kind != errs.InvalidArgument || len(e.Violations) != 1 {
			t.Errorf("%.80s: got %v", c.body, err)
			continue
		}
		if diff := cmp.Diff(e.Violations[0], errs.Violation{Field: c.field, Description: c.says}); diff != "" {
			t.Errorf("%.80s: %s", c.body, diff)
		}
	}
}

func TestParsePlainFieldsAsProtojsonDoes(t *testing.T) {
	body := `{"args":null,"timeout":"1.5s","baggage":{"k":"v"},"resultEncoding":"ENCODING_PICKLE","pickle_arguments":"gAQ=","callId":null}`
	var got agentixv1.RemoteRequest
	if err := (marshaler{}).Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	want := &agentixv1.RemoteRequest{
		Timeout: &durationpb.Duration{Seconds: 1, Nanos: 500000000}, Baggage: map[string]string{"k": "v"},
		ResultEncoding:  agentixv1.Encoding_ENCODING_PICKLE,
		BinaryArguments: &agentixv1.RemoteRequest_PickleArguments{PickleArguments: []byte{0x80, 4}},
	}
	if diff := cmp.Diff(&got, want, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	var nested *agentixv1.Sandbox // as the generated handlers do for `body: "sandbox"`
	if err := (marshaler{}).Unmarshal([]byte(`{"image":"i","resources":{"pids":"7"}}`), &nested); err != nil || nested.GetResources().GetPids() != 7 {
		t.Errorf("got %v, %v", nested, err)
	}
	err := marshaler{}.Unmarshal([]byte(`{"resources":{"gpus":1}}`), &nested)
	var e *errs.Error
	if !errors.As(err, &e) || e.Violations[0].Field != "resources.gpus" {
		t.Errorf("got %v", err)
	}
}

// The walker knows no maps of messages with raw_json fields; there must be none.
func TestNoMapsOfRawMessages(t *testing.T) {
	checked := 0
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		for i := range mt.Descriptor().Fields().Len() {
			field := mt.Descriptor().Fields().Get(i)
			raw, _ := proto.GetExtension(field.Options(), agentixv1.E_RawJson).(bool)
			if raw != isRaw(field) {
				t.Errorf("%s: raw_json on a field that is no singular string", field.FullName())
			}
			if field.IsMap() && field.MapValue().Message() != nil && hasRaw(field.MapValue().Message()) {
				t.Errorf("%s is a map of messages with raw_json fields", field.FullName())
			}
			checked++
		}
		return true
	})
	if checked < 50 {
		t.Errorf("only %d fields were found", checked)
	}
}

func FuzzScannerAgreesWithEncodingJSON(f *testing.F) {
	for _, value := range values {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := scanner{text: string(text)}
		_, err := s.value(MaxBodyDepth)
		if err == nil {
			err = s.end()
		}
		var depth *errs.Error
		if errors.As(err, &depth) && strings.Contains(depth.Message, "nests deeper") {
			return
		}
		if (err == nil) != json.Valid(text) {
			t.Errorf("%q: we say %v, encoding/json %t", text, err, json.Valid(text))
		}
	})
}

func FuzzJSONProtoJSON(f *testing.F) {
	for _, value := range values {
		f.Add([]byte(`{"callId":"c","value":` + value + `}`))
	}
	f.Add([]byte(`{"error":{"type":"t","returncode":-9}}`))
	f.Add([]byte(`{"msgpackValue":"kgE="}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var first agentixv1.RemoteResponse
		if err := (marshaler{}).Unmarshal(text, &first); err != nil {
			var e *errs.Error
			if !errors.As(err, &e) || e.Kind != errs.InvalidArgument {
				t.Fatalf("%q: refused with %v", text, err)
			}
			return
		}
		out, err := marshaler{}.Marshal(&first)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q", text, out)
		}
		if value := first.GetValue(); value != "" && !bytes.Contains(out, []byte(`"value":`+value)) {
			t.Fatalf("%q: the value %q is not verbatim in %q", text, value, out)
		}
		var second agentixv1.RemoteResponse
		if err := (marshaler{}).Unmarshal(out, &second); err != nil {
			t.Fatalf("%q became %q, which is refused: %v", text, out, err)
		}
		if !proto.Equal(&first, &second) {
			t.Fatalf("%q changed: %v, then %v", text, &first, &second)
		}
	})
}
