// Package errs is the error vocabulary of the project's own code: a handful of kinds,
// each error with a reason from a closed list. Only daemon/api translates them for clients.
package errs

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the class of an error; daemon/api maps each to one gRPC code.
type Kind int

// The kinds. Internal is what an error without a kind counts as.
const (
	Internal Kind = iota
	InvalidArgument
	NotFound
	AlreadyExists
	FailedPrecondition
	PermissionDenied
	Unauthenticated
	ResourceExhausted
	Unavailable
	OutOfRange
	DeadlineExceeded
	Cancelled
	Unimplemented
)

// Reason is a name of proto enum agentix.v1.ErrorReason without its prefix.
type Reason string

// The reasons, in the order of the proto enum.
const (
	InvalidField        Reason = "INVALID_FIELD"
	ArgumentsInvalid    Reason = "ARGUMENTS_INVALID"
	SandboxNotFound     Reason = "SANDBOX_NOT_FOUND"
	ImageNotFound       Reason = "IMAGE_NOT_FOUND"
	CallNotFound        Reason = "CALL_NOT_FOUND"
	SandboxExists       Reason = "SANDBOX_EXISTS"
	CallIDConflict      Reason = "CALL_ID_CONFLICT"
	SandboxNotReady     Reason = "SANDBOX_NOT_READY"
	Unsupported         Reason = "UNSUPPORTED"
	HostPathRefused     Reason = "HOST_PATH_REFUSED"
	LimitExceeded       Reason = "LIMIT_EXCEEDED"
	RuntimeUnavailable  Reason = "RUNTIME_UNAVAILABLE"
	ProviderUnavailable Reason = "PROVIDER_UNAVAILABLE"
	Stopping            Reason = "STOPPING"
	NoCredential        Reason = "UNAUTHENTICATED"
	ForeignOrigin       Reason = "FOREIGN_ORIGIN"
	CursorExpired       Reason = "CURSOR_EXPIRED"
	Deadline            Reason = "DEADLINE"
	CallerLeft          Reason = "CALLER_LEFT"
	InternalFault       Reason = "INTERNAL"
	NoSuchMethod        Reason = "NO_SUCH_METHOD"
	StartFailed         Reason = "START_FAILED"
	ExternalRefused     Reason = "EXTERNAL_REFUSED"
	ImageInUse          Reason = "IMAGE_IN_USE"
	RegistryRefused     Reason = "REGISTRY_REFUSED"
	RegistryUnavailable Reason = "REGISTRY_UNAVAILABLE"
	BundleNotFound      Reason = "BUNDLE_NOT_FOUND"
	BundleInUse         Reason = "BUNDLE_IN_USE"
	TemplateNotFound    Reason = "TEMPLATE_NOT_FOUND"
	TemplateExists      Reason = "TEMPLATE_EXISTS"
)

// Violation names one field that is wrong, and what would be right.
type Violation struct {
	Field       string
	Description string
}

// Error is an error with a kind. Message is for clients: it names what is wrong and what
// would be right, and holds no innards; the cause goes to the log only.
type Error struct {
	Kind       Kind
	Reason     Reason
	Message    string
	Metadata   map[string]string
	Violations []Violation
	RetryAfter time.Duration
	cause      error
}

// New returns an error of kind and reason; format and args make the client's message.
func New(kind Kind, reason Reason, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Error is the message with the cause, for logs.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Message + ": " + e.cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// WithCause keeps err for logs and errors.Is.
func (e *Error) WithCause(err error) *Error { e.cause = err; return e }

// WithMeta adds one entry to the ErrorInfo metadata.
func (e *Error) WithMeta(key, value string) *Error {
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	e.Metadata[key] = value
	return e
}

// WithRetry says when the caller may try again.
func (e *Error) WithRetry(after time.Duration) *Error { e.RetryAfter = after; return e }

// Invalid is InvalidArgument for one field.
func Invalid(field, format string, args ...any) *Error {
	description := fmt.Sprintf(format, args...)
	e := New(InvalidArgument, InvalidField, "%s: %s", field, description)
	e.Violations = []Violation{{Field: field, Description: description}}
	return e
}

// OverLimit is ResourceExhausted with the limit's name, its maximum and the size that broke it.
func OverLimit(limit string, maximum, size int64) *Error {
	return New(ResourceExhausted, LimitExceeded, "%s: %d is over the limit of %d", limit, size, maximum).
		WithMeta("limit", limit).
		WithMeta("maximum", fmt.Sprint(maximum)).
		WithMeta("size", fmt.Sprint(size))
}

// KindOf is the kind of err; Internal if it has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// Is reports whether err has this kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }
