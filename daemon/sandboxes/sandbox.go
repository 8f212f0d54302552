package sandboxes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/agentixd/agentixd/providers"
)

// State is where a sandbox is in its life: a name of the API's SandboxState without prefix.
type State string

// The states. A sandbox that ended as intended is gone, so there is no stopped one to list.
const (
	Creating State = "CREATING"
	Ready    State = "READY"
	Paused   State = "PAUSED"
	Stopping State = "STOPPING"
	Stopped  State = "STOPPED"
	Failed   State = "FAILED"
)

// Reason is why a sandbox is in its state: a name of the API's SandboxReason without
// prefix. All of providers.ExitReason are reasons.
type Reason string

// The reasons that do not come from a provider.
const (
	NoReason    Reason = ""
	Deleted     Reason = "DELETED"
	StartFailed Reason = "START_FAILED"
	Lost        Reason = Reason(providers.Lost)
	Unreachable Reason = "UNREACHABLE"
	Expired     Reason = "EXPIRED"
	Idle        Reason = "IDLE"
	// LimitReached is only in events: the sandbox goes on.
	LimitReached Reason = "LIMIT_REACHED"
)

// Sandbox is what clients may know of a sandbox.
type Sandbox struct {
	ID         string             `json:"id"`
	State      State              `json:"state"`
	Reason     Reason             `json:"reason,omitempty"`
	Message    string             `json:"message,omitempty"`
	Image      string             `json:"image,omitempty"`
	Bundle     string             `json:"bundle,omitempty"` // digest
	Project    string             `json:"project,omitempty"`
	Provider   string             `json:"provider"`
	Labels     map[string]string  `json:"labels,omitempty"`
	Env        map[string]string  `json:"env,omitempty"`
	Resources  providers.Limits   `json:"resources"`
	Workers    int                `json:"workers,omitempty"` // 0 = 1
	Network    providers.Network  `json:"network,omitzero"`
	Security   providers.Security `json:"security,omitzero"`
	Expose     bool               `json:"expose,omitempty"` // the runtime is reachable on a loopback port
	CreateTime time.Time          `json:"create_time"`
	// ExpireTime is when it is deleted; zero = never. IdleTimeout is how long it may go
	// without a call; 0 = for ever.
	ExpireTime  time.Time     `json:"expire_time,omitzero"`
	IdleTimeout time.Duration `json:"idle_timeout,omitempty"`
	Runtime     *Runtime      `json:"runtime,omitempty"`  // nil until READY
	Template    string        `json:"template,omitempty"` // it was taken or started from
}

// Runtime is what a sandbox's runtime told about itself; its texts are bounded, not trusted.
type Runtime struct {
	Version      string   `json:"version"`
	Capabilities []string `json:"capabilities,omitempty"`
	Python       string   `json:"python,omitempty"`
	URL          string   `json:"url,omitempty"` // where it listens, without user and password
	// Secret is the password of an exposed runtime. It is made anew from the daemon's key each
	// time it is shown and never stored.
	Secret Secret `json:"-"`
}

// Secret is text that logs and records never show.
type Secret string

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret.
func (Secret) String() string { return "[redacted]" }

// GoString hides the secret.
func (Secret) GoString() string { return "[redacted]" }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// MarshalJSON hides the secret.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"[redacted]"`), nil }

// clone lets a caller keep the sandbox while it changes.
func (s Sandbox) clone() Sandbox {
	s.Labels = maps.Clone(s.Labels)
	s.Env = maps.Clone(s.Env)
	s.Network.AllowCIDRs, s.Network.DNSServers = slices.Clone(s.Network.AllowCIDRs), slices.Clone(s.Network.DNSServers)
	if s.Runtime != nil {
		r := *s.Runtime
		r.Capabilities = slices.Clone(r.Capabilities)
		s.Runtime = &r
	}
	return s
}

// CreateRequest asks for a sandbox.
type CreateRequest struct {
	ID        string // empty = a random one
	RequestID string // empty = each request is a new one
	Image     string
	Bundle    string `json:",omitempty"` // digest; empty = none
	Project   string // host path; only with Peer
	Peer      *Peer  // nil for callers not on the Unix socket
	Labels    map[string]string
	Env       map[string]string
	Resources providers.Limits   // zero fields take the daemon's defaults
	Network   providers.Network  `json:",omitzero"`
	Security  providers.Security `json:",omitzero"`
	Provider  string             // empty = the daemon's
	// RuntimeURL is the runtime to join, for a provider that starts none. It may hold secrets.
	RuntimeURL string
	Workers    int  `json:",omitempty"` // worker processes; 0 = 1
	Expose     bool // make the runtime reachable on a loopback port
	// One of ExpireTime and TTL, which counts from the request on; zero = never.
	ExpireTime  time.Time     `json:",omitzero"`
	TTL         time.Duration `json:",omitempty"`
	IdleTimeout time.Duration `json:",omitempty"` // 0 = never
	// Template is what to take the sandbox from: most of the other fields are then its.
	Template string `json:",omitempty"`
	preload  []string
}

// Peer is who sits at the other end of the Unix socket.
type Peer struct {
	UID, GID uint32
	PID      int32
}

// hash tells two requests with one request id apart.
func (r CreateRequest) hash() (string, error) {
	r.RequestID = ""
	r.Peer = nil
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// record is a sandbox as it is kept in the store.
type record struct {
	Sandbox     Sandbox `json:"sandbox"`
	Seq         uint64  `json:"seq"` // order of creation
	RequestID   string  `json:"request_id,omitempty"`
	RequestHash string  `json:"request_hash,omitempty"`
	Fronted     bool    `json:"fronted,omitempty"` // its bundle's own server runs in it
	Nonce       string  `json:"nonce,omitempty"`   // another for each sandbox, also of one id
	Port        int     `json:"port,omitempty"`    // of an exposed runtime
	// Pool is the template whose pool it waits in; empty = it is a client's.
	Pool    string   `json:"pool,omitempty"`
	Preload []string `json:"preload,omitempty"` // modules
	// Active is when the last call ended, as far as it was written; see keepActive.
	Active   time.Time `json:"active,omitzero"`
	PausedAt time.Time `json:"paused_at,omitzero"` // since when it is PAUSED
}
