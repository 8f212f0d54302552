package providers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// Config is what every provider gets.
type Config struct {
	// StateDir is a directory of the provider's own, made with mode 0700.
	StateDir string
	// Instance names this daemon on a shared engine: resources of others are never touched.
	Instance string
	// RuntimePath is the agentix-runtime binary.
	RuntimePath string
	// ContainerdAddress is the socket of containerd.
	ContainerdAddress string
	// DockerHost is the address of the Docker Engine, unix:// and the path of its socket.
	DockerHost string
	// InsecureProcessAsRoot lets the process provider run as root.
	InsecureProcessAsRoot bool
	// RegistryConfig is a config.json of docker with credentials for pulls that bring none; empty = none.
	RegistryConfig string
	// AllowHostNetwork lets sandboxes use the host's network.
	AllowHostNetwork bool
	// BridgePool is the IPv4 range from which bridged sandboxes get their addresses; empty = one
	// that is derived from Instance.
	BridgePool string
	// ExternalAllow are the address ranges and socket prefixes that the external provider may join.
	ExternalAllow []string
	Logger        *slog.Logger
}

// Constructor opens a provider. It fails with the reason if the engine cannot be used here.
type Constructor func(ctx context.Context, cfg Config) (Provider, error)

var (
	registryMu sync.Mutex
	registry   = map[string]Constructor{}
)

// Register adds a provider under its name; called from init. It panics on a second of one name.
func Register(name string, c Constructor) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, taken := registry[name]; taken {
		panic("providers: registered twice: " + name)
	}
	registry[name] = c
}

// Known reports whether a provider is registered under name.
func Known(name string) bool {
	registryMu.Lock()
	defer registryMu.Unlock()
	return registry[name] != nil
}

// Open opens the provider registered under name.
func Open(ctx context.Context, name string, cfg Config) (Provider, error) {
	registryMu.Lock()
	c, ok := registry[name]
	names := slices.Sorted(maps.Keys(registry))
	registryMu.Unlock()
	if !ok {
		return nil, fmt.Errorf("unknown provider %q; known are %v", name, names)
	}
	return c(ctx, cfg)
}
