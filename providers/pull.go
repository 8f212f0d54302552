package providers

import "log/slog"

// Pull asks for an image from a registry.
type Pull struct {
	Reference   string // completed as docker does
	Name        string // of the image here; empty = the completed reference
	Credentials RegistryCredentials
	PlainHTTP   bool // HTTP without TLS; only for a registry at a loopback address
}

// RegistryCredentials are what to show to the registry that a pull names, and to no other.
type RegistryCredentials struct {
	Username, Password string
	IdentityToken      string // an OAuth2 refresh token, instead of both
}

// Empty reports whether there are none.
func (c RegistryCredentials) Empty() bool { return c == RegistryCredentials{} }

// String hides the credentials.
func (RegistryCredentials) String() string { return "[redacted]" }

// GoString hides the credentials.
func (RegistryCredentials) GoString() string { return "[redacted]" }

// LogValue hides the credentials.
func (RegistryCredentials) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// PullPhase is what a pull does.
type PullPhase string

// The phases.
const (
	Resolving PullPhase = "RESOLVING"
	Fetching  PullPhase = "FETCHING"
	Unpacking PullPhase = "UNPACKING"
)

// PullProgress is how far a pull is.
type PullProgress struct {
	Phase                 PullPhase
	DoneBytes, TotalBytes int64 // of all parts that are known of
}
