package link

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/agentixd/agentixd/runtime/wire"
)

const maxHealthBytes = 65536 // 64 KiB: the body of GET /health

// Health asks a runtime over a connection of its own for its health. Without token, a
// runtime tells only its status and version.
func Health(ctx context.Context, dial func(context.Context) (net.Conn, error), token string) (wire.Health, error) {
	var h wire.Health
	client := httpClient(dial)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://runtime/health", http.NoBody)
	if err != nil {
		return h, fmt.Errorf("get health: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return h, fmt.Errorf("get health: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return h, fmt.Errorf("get health: status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHealthBytes+1))
	if err != nil {
		return h, fmt.Errorf("get health: %w", err)
	}
	if len(body) > maxHealthBytes {
		return h, violation("health over %d bytes", maxHealthBytes)
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return h, violation("health is not its JSON object")
	}
	return h, nil
}
