package providertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/providers"
)

// info is what the stub tells about itself.
type info struct {
	Args  []string
	Env   []string
	Token string

	NeighbourSecret string `json:"neighbour_secret"`

	Project    string
	PID        int
	Status     string
	Hostname   string
	Interfaces []string
	CWD        string
}

// get sends one request to the stub of a sandbox.
func get(ctx context.Context, h providers.Handle, path string, query url.Values) (body string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, fmt.Errorf("no answer to %s", path))
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return h.Dial(ctx) },
		DisableKeepAlives: true,
	}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox"+path+"?"+query.Encode(), nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", path, resp.Status, data)
	}
	return string(data), nil
}

func mustGet(t testing.TB, h providers.Handle, path string, query url.Values) string {
	t.Helper()
	body, err := get(t.Context(), h, path, query)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// waitReady waits until the stub answers.
func waitReady(t testing.TB, h providers.Handle) {
	t.Helper()
	await.True(t, func() bool {
		_, err := get(t.Context(), h, "/health", nil)
		return err == nil
	}, "health of "+h.ID())
}

func getInfo(t testing.TB, h providers.Handle) info {
	t.Helper()
	waitReady(t, h)
	var i info
	if err := json.Unmarshal([]byte(mustGet(t, h, "/info", nil)), &i); err != nil {
		t.Fatal(err)
	}
	return i
}
