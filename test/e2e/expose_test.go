package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/runtime/wire"
)

// TestNeighbourCallsInAnExposedSandbox: a client of the public protocol reaches the runtime
// of a sandbox by its URL, and nobody does without the secret.
func TestNeighbourCallsInAnExposedSandbox(t *testing.T) {
	e, _ := start(t)
	e.Template.ExposeRuntime = true
	made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: e.Template})
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(made.GetRuntime().GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	call, err := wire.Marshal(map[string]any{
		"call_id": "0123456789abcdef", "callable": "platform::python_version", "arguments": []byte("\x80\x04)}\x86."),
	})
	if err != nil {
		t.Fatal(err)
	}
	post := func(user *url.Userinfo) (int, []byte) {
		at := url.URL{Scheme: "http", User: user, Host: target.Host, Path: "/call"}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.String(), bytes.NewReader(call))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Prefer", "wait=20")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	for _, user := range []*url.Userinfo{nil, url.UserPassword("agentix", "wrong"), url.UserPassword("agentix", e.Token)} {
		if code, _ := post(user); code != http.StatusUnauthorized {
			t.Errorf("%v: got %d", user, code)
		}
	}
	code, body := post(target.User)
	var answer struct {
		OK    bool   `msgpack:"ok"`
		Value []byte `msgpack:"value"`
	}
	if err := wire.Unmarshal(body, &answer); err != nil || code != http.StatusOK || !answer.OK || !bytes.Contains(answer.Value, []byte("3.")) {
		t.Errorf("got %d %q, %v", code, body, err)
	}
}
