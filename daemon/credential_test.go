package daemon_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// reasonOf returns the reason of the one ErrorInfo that every status must have.
func reasonOf(t *testing.T, st *status.Status) string {
	t.Helper()
	var infos []*errdetails.ErrorInfo
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			infos = append(infos, info)
		}
	}
	if len(infos) != 1 || infos[0].GetDomain() != "agentix.dev" {
		t.Errorf("%v: %d ErrorInfo: %v", st, len(infos), infos)
		return ""
	}
	if _, known := agentixv1.ErrorReason_value["ERROR_REASON_"+infos[0].GetReason()]; !known {
		t.Errorf("%v: reason %q is not in the closed list", st, infos[0].GetReason())
	}
	return infos[0].GetReason()
}

// methods are all RPCs of the API and of reflection, from their descriptors.
func methods() []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	for _, file := range []protoreflect.FileDescriptor{
		agentixv1.File_agentix_v1_sandbox_service_proto, agentixv1.File_agentix_v1_remote_service_proto,
		agentixv1.File_agentix_v1_event_service_proto, agentixv1.File_agentix_v1_image_service_proto,
		reflectionv1.File_grpc_reflection_v1_reflection_proto,
	} {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				all = append(all, file.Services().Get(i).Methods().Get(j))
			}
		}
	}
	return all
}

func fullName(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// invoke calls any RPC with an empty message and returns how it ended.
func invoke(ctx context.Context, conn *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(&emptypb.Empty{})
	_ = stream.CloseSend()
	for err == nil {
		err = stream.RecvMsg(&emptypb.Empty{})
	}
	return err
}

var credentials = map[string][]string{
	"none": nil, "empty": {""}, "empty token": {"Bearer "}, "wrong token": {"Bearer AAAAAAAAAAAAAAAAAAAAAAAA"}, "other scheme": {"Basic TOKEN"}, "twice": {"Bearer TOKEN", "Bearer TOKEN"},
}

func TestR11_EveryRPCNeedsACredential(t *testing.T) {
	e := daemontest.Start(t)
	open, err := grpc.NewClient(e.Daemon.HTTPAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close() })
	all := methods()
	if len(all) < 9 {
		t.Fatalf("only %d methods", len(all))
	}
	for _, m := range all {
		for name, headers := range credentials {
			md := metadata.MD{"agentix-peer-uid": {"0"}, "agentix-peer-gid": {"0"}, "agentix-peer-pid": {"1"}}
			for _, header := range headers {
				md.Append("authorization", strings.ReplaceAll(header, "TOKEN", e.Token))
			}
			st := status.Convert(invoke(metadata.NewOutgoingContext(t.Context(), md), open, fullName(m)))
			if reason := reasonOf(t, st); st.Code() != codes.Unauthenticated || reason != "UNAUTHENTICATED" {
				t.Errorf("%s with credential %q: got %v (%s)", m.FullName(), name, st, reason)
			}
		}
	}
	if _, err := healthv1.NewHealthClient(open).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "agentix.v1.RemoteService"}); err != nil {
		t.Errorf("health without a credential: %v", err)
	}
	if logs := e.Logs(); strings.Contains(logs, e.Token) {
		t.Error("the token is in the log")
	}
}

// routes are all REST routes, from the annotations.
func routes() map[string]string {
	all := map[string]string{}
	for _, m := range methods() {
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		switch pattern := rule.GetPattern().(type) {
		case *annotations.HttpRule_Get:
			all["GET "+pattern.Get] = string(m.Name())
		case *annotations.HttpRule_Post:
			all["POST "+pattern.Post] = string(m.Name())
		case *annotations.HttpRule_Delete:
			all["DELETE "+pattern.Delete] = string(m.Name())
		case *annotations.HttpRule_Patch:
			all["PATCH "+pattern.Patch] = string(m.Name())
		}
	}
	return all
}

func restStatus(t *testing.T, response *http.Response) *status.Status {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var st statuspb.Status
	if err := protojson.Unmarshal(text, &st); err != nil {
		t.Errorf("HTTP %d with %q: %v", response.StatusCode, text, err)
	}
	return status.FromProto(&st)
}

func TestR11_EveryRouteNeedsACredential(t *testing.T) {
	e := daemontest.Start(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	all := routes()
	if len(all) < 7 {
		t.Fatalf("only %d routes", len(all))
	}
	all["GET /no/such/route"] = "an unknown route"
	all["GET /metrics"] = "the metrics"
	for route := range all {
		method, path, _ := strings.Cut(route, " ")
		path = strings.ReplaceAll(resourceName.ReplaceAllString(path, "$1"), "*", "x")
		for name, headers := range credentials {
			for _, query := range []string{"", "?token=" + e.Token, "?access_token=" + e.Token} {
				request, err := http.NewRequestWithContext(t.Context(), method, e.URL+path+query, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				for _, header := range headers {
					request.Header.Add("Authorization", strings.ReplaceAll(header, "TOKEN", e.Token))
				}
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				st := restStatus(t, response)
				if reason := reasonOf(t, st); response.StatusCode != http.StatusUnauthorized || st.Code() != codes.Unauthenticated || reason != "UNAUTHENTICATED" {
					t.Errorf("%s%s with credential %q: got HTTP %d, %v", route, query, name, response.StatusCode, st)
				}
				if got := response.Header.Get("WWW-Authenticate"); got != "Bearer" {
					t.Errorf("%s: WWW-Authenticate is %q", route, got)
				}
			}
		}
	}
	if logs := e.Logs(); strings.Contains(logs, e.Token) {
		t.Error("the token is in the log")
	}
}

func TestUnknownMethodsHaveAnErrorInfo(t *testing.T) {
	e := daemontest.Start(t)
	for _, method := range []string{"/agentix.v1.RemoteService/Nope", "/agentix.v9.Nope/Nope", "/nope/" + strings.Repeat("x", 4000)} {
		st := status.Convert(invoke(t.Context(), e.Conn, method))
		if reason := reasonOf(t, st); st.Code() != codes.Unimplemented || reason != "NO_SUCH_METHOD" {
			t.Errorf("%.60s: got %v (%s)", method, st, reason)
		}
	}
}
