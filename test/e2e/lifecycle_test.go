package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// overREST sends one request and returns its code and body.
func overREST(t *testing.T, e *daemontest.Env, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, e.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, response)
}

// shown is a sandbox in JSON.
type shown struct {
	Name, State, ExpireTime, IdleTimeout string
	Labels                               map[string]string
}

func parseShown(t *testing.T, code int, text string) (s shown) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	return s
}

// TestUpdateOverBothProtocols: what an update names changes, and nothing else.
func TestUpdateOverBothProtocols(t *testing.T) {
	e := daemontest.Start(t)
	made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{SandboxId: "box", Sandbox: &agentixv1.Sandbox{
		Labels: map[string]string{"team": "a", "old": "1"}, Expiration: &agentixv1.Sandbox_Ttl{Ttl: durationpb.New(time.Hour)},
	}})
	if err != nil || made.GetExpireTime() == nil || made.GetTtl() != nil {
		t.Fatalf("made %v, %v", made, err)
	}
	code, text := overREST(t, e, http.MethodPatch, "/v1/sandboxes/box", `{"idleTimeout": "90s", "labels": {"team": "b"}}`)
	s := parseShown(t, code, text)
	expires, err := time.Parse(time.RFC3339Nano, s.ExpireTime)
	if err != nil || s.Labels["team"] != "b" || s.IdleTimeout != "90s" || !expires.Equal(made.GetExpireTime().AsTime()) {
		t.Errorf("after PATCH: %+v, %v", s, err)
	}
	code, text = overREST(t, e, http.MethodPatch, "/v1/sandboxes/box?updateMask=expireTime,labels", `{}`)
	if s = parseShown(t, code, text); s.ExpireTime != "" || len(s.Labels) != 0 || s.IdleTimeout != "90s" {
		t.Errorf("after a mask of unset fields: %+v", s)
	}
	update := func(s *agentixv1.Sandbox, paths ...string) (*agentixv1.Sandbox, error) {
		s.Name = "sandboxes/box"
		return e.Sandboxes.UpdateSandbox(t.Context(), &agentixv1.UpdateSandboxRequest{Sandbox: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	}
	got, err := update(&agentixv1.Sandbox{Labels: map[string]string{"a.b/c": "1"}}, "labels.a.b/c", "labels.gone", "idle_timeout")
	if err != nil || len(got.GetLabels()) != 1 || got.GetLabels()["a.b/c"] != "1" || got.GetIdleTimeout() != nil {
		t.Errorf("got %v, %v", got, err)
	}
	for _, c := range []struct {
		s     *agentixv1.Sandbox
		paths []string
	}{
		{&agentixv1.Sandbox{Image: "x"}, []string{"image"}},
		{&agentixv1.Sandbox{}, []string{"ttl"}},
		{&agentixv1.Sandbox{Expiration: &agentixv1.Sandbox_Ttl{Ttl: durationpb.New(-time.Second)}}, []string{"ttl"}},
		{&agentixv1.Sandbox{Expiration: &agentixv1.Sandbox_ExpireTime{ExpireTime: &timestamppb.Timestamp{Nanos: -1}}}, []string{"expire_time"}},
		{&agentixv1.Sandbox{Labels: map[string]string{"A": ""}}, nil},
	} {
		if _, err := update(c.s, c.paths...); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", c.paths, err)
		}
	}
	if code, text := overREST(t, e, http.MethodPatch, "/v1/sandboxes/box", `{"image": "x"}`); code != http.StatusBadRequest {
		t.Errorf("PATCH of the image: %d %s", code, text)
	}
}

