package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// answer is what came of a call, however it was asked for.
type answer struct {
	value string // JSON text, verbatim
	err   *agentixv1.RemoteError
	st    *status.Status
	http  int // over REST
}

// remote calls a function over one protocol.
type remote func(ctx context.Context, t *testing.T, e *daemontest.Env, r *agentixv1.RemoteRequest) answer

// protocols are the ways to call, which must mean the same.
var protocols = map[string]remote{
	"gRPC over the Unix socket": grpcUnix, "gRPC over TCP": grpcTCP, "REST over TCP": restTCP, "REST over the Unix socket": restUnix,
}

func grpcUnix(ctx context.Context, _ *testing.T, e *daemontest.Env, r *agentixv1.RemoteRequest) answer {
	response, err := e.Remote.Remote(ctx, r)
	return answer{value: response.GetValue(), err: response.GetError(), st: status.Convert(err)}
}

func grpcTCP(ctx context.Context, _ *testing.T, e *daemontest.Env, r *agentixv1.RemoteRequest) answer {
	response, err := agentixv1.NewRemoteServiceClient(e.TCP).Remote(ctx, r)
	return answer{value: response.GetValue(), err: response.GetError(), st: status.Convert(err)}
}

func restTCP(ctx context.Context, t *testing.T, e *daemontest.Env, r *agentixv1.RemoteRequest) answer {
	t.Helper()
	return rest(ctx, t, e.HTTP, e.URL, r)
}

func restUnix(ctx context.Context, t *testing.T, e *daemontest.Env, r *agentixv1.RemoteRequest) answer {
	t.Helper()
	return rest(ctx, t, e.Unix, "http://agentixd", r)
}

// restBody is the JSON that a person would send for r.
func restBody(t *testing.T, r *agentixv1.RemoteRequest) []byte {
	t.Helper()
	var body bytes.Buffer
	field := func(name string, value any, present bool) {
		if !present {
			return
		}
		text, ok := value.(json.RawMessage)
		if !ok {
			var err error
			if text, err = json.Marshal(value); err != nil {
				t.Fatal(err)
			}
		}
		if body.Len() > 0 {
			body.WriteByte(',')
		}
		body.WriteString(`"` + name + `":`)
		body.Write(text)
	}
	field("callable", r.GetCallable(), r.GetCallable() != "")
	field("args", json.RawMessage(r.GetArgs()), r.GetArgs() != "")
	field("kwargs", json.RawMessage(r.GetKwargs()), r.GetKwargs() != "")
	field("msgpackArguments", r.GetMsgpackArguments(), r.GetMsgpackArguments() != nil)
	field("callId", r.GetCallId(), r.GetCallId() != "")
	field("baggage", r.GetBaggage(), len(r.GetBaggage()) > 0)
	field("traceparent", r.GetTraceparent(), r.GetTraceparent() != "")
	field("isolation", r.GetIsolation().String(), r.GetIsolation() != 0)
	field("resultEncoding", r.GetResultEncoding().String(), r.GetResultEncoding() != 0)
	if r.GetTimeout() != nil {
		text, err := protojson.Marshal(r.GetTimeout())
		if err != nil {
			t.Fatal(err)
		}
		field("timeout", json.RawMessage(text), true)
	}
	return []byte("{" + body.String() + "}")
}

func rest(ctx context.Context, t *testing.T, client *http.Client, base string, r *agentixv1.RemoteRequest) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/"+r.GetSandbox()+":remote", bytes.NewReader(restBody(t, r)))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if ctx.Err() != nil {
		return answer{st: status.FromContextError(ctx.Err())}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{http: response.StatusCode}
	if response.StatusCode != http.StatusOK {
		a.st = parseStatus(t, text)
		return a
	}
	var body struct {
		CallID string          `json:"callId"`
		Value  json.RawMessage `json:"value"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(text, &body); err != nil || body.CallID == "" {
		t.Fatalf("%q: %v", text, err)
	}
	a.value = string(body.Value)
	if body.Error != nil {
		a.err = &agentixv1.RemoteError{}
		if err := protojson.Unmarshal(body.Error, a.err); err != nil {
			t.Fatalf("%q: %v", body.Error, err)
		}
	}
	return a
}

func parseStatus(t *testing.T, text []byte) *status.Status {
	t.Helper()
	var st statuspb.Status
	if err := protojson.Unmarshal(text, &st); err != nil {
		t.Fatalf("%q is no google.rpc.Status: %v", text, err)
	}
	return status.FromProto(&st)
}

// reason is the reason of the one ErrorInfo that a status must have.
func reason(t *testing.T, st *status.Status) string {
	t.Helper()
	return errorInfo(t, st).GetReason()
}

func errorInfo(t *testing.T, st *status.Status) *errdetails.ErrorInfo {
	t.Helper()
	var infos []*errdetails.ErrorInfo
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			infos = append(infos, info)
		}
	}
	if len(infos) != 1 {
		t.Errorf("%v has %d ErrorInfo", st, len(infos))
		return nil
	}
	return infos[0]
}

func detail[T any](st *status.Status) T {
	for _, d := range st.Details() {
		if found, ok := d.(T); ok {
			return found
		}
	}
	var none T
	return none
}
