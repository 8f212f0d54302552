package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// post sends JSON text to a sandbox's :remote and returns status and body.
func post(t *testing.T, e *daemontest.Env, sandbox, body string) (int, string) {
	t.Helper()
	response, err := e.HTTP.Post(e.URL+"/v1/"+sandbox+":remote", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, response)
}

func readAll(t *testing.T, response *http.Response) (int, string) {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestTheFirstCall(t *testing.T) {
	e, sandbox := start(t)
	response, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::run", Kwargs: `{"input": "hello"}`})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := response.GetValue(), `{"output":"HELLO"}`; got != want {
		t.Errorf("gRPC: got %s (%v), want %s", got, response, want)
	}
	code, text := post(t, e, sandbox, `{"callable": "app::run", "kwargs": {"input": "hello"}, "callId": "c-1"}`)
	if want := `{"callId":"c-1","value":{"output":"HELLO"}}`; code != 200 || text != want {
		t.Errorf("REST: got %d %s, want %s", code, text, want)
	}
}