func TestFilterAndDeleteMatchingOverREST(t *testing.T) {
	e := daemontest.Start(t)
	for _, id := range []string{"a", "b"} {
		if _, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{SandboxId: id, Sandbox: &agentixv1.Sandbox{Labels: map[string]string{"id": id}}}); err != nil {
			t.Fatal(err)
		}
	}
	code, text := overREST(t, e, http.MethodGet, "/v1/sandboxes?filter=state%3DREADY%20AND%20labels.id%3Da", "")
	var page struct{ Sandboxes []shown }
	if err := json.Unmarshal([]byte(text), &page); err != nil || code != 200 || len(page.Sandboxes) != 1 || page.Sandboxes[0].Name != "sandboxes/a" {
		t.Errorf("%d %s", code, text)
	}
	if code, text := overREST(t, e, http.MethodGet, "/v1/sandboxes?filter=colour%3Dred", ""); code != 400 || !strings.Contains(text, "no field to filter by") {
		t.Errorf("%d %s", code, text)
	}
	for _, body := range []string{`{}`, `{"filter": ""}`, `{"filter": " "}`, `{"dryRun": true}`} {
		if code, text := overREST(t, e, http.MethodPost, "/v1/sandboxes:deleteMatching", body); code != 400 {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	type matched struct{ Sandboxes []string }
	var dry, done matched
	if code, text = overREST(t, e, http.MethodPost, "/v1/sandboxes:deleteMatching", `{"filter": "labels:id", "dryRun": true}`); json.Unmarshal([]byte(text), &dry) != nil || len(dry.Sandboxes) != 2 {
		t.Errorf("%d %s", code, text)
	}
	if code, text = overREST(t, e, http.MethodPost, "/v1/sandboxes:deleteMatching", `{"filter": "labels.id = \"a\""}`); json.Unmarshal([]byte(text), &done) != nil || len(done.Sandboxes) != 1 {
		t.Errorf("%d %s", code, text)
	}
	if code, text = overREST(t, e, http.MethodGet, "/v1/sandboxes", ""); strings.Contains(text, "sandboxes/a") || !strings.Contains(text, "sandboxes/b") {
		t.Errorf("%d %s", code, text)
	}
}

// TestWatchOverREST: one change is one line.
func TestWatchOverREST(t *testing.T) {
	e := daemontest.Start(t)
	response, err := e.HTTP.Get(e.URL + "/v1/sandboxes:watch?filter=labels:team")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "application/x-ndjson" {
		t.Fatalf("%d %s", response.StatusCode, kind)
	}
	if _, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{SandboxId: "box", Sandbox: &agentixv1.Sandbox{Labels: map[string]string{"team": "x"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: "sandboxes/box"}); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(response.Body)
	var types []string
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		var change struct {
			Type    string
			Sandbox shown
		}
		if err := json.Unmarshal(lines.Bytes(), &change); err != nil || change.Sandbox.Name != "sandboxes/box" {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if types = append(types, change.Type); change.Type == "SANDBOX_CHANGE_TYPE_REMOVED" {
			break
		}
	}
	if len(types) < 2 || types[0] != "SANDBOX_CHANGE_TYPE_ADDED" {
		t.Errorf("types %q", types)
	}
	if code, text := overREST(t, e, http.MethodGet, "/v1/sandboxes:watch?filter=nonsense", ""); code != 400 {
		t.Errorf("%d %s", code, text)
	}
}

// TestIdleSandboxEnds: with the real clock, a call keeps it and silence ends it.
func TestIdleSandboxEnds(t *testing.T) {
	e := daemontest.Start(t)
	s, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{IdleTimeout: durationpb.New(2 * time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: s.GetName(), Callable: "time::sleep", Args: "[4]"})
	if err != nil || response.GetError() != nil {
		t.Fatalf("a call that outlasts the idle time-out: %v, %v", response, err)
	}
	called := time.Now()
	await.True(t, func() bool {
		_, err := e.Sandboxes.GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: s.GetName()})
		return status.Code(err) == codes.NotFound
	}, "the end of an idle sandbox")
	if idle := time.Since(called); idle < time.Second {
		t.Errorf("it ended %s after the call", idle)
	}
}
