package runtime

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/agentixd/agentixd/runtime/siotest"
	"github.com/agentixd/agentixd/runtime/wire"
)

func TestPanicInAHandlerCostsNobodyAnything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	r, err := New(Config{Socket: path, Python: "/nonexistent/python3"})
	if err != nil {
		t.Fatal(err)
	}
	r.calls.table = nil // each call panics from now on
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }() // ends with cancel
	defer func() {
		cancel(context.Canceled)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	got := make(chan struct{}, 10)
	c := siotest.Dial(t, path, map[string]any{}, func(*siotest.Client, siotest.Event) { got <- struct{}{} }, wire.NamespaceRPC)
	c.Emit(wire.NamespaceRPC, wire.EventCall, wire.Call{CallID: "c1", Callable: "a::b", Arguments: []byte{0}})
	c.EmitRaw(wire.NamespaceRPC, wire.EventCall, []byte{0x80}) // answered without the table
	<-got
	if err := c.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	_ = resp.Body.Close()
}
