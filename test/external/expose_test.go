package external

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// exposed makes a sandbox of the daemon's own that neighbours may reach, and returns it.
func exposed(t *testing.T, e *daemontest.Env) *agentixv1.Sandbox {
	t.Helper()
	e.Template.ExposeRuntime = true
	e.WriteProject(t, map[string]string{"app.py": "import time\ndef echo(*a):\n    print('hello', *a)\n    return list(a)\n"})
	made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: e.Template})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func health(t *testing.T, target string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, context.DeadlineExceeded)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestExposedRuntime: a host of the public protocol, here a second sandbox, calls in a
// container's runtime by its URL; nobody else does; and all ends with the sandbox.
func TestExposedRuntime(t *testing.T) {
	e := start(t)
	made := exposed(t, e)
	target, err := url.Parse(made.GetRuntime().GetUrl())
	if err != nil || target.Hostname() != "127.0.0.1" || target.User == nil || !made.GetExposeRuntime() {
		t.Fatalf("url %q, %v", made.GetRuntime().GetUrl(), err)
	}
	password, _ := target.User.Password()
	bare := "http://" + target.Host
	for name, c := range map[string]struct {
		url  string
		code int
	}{
		"no secret":      {bare, http.StatusUnauthorized},
		"wrong secret":   {"http://agentix:wrong@" + target.Host, http.StatusUnauthorized},
		"daemon's token": {"http://agentix:" + e.Token + "@" + target.Host, http.StatusUnauthorized},
		"any user":       {"http://someone:" + password + "@" + target.Host, http.StatusOK},
	} {
		if code, body := health(t, c.url); code != c.code {
			t.Errorf("%s: got %d %s", name, code, body)
		}
	}
	guest := join(t, e, made.GetRuntime().GetUrl())
	if got := call(t, e, guest, "echo", `[1]`); got != "[1]" {
		t.Errorf("guest: got %s", got)
	}
	if got := call(t, e, made.GetName(), "echo", `[2]`); got != "[2]" {
		t.Errorf("owner: got %s", got)
	}
	if strings.Contains(e.Logs(), password) {
		t.Error("the secret is in the daemon's log")
	}
	if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: made.GetName()}); err != nil {
		t.Fatal(err)
	}
	if code, _ := health(t, target.String()); code != 0 {
		t.Errorf("after delete: %d", code)
	}
}

// TestExposedSecretIsShownToFew: the one who made the sandbox, and callers on the Unix socket.
func TestExposedSecretIsShownToFew(t *testing.T) {
	e := start(t)
	made := exposed(t, e)
	bare := "http://" + made.GetRuntime().GetUrl()[strings.Index(made.GetRuntime().GetUrl(), "@")+1:]
	get := &agentixv1.GetSandboxRequest{Name: made.GetName()}
	if got, err := e.Sandboxes.GetSandbox(t.Context(), get); err != nil || got.GetRuntime().GetUrl() != made.GetRuntime().GetUrl() {
		t.Errorf("on the socket: got %v, %v", got.GetRuntime(), err)
	}
	tcp := agentixv1.NewSandboxServiceClient(e.TCP)
	if got, err := tcp.GetSandbox(t.Context(), get); err != nil || got.GetRuntime().GetUrl() != bare {
		t.Errorf("with the token: got %v, %v", got.GetRuntime(), err)
	}
	for name, client := range map[string]agentixv1.SandboxServiceClient{"socket": e.Sandboxes, "token": tcp} {
		list, err := client.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{})
		if err != nil || len(list.GetSandboxes()) != 1 || list.GetSandboxes()[0].GetRuntime().GetUrl() != bare {
			t.Errorf("list by %s: got %v, %v", name, list, err)
		}
	}
	again, err := tcp.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{ExposeRuntime: true}, RequestId: "r"})
	if err != nil || !strings.Contains(again.GetRuntime().GetUrl(), "@") {
		t.Errorf("made with the token: got %v, %v", again.GetRuntime(), err)
	}
}

