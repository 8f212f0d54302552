package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentixd/agentixd/daemon"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// creations are the ways to ask for a sandbox.
func creations(t *testing.T, e *daemontest.Env) map[string]func(*agentixv1.Sandbox) answer {
	t.Helper()
	overREST := func(client *http.Client, base string) func(*agentixv1.Sandbox) answer {
		return func(s *agentixv1.Sandbox) answer {
			body, err := json.Marshal(map[string]any{"project": s.GetProject(), "image": s.GetImage()})
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Post(base+"/v1/sandboxes", "application/json", strings.NewReader(string(body)))
			if err != nil {
				t.Fatal(err)
			}
			code, text := readAll(t, response)
			if code == http.StatusOK {
				return answer{http: code, value: text, st: status.New(codes.OK, "")}
			}
			return answer{http: code, st: parseStatus(t, []byte(text))}
		}
	}
	overGRPC := func(client agentixv1.SandboxServiceClient) func(*agentixv1.Sandbox) answer {
		return func(s *agentixv1.Sandbox) answer {
			made, err := client.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: s})
			return answer{value: made.GetName(), st: status.Convert(err)}
		}
	}
	return map[string]func(*agentixv1.Sandbox) answer{
		"gRPC over the Unix socket": overGRPC(e.Sandboxes), "gRPC over TCP": overGRPC(agentixv1.NewSandboxServiceClient(e.TCP)),
		"REST over the Unix socket": overREST(e.Unix, "http://agentixd"), "REST over TCP": overREST(e.HTTP, e.URL),
	}
}

func TestHostPathsAreRefused(t *testing.T) {
	e := daemontest.Start(t)
	projects := filepath.Dir(e.Project)
	link := filepath.Join(projects, "link")
	outside := t.TempDir()
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(e.Project, filepath.Join(projects, "inside")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(projects, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, create := range creations(t, e) {
		for _, path := range []string{
			"/root", "/", outside, link, filepath.Join(link, "."), filepath.Join(projects, "inside"), filepath.Join(projects, "file"), projects + "x", "/proc/self/root" + e.Project,
		} {
			isStatus(codes.PermissionDenied, 403, "HOST_PATH_REFUSED")(t, create(&agentixv1.Sandbox{Project: path}))
		}
		for _, path := range []string{projects + "/main/../../..", projects + "/../../root", "relative", projects + "/./main", projects + "//main"} {
			a := create(&agentixv1.Sandbox{Project: path})
			if a.st.Code() != codes.InvalidArgument && a.st.Code() != codes.PermissionDenied {
				t.Errorf("%s: %s: got %v", name, path, a.st)
			}
		}
		good := create(&agentixv1.Sandbox{Project: e.Project})
		if strings.Contains(name, "TCP") {
			isStatus(codes.PermissionDenied, 403, "HOST_PATH_REFUSED")(t, good) // clients with a token name no host paths
		} else if good.st.Code() != codes.OK {
			t.Errorf("%s: got %v", name, good.st)
		}
		isStatus(codes.FailedPrecondition, 400, "UNSUPPORTED")(t, create(&agentixv1.Sandbox{Image: "python"}))
	}
}

func TestNoHostPathWithoutAPrefix(t *testing.T) {
	e := daemontest.Start(t, func(c *daemon.Config) { c.AllowHostPath = nil })
	for _, create := range creations(t, e) {
		isStatus(codes.PermissionDenied, 403, "HOST_PATH_REFUSED")(t, create(&agentixv1.Sandbox{Project: "/root"}))
	}
}

func TestLifeOfASandbox(t *testing.T) {
	e := daemontest.Start(t)
	request := &agentixv1.CreateSandboxRequest{
		Sandbox:   &agentixv1.Sandbox{Project: e.WriteProject(t, map[string]string{"m.py": "import os\ndef env(n): return os.environ.get(n)\n"}), Labels: map[string]string{"team": "a"}, Env: map[string]string{"GREETING": "hi"}},
		SandboxId: "one", RequestId: "first",
	}
	made, err := e.Sandboxes.CreateSandbox(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if made.GetName() != "sandboxes/one" || made.GetState() != agentixv1.SandboxState_SANDBOX_STATE_READY || made.GetProvider() != "process" ||
		made.GetRuntime().GetVersion() == "" || made.GetRuntime().GetPython() == "" || made.GetLabels()["team"] != "a" || made.GetCreateTime() == nil {
		t.Errorf("got %v", made)
	}
	again, err := e.Sandboxes.CreateSandbox(t.Context(), request)
	if err != nil || again.GetName() != made.GetName() || !again.GetCreateTime().AsTime().Equal(made.GetCreateTime().AsTime()) {
		t.Errorf("the same request again: got %v, %v", again, err)
	}
	request.RequestId = "second"
	_, err = e.Sandboxes.CreateSandbox(t.Context(), request)
	isStatus(codes.AlreadyExists, 409, "SANDBOX_EXISTS")(t, answer{st: status.Convert(err)})
	isValue(`"hi"`)(t, restTCP(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: "sandboxes/one", Callable: "m::env", Args: `["GREETING"]`}))

	response, err := e.HTTP.Get(e.URL + "/v1/sandboxes/one")
	if err != nil {
		t.Fatal(err)
	}
	code, text := readAll(t, response)
	var got struct {
		Name, State, Provider string
		Env                   map[string]string
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 || got.Name != "sandboxes/one" || got.State != "SANDBOX_STATE_READY" || got.Env["GREETING"] != "hi" {
		t.Errorf("got %d %s", code, text)
	}
	for i := range 2 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, e.URL+"/v1/sandboxes/one", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := e.HTTP.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		code, text := readAll(t, response)
		if i == 0 && (code != 200 || text != "{}") {
			t.Errorf("delete: got %d %s", code, text)
		}
		if i == 1 {
			st := parseStatus(t, []byte(text))
			isStatus(codes.NotFound, 404, "SANDBOX_NOT_FOUND")(t, answer{http: code, st: st})
			if got := detail[*errdetails.ResourceInfo](st); got.GetResourceName() != "sandboxes/one" {
				t.Errorf("got %v", got)
			}
		}
	}
	if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: "sandboxes/one", AllowMissing: true}); err != nil {
		t.Error(err)
	}
}

