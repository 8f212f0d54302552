package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
)

func value(text string) *agentixv1.RemoteResponse {
	return &agentixv1.RemoteResponse{CallId: "c1", Outcome: &agentixv1.RemoteResponse_Value{Value: text}}
}

func failure(e *agentixv1.RemoteError) *agentixv1.RemoteResponse {
	return &agentixv1.RemoteResponse{CallId: "c1", Outcome: &agentixv1.RemoteResponse_Error{Error: e}}
}

func refusal(t *testing.T) error {
	t.Helper()
	s, err := status.New(codes.InvalidArgument, "the arguments do not fit").WithDetails(
		&errdetails.ErrorInfo{Reason: "ARGUMENTS_INVALID", Domain: "agentix.dev"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "kwargs.input", Description: "is missing"},
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func TestCallOutcomes(t *testing.T) {
	exact := `{"a": 9007199254740993, "b": 1.0, "c": -0.0, "d": [1e22]}`
	returncode := int32(-9)
	refused := refusal(t)
	for name, test := range map[string]struct {
		response *agentixv1.RemoteResponse
		err      error
		args     []string
		want     result
	}{
		"the value verbatim": {response: value(exact), want: result{0, exact + "\n", ""}},
		"the value in the answer as JSON": {
			response: value(exact), args: []string{"-o", "json"},
			want: result{0, `{"callId":"c1","value":{"a":9007199254740993,"b":1.0,"c":-0.0,"d":[1e22]}}` + "\n", ""},
		},
		"a traceback": {
			response: failure(&agentixv1.RemoteError{Type: "ValueError", Message: "no", Traceback: "Traceback\n  at app\nValueError: no\x1b[2J\n"}),
			want:     result{1, "", "Traceback\n  at app\nValueError: no\\x1b[2J\n"},
		},
		"an error without a traceback": {
			response: failure(&agentixv1.RemoteError{Type: "WorkerDied", Message: "the worker died", Returncode: &returncode, Cause: "SIGNAL"}),
			want:     result{1, "", "WorkerDied: the worker died (return code -9)\n"},
		},
		"an error as JSON": {
			response: failure(&agentixv1.RemoteError{Type: "E", Message: "m"}), args: []string{"-o", "json"},
			want: result{1, `{"callId":"c1","error":{"message":"m","type":"E"}}` + "\n", ""},
		},
		"a refusal": {
			err:  refused,
			want: result{2, "", "agentix: ARGUMENTS_INVALID: the arguments do not fit\n  kwargs.input: is missing\n"},
		},
		"a status without a reason": {
			err:  status.Error(codes.Unavailable, "gone\x07"),
			want: result{2, "", "agentix: Unavailable: gone\\x07\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, &daemon{remote: func(context.Context, *agentixv1.RemoteRequest) (*agentixv1.RemoteResponse, error) {
				return test.response, test.err
			}})
			got := execute(t, "", append([]string{"--address", address, "call", "box", "app::run"}, test.args...)...)
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCallRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "args.json")
	if err := os.WriteFile(file, []byte("[1.0]"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got *agentixv1.RemoteRequest
	var authorization []string
	address := serve(t, &daemon{remote: func(ctx context.Context, r *agentixv1.RemoteRequest) (*agentixv1.RemoteResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		got, authorization = proto.CloneOf(r), md.Get("authorization")
		return value("null"), nil
	}})
	t.Setenv("AGENTIX_ADDRESS", address)
	t.Setenv("AGENTIX_TOKEN", "secret")

	ran := execute(t, `{"a": 1e5}`, "call", "sandboxes/box", "m::f", "--args", "@"+file, "--kwargs", "-", "--timeout", "90s", "--call-id", "id-1")

	if ran.Code != 0 {
		t.Fatalf("code %d: %s", ran.Code, ran.Stderr)
	}
	want := &agentixv1.RemoteRequest{
		Sandbox: "sandboxes/box", Callable: "m::f", Args: "[1.0]", Kwargs: `{"a": 1e5}`, CallId: "id-1",
		Timeout: &durationpb.Duration{Seconds: 90}, ResultEncoding: agentixv1.Encoding_ENCODING_JSON,
	}
	if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(authorization, []string{"Bearer secret"}); diff != "" {
		t.Error(diff)
	}
}

func TestTokenFileComesBeforeTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENTIX_TOKEN", "from-environment")

	got, err := (&app{tokenFile: file}).token()

	if err != nil || got != "from-file" {
		t.Errorf("token %q, error %v", got, err)
	}
	missing := execute(t, "", "--token-file", file+"-none", "call", "a", "b::c")
	if missing.Code != 2 || !strings.Contains(missing.Stderr, "read token") {
		t.Errorf("a missing token file: %+v", missing)
	}
}

func TestNoDaemon(t *testing.T) {
	got := execute(t, "", "--address", filepath.Join(t.TempDir(), "none"), "call", "a", "b::c")
	if got.Code != 2 || !strings.HasPrefix(got.Stderr, "agentix: Unavailable: ") || strings.Contains(got.Stderr, "rpc error") ||
		!strings.Contains(got.Stderr, "is agentixd running there?") {
		t.Errorf("%+v", got)
	}
}

func TestAddressForms(t *testing.T) {
	for address, want := range map[string]string{
		"": defaultAddress, "/run/a.sock": "unix:///run/a.sock", "unix:///run/a.sock": "unix:///run/a.sock", "unix:a.sock": "unix:a.sock",
		"127.0.0.1:7070": "127.0.0.1:7070", "http://localhost:7070": "localhost:7070", "[::1]:7070": "[::1]:7070",
		"box": "", "unix://": "", "localhost": "", "localhost:": "", "https://localhost:7070": "",
	} {
		t.Setenv("AGENTIX_ADDRESS", "")
		got, err := (&app{address: address}).target()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", address, got, err, want)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"call", "box"}, {"call", "box", "a::b", "--timeout", "x"}, {"-o", "yaml", "sandbox", "ls"}, {"nonsense"},
		{"sandbox", "create", "--env", "novalue"}, {"sandbox", "create", "--memory", "lots"}, {"sandbox", "rm"},
		{"events", "box", "--kind", "noise"}, {"events", "box", "--tail", "1", "--after", "x"},
		{"call", "box", "a::b", "--args", "@/nonexistent"}, {"image", "import", "/nonexistent"},
	} {
		got := execute(t, "", args...)
		if got.Code != 2 || !strings.HasPrefix(got.Stderr, "agentix: ") || got.Stdout != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := execute(t, "", "call", "box"); !strings.Contains(got.Stderr, "usage: agentix call SANDBOX MODULE::FUNCTION") {
		t.Errorf("a missing argument: %q", got.Stderr)
	}
}

func TestInterruptCancelsTheCall(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	cancelled := make(chan struct{})
	address := serve(t, &daemon{remote: func(ctx context.Context, _ *agentixv1.RemoteRequest) (*agentixv1.RemoteResponse, error) {
		interrupt(errors.New("interrupted by the test"))
		<-ctx.Done()
		close(cancelled)
		return nil, ctx.Err()
	}})

	got := executeContext(ctx, "", "--address", address, "call", "a", "b::c")

	<-cancelled
	if diff := cmp.Diff(got, result{130, "", "agentix: interrupted\n"}); diff != "" {
		t.Error(diff)
	}
}
