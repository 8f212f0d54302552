package providers

import "context"

// Security is what a sandbox has besides that which all have. The zero value is the default.
type Security struct {
	// ReadOnlyRootFS: only /tmp, /run and /dev/shm can be written.
	ReadOnlyRootFS bool `json:"read_only_rootfs,omitempty"`
	// UserNamespace: root in the sandbox is nobody on the host.
	UserNamespace bool `json:"user_namespace,omitempty"`
	// RuntimeHandler is what runs the container: empty or runc, or runsc.
	RuntimeHandler string `json:"runtime_handler,omitempty"`
}

// NetworkMode is what a sandbox sees of the network.
type NetworkMode string

// The modes.
const (
	NetworkNone   NetworkMode = ""       // a loopback device of its own
	NetworkBridge NetworkMode = "BRIDGE" // a link to the host, which routes to what is allowed
	NetworkHost   NetworkMode = "HOST"   // the host's own network
)

// Network is the network of a sandbox. The zero value is none.
type Network struct {
	Mode NetworkMode `json:"mode,omitempty"`
	// AllowCIDRs are the ranges that may be reached in mode BRIDGE; none = nothing.
	AllowCIDRs []string `json:"allow_cidrs,omitempty"`
	// DNSServers are the addresses in /etc/resolv.conf in mode BRIDGE.
	DNSServers []string `json:"dns_servers,omitempty"`
}

// IsZero tells whether it is the default.
func (n Network) IsZero() bool {
	return n.Mode == NetworkNone && len(n.AllowCIDRs) == 0 && len(n.DNSServers) == 0
}

// Networker is a Handle of which the network can be changed.
type Networker interface {
	// SetNetwork replaces the ranges that a sandbox in mode BRIDGE may reach, at once.
	// FailedPrecondition (UNSUPPORTED) if more than they would change.
	SetNetwork(ctx context.Context, n Network) error
}

// Presser is a Handle that knows how its sandbox fares with its limits.
type Presser interface {
	// Pressure tells it; fields that cannot be known are zero.
	Pressure(ctx context.Context) (Pressure, error)
}

// Pressure counts how a sandbox ran into its limits.
type Pressure struct {
	OOMKills    uint64 // processes that were killed for want of memory, ever
	PIDsRefused uint64 // processes and threads that could not be started, ever
	DiskFull    bool   // nothing is left of its disk limit
	SocketFull  bool   // nothing is left of the file system of its socket
}