func TestPagesOfSandboxes(t *testing.T) {
	e := daemontest.Start(t)
	var wait sync.WaitGroup
	for range 5 {
		wait.Go(func() { e.Sandbox(t) })
	}
	wait.Wait()
	seen := map[string]bool{}
	token := ""
	for range 3 {
		page, err := e.Sandboxes.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, sandbox := range page.GetSandboxes() {
			seen[sandbox.GetName()] = true
		}
		token = page.GetNextPageToken()
	}
	if len(seen) != 5 || token != "" {
		t.Errorf("got %v, then %q", seen, token)
	}
	_, err := e.Sandboxes.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{PageToken: "rubbish"})
	isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "page_token")(t, answer{st: status.Convert(err)})
	_, err = e.Sandboxes.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{PageSize: -1})
	isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "page_size")(t, answer{st: status.Convert(err)})
}

// Deleting a sandbox ends its calls, by each protocol, with the reason.
func TestDeleteUnderACall(t *testing.T) {
	e, _ := start(t)
	for name, remote := range protocols {
		sandbox := e.Sandbox(t)
		_, done := hanging(t.Context(), t, e, remote, &agentixv1.RemoteRequest{Sandbox: sandbox})
		if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: sandbox}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		isError("SandboxLost", "", func(e *agentixv1.RemoteError) bool { return e.GetCause() == "DELETED" })(t, <-done)
	}
}

func TestImagesNeedAProviderThatHasThem(t *testing.T) {
	e := daemontest.Start(t)
	_, err := e.Images.ListImages(t.Context(), &agentixv1.ListImagesRequest{})
	isStatus(codes.FailedPrecondition, 400, "UNSUPPORTED")(t, answer{st: status.Convert(err)})
	for name, message := range map[string]*agentixv1.ImportImageRequest{
		"UNSUPPORTED":   {Message: &agentixv1.ImportImageRequest_Header{Header: &agentixv1.ImportImageHeader{Name: "x"}}},
		"INVALID_FIELD": {Message: &agentixv1.ImportImageRequest_Chunk{Chunk: []byte("x")}},
	} {
		s, err := e.Images.ImportImage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(message) // the answer tells
		_, err = s.CloseAndRecv()
		if got := reason(t, status.Convert(err)); got != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// The daemon's log tells of faults and of life, and holds no secret.
func TestLogHoldsNoSecret(t *testing.T) {
	e, sandbox := start(t)
	const canary = "CANARY-1f8e"
	isValue(`"`+canary+`"`)(t, restTCP(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::same", Args: `["` + canary + `"]`}))
	isError("Unhappy", canary)(t, grpcTCP(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::fail", Args: `["` + canary + `"]`}))
	await.True(t, func() bool { return strings.Count(e.Logs(), "method=/agentix.v1.RemoteService/Remote") >= 2 }, "both calls in the log")
	for _, secret := range []string{e.Token, canary} {
		if strings.Contains(e.Logs(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}
