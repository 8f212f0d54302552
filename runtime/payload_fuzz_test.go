package runtime_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/agentixd/agentixd/runtime"
)

// request answers the status and the body of one request to the runtime.
func request(t *testing.T, client *http.Client, method, path string, body []byte) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://runtime"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, text
}

// FuzzEngineIOPayload posts polling payloads of any bytes: each is taken or refused, and the
// runtime goes on.
func FuzzEngineIOPayload(f *testing.F) {
	const separator = "\x1e"
	for _, seed := range []string{
		"", "2", "3", "1", "6", "40/rpc,{}", "40/rpc,{}" + separator + "40/log,{}", "bAAEC", "b!", separator, "4", "b", "9", "\xff\xfe",
		`451-/rpc,["call",{"_placeholder":true,"num":0}]` + separator + "bgA==", `4511-/rpc,["x"]`, "40" + separator + "41" + separator + "1", `42/rpc,["call",{}]`,
	} {
		f.Add([]byte(seed))
	}
	s := start(f, nil, func(c *runtime.Config) {
		c.Logger = slog.New(slog.DiscardHandler)
		c.Project, c.WorkerCommand = "", []string{"/bin/sleep", "600"}
	})
	client := s.http()
	const path = "/socket.io/?EIO=4&transport=polling"
	f.Fuzz(func(t *testing.T, payload []byte) {
		status, text := request(t, client, http.MethodGet, path, nil)
		var open struct {
			Sid string `json:"sid"`
		}
		if status != http.StatusOK || len(text) == 0 || json.Unmarshal(text[1:], &open) != nil || open.Sid == "" {
			t.Fatalf("no session any more: %d %s", status, text)
		}
		session := path + "&sid=" + open.Sid
		if status, text = request(t, client, http.MethodPost, session, payload); status != http.StatusOK && status != http.StatusBadRequest {
			t.Fatalf("status %d %s", status, text)
		}
		request(t, client, http.MethodPost, session, []byte("1")) // it ends, if it has not
		if status, _ = request(t, client, http.MethodGet, "/health", nil); status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatalf("health %d", status)
		}
	})
}
