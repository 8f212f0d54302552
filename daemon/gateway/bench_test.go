package gateway

import (
	"bytes"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
)

func BenchmarkParseRemoteRequest(b *testing.B) {
	for name, args := range map[string][]byte{
		"string of 1 MiB":  append(append([]byte(`["`), bytes.Repeat([]byte("x"), 1<<20)...), `"]`...),
		"numbers of 1 MiB": append(append([]byte(`[0`), bytes.Repeat([]byte(",1234567"), 1<<17)...), `]`...),
		"small":            []byte(`["hello"]`),
	} {
		body := append(append([]byte(`{"callable":"app::run","args":`), args...), '}')
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := (marshaler{}).Unmarshal(body, &agentixv1.RemoteRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteRemoteResponse(b *testing.B) {
	for name, value := range map[string]string{
		"string of 1 MiB": `"` + string(bytes.Repeat([]byte("x"), 1<<20)) + `"`,
		"small":           `{"output":"HELLO"}`,
	} {
		response := &agentixv1.RemoteResponse{CallId: "c", Outcome: &agentixv1.RemoteResponse_Value{Value: value}}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := (marshaler{}).Marshal(response); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