// TestExposedPortSurvivesARestart: clients of the public protocol keep their URL.
func TestExposedPortSurvivesARestart(t *testing.T) {
	e := start(t)
	made := exposed(t, e)
	target := made.GetRuntime().GetUrl()
	e.Stop(t)
	if code, _ := health(t, target); code != 0 {
		t.Errorf("without a daemon: %d", code)
	}
	e.Boot(t)
	got, err := e.Sandboxes.GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: made.GetName()})
	if err != nil || got.GetRuntime().GetUrl() != target {
		t.Errorf("got %v, %v", got.GetRuntime(), err)
	}
	if code, body := health(t, target); code != http.StatusOK {
		t.Errorf("got %d %s", code, body)
	}
}

// TestJoinRefusals: what may not be joined, each with its reason.
func TestJoinRefusals(t *testing.T) {
	e := start(t)
	tcp := agentixv1.NewSandboxServiceClient(e.TCP)
	for name, c := range map[string]struct {
		client  agentixv1.SandboxServiceClient
		sandbox *agentixv1.Sandbox
		code    codes.Code
	}{
		"metadata":           {e.Sandboxes, external("http://169.254.169.254"), codes.PermissionDenied},
		"not allowed":        {e.Sandboxes, external("http://10.1.2.3:8000"), codes.PermissionDenied},
		"socket not allowed": {e.Sandboxes, external("unix:///run/containerd/containerd.sock"), codes.PermissionDenied},
		"socket by token":    {tcp, external("unix:///tmp/x"), codes.PermissionDenied},
		"malformed":          {e.Sandboxes, external("http://127.0.0.1/base/path"), codes.InvalidArgument},
		"no url":             {e.Sandboxes, external(""), codes.InvalidArgument},
		"unknown provider":   {e.Sandboxes, &agentixv1.Sandbox{Provider: "kubernetes"}, codes.InvalidArgument},
		"url, own provider":  {e.Sandboxes, &agentixv1.Sandbox{Runtime: &agentixv1.Runtime{Url: "http://127.0.0.1:1"}}, codes.FailedPrecondition},
		"runtime set":        {e.Sandboxes, &agentixv1.Sandbox{Runtime: &agentixv1.Runtime{Version: "1"}}, codes.InvalidArgument},
		"exposed":            {e.Sandboxes, &agentixv1.Sandbox{Provider: "external", Runtime: &agentixv1.Runtime{Url: "http://127.0.0.1:1"}, ExposeRuntime: true}, codes.FailedPrecondition},
		"environment":        {e.Sandboxes, &agentixv1.Sandbox{Provider: "external", Runtime: &agentixv1.Runtime{Url: "http://127.0.0.1:1"}, Env: map[string]string{"A": "b"}}, codes.FailedPrecondition},
	} {
		_, err := c.client.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: c.sandbox})
		if status.Code(err) != c.code {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
	}
	list, err := e.Sandboxes.ListSandboxes(t.Context(), &agentixv1.ListSandboxesRequest{})
	if err != nil || len(list.GetSandboxes()) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

func external(target string) *agentixv1.Sandbox {
	return &agentixv1.Sandbox{Provider: "external", Runtime: &agentixv1.Runtime{Url: target}}
}

// TestWhatIsThereIsNoRuntime: a create tells why the address that was joined does not do.
func TestWhatIsThereIsNoRuntime(t *testing.T) {
	e := start(t)
	made := exposed(t, e)
	bare := "http://wrong:secret@" + made.GetRuntime().GetUrl()[strings.Index(made.GetRuntime().GetUrl(), "@")+1:]
	for name, c := range map[string]struct{ url, says string }{
		"wrong secret": {bare, "status 401"},
		"nobody":       {"http://127.0.0.1:" + freePort(t), "connection refused"},
		"no runtime":   {e.URL, "status 401"},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, context.DeadlineExceeded)
		_, err := e.Sandboxes.CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{Sandbox: external(c.url)})
		cancel()
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(fmt.Sprint(err), c.says) || strings.Contains(fmt.Sprint(err), "wrong") {
			t.Errorf("%s: got %v, want %q in it", name, err, c.says)
		}
	}
}
