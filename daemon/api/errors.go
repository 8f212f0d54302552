package api

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the domain of every ErrorInfo.
const Domain = "agentix.dev"

// A status travels in HTTP/2 trailers, of which some clients take 8 KiB in all; these
// bounds keep it below that.
const (
	maxMessageBytes   = 768
	maxViolations     = 8
	maxViolationBytes = 160
	maxMetadataBytes  = 200
)

// kinds maps each kind to its code. It is the only such table.
var kinds = map[errs.Kind]codes.Code{
	errs.Internal:           codes.Internal,
	errs.InvalidArgument:    codes.InvalidArgument,
	errs.NotFound:           codes.NotFound,
	errs.AlreadyExists:      codes.AlreadyExists,
	errs.FailedPrecondition: codes.FailedPrecondition,
	errs.PermissionDenied:   codes.PermissionDenied,
	errs.Unauthenticated:    codes.Unauthenticated,
	errs.ResourceExhausted:  codes.ResourceExhausted,
	errs.Unavailable:        codes.Unavailable,
	errs.OutOfRange:         codes.OutOfRange,
	errs.DeadlineExceeded:   codes.DeadlineExceeded,
	errs.Cancelled:          codes.Canceled,
	errs.Unimplemented:      codes.Unimplemented,
}

// libraryErrors are the reasons of statuses that gRPC itself or the gateway made.
var libraryErrors = map[codes.Code]errs.Reason{
	codes.InvalidArgument:   errs.InvalidField,
	codes.DeadlineExceeded:  errs.Deadline,
	codes.Canceled:          errs.CallerLeft,
	codes.Unimplemented:     errs.NoSuchMethod,
	codes.NotFound:          errs.NoSuchMethod,
	codes.ResourceExhausted: errs.LimitExceeded,
	codes.Unavailable:       errs.Stopping,
	codes.Unauthenticated:   errs.NoCredential,
}

// resourceTypes are the types in ResourceInfo, by reason; the name is the ErrorInfo
// metadata under the given key.
var resourceTypes = map[errs.Reason]struct{ kind, key, prefix string }{
	errs.SandboxNotFound:  {"agentix.dev/Sandbox", "sandbox", sandboxPrefix},
	errs.ImageNotFound:    {"agentix.dev/Image", "image", ""},
	errs.TemplateNotFound: {"agentix.dev/Template", "template", templatePrefix},
	errs.CallNotFound:     {"agentix.dev/Call", "call", ""},
	errs.BundleNotFound:   {"agentix.dev/Bundle", "bundle", bundlePrefix},
}

// Status translates any error for clients. The result always has one ErrorInfo; what is
// not of package errs, and every Internal error, keeps its text to itself.
func Status(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	var known *errs.Error
	if errors.As(err, &known) {
		return fromKind(known)
	}
	if st, ok := status.FromError(err); ok {
		return fromLibrary(st)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fromKind(errs.New(errs.DeadlineExceeded, errs.Deadline, "the caller's deadline passed"))
	case errors.Is(err, context.Canceled):
		return fromKind(errs.New(errs.Cancelled, errs.CallerLeft, "the caller left"))
	default:
		return fromKind(errs.New(errs.Internal, errs.InternalFault, ""))
	}
}

func fromKind(e *errs.Error) *status.Status {
	code, reason, message := kinds[e.Kind], e.Reason, e.Message
	if e.Kind == errs.Internal {
		code, reason, message = codes.Internal, errs.InternalFault, "internal fault; the daemon's log has the cause"
	}
	details := []protoadapt.MessageV1{info(reason, e.Metadata)}
	if e.Kind == errs.InvalidArgument {
		details = append(details, badRequest(e.Violations))
	}
	if e.Kind == errs.Unavailable || e.RetryAfter > 0 {
		after := e.RetryAfter
		if after <= 0 {
			after = time.Second
		}
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	if resource, ok := resourceTypes[reason]; ok {
		name := resource.prefix + strings.TrimPrefix(e.Metadata[resource.key], resource.prefix)
		details = append(details, &errdetails.ResourceInfo{
			ResourceType: resource.kind, ResourceName: cut(name, maxMetadataBytes), Description: cut(message, maxViolationBytes),
		})
	}
	return withDetails(code, message, details)
}

// fromLibrary gives a status that is not ours its ErrorInfo.
func fromLibrary(st *status.Status) *status.Status {
	for _, detail := range st.Details() {
		if _, ok := detail.(*errdetails.ErrorInfo); ok {
			return st
		}
	}
	reason, ok := libraryErrors[st.Code()]
	if !ok {
		return fromKind(errs.New(errs.Internal, errs.InternalFault, ""))
	}
	details := []protoadapt.MessageV1{info(reason, nil)}
	if st.Code() == codes.InvalidArgument {
		details = append(details, badRequest([]errs.Violation{{Field: "request", Description: st.Message()}}))
	}
	if st.Code() == codes.Unavailable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	}
	return withDetails(st.Code(), st.Message(), details)
}

func info(reason errs.Reason, metadata map[string]string) *errdetails.ErrorInfo {
	i := &errdetails.ErrorInfo{Reason: string(reason), Domain: Domain}
	for key, value := range metadata {
		if i.Metadata == nil {
			i.Metadata = map[string]string{}
		}
		i.Metadata[cut(key, maxMetadataBytes)] = cut(value, maxMetadataBytes)
	}
	return i
}

func badRequest(violations []errs.Violation) *errdetails.BadRequest {
	b := &errdetails.BadRequest{}
	for i, v := range violations {
		if i == maxViolations {
			break
		}
		b.FieldViolations = append(b.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: cut(v.Field, maxViolationBytes), Description: cut(v.Description, maxViolationBytes),
		})
	}
	return b
}

func withDetails(code codes.Code, message string, details []protoadapt.MessageV1) *status.Status {
	st := status.New(code, cut(message, maxMessageBytes))
	full, err := st.WithDetails(details...)
	if err != nil { // cannot be: every text was made valid UTF-8
		return st
	}
	return full
}

// cut bounds a text and makes it valid UTF-8.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most-len("…")]
		for len(text) > 0 && !utf8.ValidString(text[len(text)-min(len(text), utf8.UTFMax):]) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.ToValidUTF8(text, "�")
}

func isReason(err error, reason errs.Reason) bool {
	var e *errs.Error
	return errors.As(err, &e) && e.Reason == reason
}

// named adds a resource's name to a NotFound error, for its ResourceInfo.
func named(err error, key, name string) error {
	var e *errs.Error
	if errors.As(err, &e) && e.Kind == errs.NotFound && e.Metadata[key] == "" {
		copied := *e
		copied.Metadata = map[string]string{key: name}
		for k, v := range e.Metadata {
			copied.Metadata[k] = v
		}
		return copied.WithCause(err)
	}
	return err
}
