package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// pooled makes a template of the test's sandboxes and waits until its pool is full.
func pooled(t *testing.T, e *daemontest.Env, id string, size int32, preload ...string) {
	t.Helper()
	_, err := e.Templates.CreateTemplate(t.Context(), &agentixv1.CreateTemplateRequest{
		TemplateId: id, Template: &agentixv1.Template{Sandbox: proto.CloneOf(e.Template), Size: size, Preload: preload},
	})
	if err != nil {
		t.Fatal(err)
	}
	full(t, e, id, size)
}

func full(t *testing.T, e *daemontest.Env, id string, size int32) {
	t.Helper()
	await.True(t, func() bool {
		got, err := e.Templates.GetTemplate(t.Context(), &agentixv1.GetTemplateRequest{Name: "templates/" + id})
		if err != nil || got.GetMessage() != "" {
			t.Fatalf("template: %v, %v", got, err)
		}
		return got.GetReady() == size
	}, "the pool to be full")
}

func taken(t *testing.T, e *daemontest.Env, id string) *agentixv1.Sandbox {
	t.Helper()
	s, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{Template: "templates/" + id}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPoolToFirstResult measures what a waiting sandbox saves, beside a start; figures are
// printed, never asserted.
func TestPoolToFirstResult(t *testing.T) {
	e, _ := start(t)
	const rounds = 20
	pooled(t, e, "warm", 4, "app")
	var takes []time.Duration
	measure := func(s *agentixv1.Sandbox, first bool) time.Duration {
		began := time.Now()
		made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: s})
		if err != nil {
			t.Fatal(err)
		}
		if first {
			takes = append(takes, time.Since(began))
		}
		isValue(`{"output":"HELLO"}`)(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: made.GetName(), Callable: "app::run", Kwargs: `{"input": "hello"}`}))
		took := time.Since(began)
		if first == (made.GetTemplate() == "") {
			t.Errorf("made %v", made)
		}
		if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: made.GetName()}); err != nil {
			t.Fatal(err)
		}
		return took
	}
	var warm, cold []time.Duration
	for i := range rounds {
		full(t, e, "warm", 4)
		warm = append(warm, measure(&agentixv1.Sandbox{Template: "templates/warm"}, true))
		if i%4 == 0 {
			full(t, e, "warm", 4)
			cold = append(cold, measure(e.Template, false))
		}
	}
	slices.Sort(warm)
	slices.Sort(cold)
	slices.Sort(takes)
	t.Logf("pool to first result: p50 %s, p95 %s, of which the take: p50 %s; start to first result: p50 %s (%d and %d rounds)",
		warm[len(warm)/2], warm[len(warm)*95/100], takes[len(takes)/2], cold[len(cold)/2], len(warm), len(cold))
	if warm[len(warm)/2] > cold[len(cold)/2] {
		t.Error("a waiting sandbox is slower than a start")
	}
	got, err := e.Templates.GetTemplate(t.Context(), &agentixv1.GetTemplateRequest{Name: "templates/warm"})
	if err != nil || got.GetHits() != rounds || got.GetMisses() != 0 {
		t.Errorf("template: %v, %v", got, err)
	}
	code, text := overREST(t, e, http.MethodGet, "/metrics", "")
	for _, line := range []string{
		fmt.Sprintf(`agentix_pool_takes_total{result="hit",template="warm"} %d`, rounds), `agentix_pool_takes_total{result="miss",template="warm"} 0`,
		`agentix_sandboxes{state="ready"} 1`, "agentix_calls_open 0", `agentix_pool_size{template="warm"} 4`, "go_goroutines", "process_resident_memory_bytes",
	} {
		if code != http.StatusOK || !strings.Contains(text, line) {
			t.Errorf("%d without %s:\n%s", code, line, text)
		}
	}
}

// TestTemplatesOverREST: the resource by its JSON.
func TestTemplatesOverREST(t *testing.T) {
	e := daemontest.Start(t)
	code, text := overREST(t, e, http.MethodPost, "/v1/templates?templateId=warm", `{"sandbox": {"labels": {"a": "b"}, "ttl": "3600s"}, "preload": ["json"], "size": 1}`)
	if code != http.StatusOK || !strings.Contains(text, `"templates/warm"`) || !strings.Contains(text, `"3600s"`) {
		t.Fatalf("%d %s", code, text)
	}
	full(t, e, "warm", 1)
	code, text = overREST(t, e, http.MethodPost, "/v1/sandboxes", `{"template": "templates/warm", "labels": {"c": "d"}}`)
	s := parseShown(t, code, text)
	if s.State != "SANDBOX_STATE_READY" || s.Labels["a"] != "b" || s.Labels["c"] != "d" || s.ExpireTime == "" {
		t.Errorf("%s", text)
	}
	if code, text = overREST(t, e, http.MethodPatch, "/v1/templates/warm", `{"size": 2}`); code != http.StatusOK || !strings.Contains(text, `"size":2`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text = overREST(t, e, http.MethodPatch, "/v1/templates/warm", `{"preload": []}`); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, text)
	}
	if code, text = overREST(t, e, http.MethodGet, "/v1/templates", ""); code != http.StatusOK || !strings.Contains(text, "templates/warm") {
		t.Errorf("%d %s", code, text)
	}
	if code, text = overREST(t, e, http.MethodDelete, "/v1/templates/warm", ""); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	_, err := e.Templates.GetTemplate(t.Context(), &agentixv1.GetTemplateRequest{Name: "templates/warm"})
	isStatus(codes.NotFound, 404, "TEMPLATE_NOT_FOUND")(t, answer{st: status.Convert(err)})
}

// TestPooledSandboxIsWhole: what was taken runs, pauses, expires and is deleted as any other.
func TestPooledSandboxIsWhole(t *testing.T) {
	e, _ := start(t)
	pooled(t, e, "warm", 1)
	s := taken(t, e, "warm")
	isValue(`{"output":"HELLO"}`)(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: s.GetName(), Callable: "app::run", Kwargs: `{"input": "hello"}`}))
	if _, err := e.Sandboxes.PauseSandbox(t.Context(), &agentixv1.PauseSandboxRequest{Name: s.GetName()}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Sandboxes.ResumeSandbox(t.Context(), &agentixv1.ResumeSandboxRequest{Name: s.GetName()}); err != nil {
		t.Fatal(err)
	}
	e.Stop(t)
	e.Boot(t)
	isValue(`{"output":"HELLO"}`)(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: s.GetName(), Callable: "app::run", Kwargs: `{"input": "hello"}`}))
	full(t, e, "warm", 1)
	if again := taken(t, e, "warm"); again.GetName() == s.GetName() {
		t.Error("one sandbox was taken twice")
	}
}
