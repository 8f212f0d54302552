//go:build !race

// The race detector keeps four bytes for each byte that is touched, so payloads at the limit
// of 256 MiB are for builds without it: `make test-containerd` runs these.

package e2e

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// msgpackOf is msgpack of [[bytes of that size], {}], of exactly size bytes in all.
func msgpackOf(size int) []byte {
	const frame = 1 + 1 + 5 + 1
	out := make([]byte, 0, size)
	out = append(out, 0x92, 0x91, 0xc6)
	out = binary.BigEndian.AppendUint32(out, uint32(size-frame))
	out = append(out, make([]byte, size-frame)...)
	return append(out, 0x80)
}

// R12: what is over a limit is refused with its name, the limit and the size, and the next call works.
func TestR12_ArgumentsOverTheLimit(t *testing.T) {
	e, sandbox := start(t)
	const limit = 268431360
	want := map[string]string{"limit": "arguments_bytes", "maximum": "268431360", "size": "268431361"}
	json := `["` + strings.Repeat("x", limit+1-4) + `"]`
	for name, c := range map[string]struct {
		call    remote
		request *agentixv1.RemoteRequest
	}{
		"JSON over gRPC":    {grpcUnix, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::size", Args: json}},
		"msgpack over gRPC": {grpcTCP, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::size", BinaryArguments: &agentixv1.RemoteRequest_MsgpackArguments{MsgpackArguments: msgpackOf(limit + 1)}}},
		"pickle over gRPC":  {grpcUnix, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::size", BinaryArguments: &agentixv1.RemoteRequest_PickleArguments{PickleArguments: make([]byte, limit+1)}}},
		"JSON over REST":    {restTCP, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::size", Args: json}},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.call(t.Context(), t, e, c.request)
			isStatus(codes.ResourceExhausted, 429, "LIMIT_EXCEEDED")(t, a)
			if diff := cmp.Diff(errorInfo(t, a.st).GetMetadata(), want); diff != "" {
				t.Error(diff)
			}
			isValue("3")(t, c.call(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"}))
		})
	}
	t.Run("exactly the limit is taken", func(t *testing.T) {
		isValue("268431352")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{
			Sandbox: sandbox, Callable: "app::size", ResultEncoding: agentixv1.Encoding_ENCODING_JSON,
			BinaryArguments: &agentixv1.RemoteRequest_MsgpackArguments{MsgpackArguments: msgpackOf(limit)},
		}))
	})
}

func TestR12_ResultOverTheLimit(t *testing.T) {
	e, sandbox := start(t)
	a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::text", Args: "[268431359]"})
	isError("FrameTooLarge", "268431360")(t, a)
	isValue("3")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"}))
}

// A body over the limit is refused before it is decoded, whether or not its length is announced.
func TestR12_BodyOverTheLimit(t *testing.T) {
	e, sandbox := start(t)
	const limit = 402653184
	for name, c := range map[string]struct {
		length int64
		size   string
	}{
		"announced":     {limit + 1, "402653185"},
		"not announced": {-1, "402653185"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/v1/"+sandbox+":remote", io.LimitReader(spaces{}, limit+1))
			if err != nil {
				t.Fatal(err)
			}
			request.ContentLength = c.length
			response, err := e.HTTP.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			code, text := readAll(t, response)
			a := answer{http: code, st: parseStatus(t, []byte(text))}
			isStatus(codes.ResourceExhausted, 429, "LIMIT_EXCEEDED")(t, a)
			metadata := errorInfo(t, a.st).GetMetadata()
			if metadata["limit"] != "body_bytes" || metadata["maximum"] != "402653184" || c.length > 0 && metadata["size"] != c.size {
				t.Errorf("got %v", metadata)
			}
			isValue("3")(t, restTCP(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"}))
		})
	}
}

// spaces is JSON that never begins.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte(" "), len(p)))
	return len(p), nil
}
