package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestStatusDetails(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    codes.Code
		message string
		details []any
	}{
		{
			fmt.Errorf("outer: %w", errs.Invalid("callable", "must be %s", "short").WithCause(errors.New("/secret/path"))),
			codes.InvalidArgument, "callable: must be short",
			[]any{
				&errdetails.ErrorInfo{Reason: "INVALID_FIELD", Domain: "agentix.dev"},
				&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "callable", Description: "must be short"}}},
			},
		},
		{
			errs.OverLimit("arguments_bytes", 10, 11), codes.ResourceExhausted, "arguments_bytes: 11 is over the limit of 10",
			[]any{&errdetails.ErrorInfo{Reason: "LIMIT_EXCEEDED", Domain: "agentix.dev", Metadata: map[string]string{"limit": "arguments_bytes", "maximum": "10", "size": "11"}}},
		},
		{
			errs.New(errs.Unavailable, errs.RuntimeUnavailable, "gone").WithRetry(3 * time.Second), codes.Unavailable, "gone",
			[]any{&errdetails.ErrorInfo{Reason: "RUNTIME_UNAVAILABLE", Domain: "agentix.dev"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}},
		},
		{
			named(errs.New(errs.NotFound, errs.SandboxNotFound, "no such sandbox"), "sandbox", "sandboxes/x"), codes.NotFound, "no such sandbox",
			[]any{
				&errdetails.ErrorInfo{Reason: "SANDBOX_NOT_FOUND", Domain: "agentix.dev", Metadata: map[string]string{"sandbox": "sandboxes/x"}},
				&errdetails.ResourceInfo{ResourceType: "agentix.dev/Sandbox", ResourceName: "sandboxes/x", Description: "no such sandbox"},
			},
		},
		{
			errs.New(errs.Internal, errs.InternalFault, "password is hunter2"), codes.Internal, "internal fault; the daemon's log has the cause",
			[]any{&errdetails.ErrorInfo{Reason: "INTERNAL", Domain: "agentix.dev"}},
		},
		{
			errors.New("pq: password is hunter2"), codes.Internal, "internal fault; the daemon's log has the cause",
			[]any{&errdetails.ErrorInfo{Reason: "INTERNAL", Domain: "agentix.dev"}},
		},
		{
			fmt.Errorf("read: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "the caller's deadline passed",
			[]any{&errdetails.ErrorInfo{Reason: "DEADLINE", Domain: "agentix.dev"}},
		},
		{
			fmt.Errorf("read: %w", context.Canceled), codes.Canceled, "the caller left",
			[]any{&errdetails.ErrorInfo{Reason: "CALLER_LEFT", Domain: "agentix.dev"}},
		},
		{
			status.Error(codes.ResourceExhausted, "grpc: received message larger than max"), codes.ResourceExhausted, "grpc: received message larger than max",
			[]any{&errdetails.ErrorInfo{Reason: "LIMIT_EXCEEDED", Domain: "agentix.dev"}},
		},
		{
			status.Error(codes.Unavailable, "closing"), codes.Unavailable, "closing",
			[]any{&errdetails.ErrorInfo{Reason: "STOPPING", Domain: "agentix.dev"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}},
		},
		{status.Error(codes.DataLoss, "x"), codes.Internal, "internal fault; the daemon's log has the cause", []any{&errdetails.ErrorInfo{Reason: "INTERNAL", Domain: "agentix.dev"}}},
	} {
		st := Status(c.err)
		if st.Code() != c.code || st.Message() != c.message {
			t.Errorf("%v: got %v", c.err, st)
		}
		if diff := cmp.Diff(st.Details(), c.details, protocmp.Transform()); diff != "" {
			t.Errorf("%v: %s", c.err, diff)
		}
		if again := Status(st.Err()); !proto.Equal(again.Proto(), st.Proto()) {
			t.Errorf("translated twice: %v, then %v", st, again)
		}
	}
	if Status(nil).Code() != codes.OK {
		t.Error("no error is no status")
	}
}

// Every kind has its code, and the reasons are those of the proto, all and no others.
func TestKindsAndReasonsAreComplete(t *testing.T) {
	for kind := errs.Internal; kind <= errs.Unimplemented; kind++ {
		if _, ok := kinds[kind]; !ok {
			t.Errorf("kind %d has no code", kind)
		}
	}
	known := map[errs.Reason]bool{}
	for _, reason := range []errs.Reason{
		errs.InvalidField, errs.ArgumentsInvalid, errs.SandboxNotFound, errs.ImageNotFound, errs.CallNotFound, errs.SandboxExists,
		errs.CallIDConflict, errs.SandboxNotReady, errs.Unsupported, errs.HostPathRefused, errs.LimitExceeded, errs.RuntimeUnavailable,
		errs.ProviderUnavailable, errs.Stopping, errs.NoCredential, errs.ForeignOrigin, errs.CursorExpired, errs.Deadline, errs.CallerLeft,
		errs.InternalFault, errs.NoSuchMethod, errs.StartFailed, errs.ExternalRefused, errs.ImageInUse,
		errs.RegistryRefused, errs.RegistryUnavailable, errs.BundleNotFound, errs.BundleInUse, errs.TemplateNotFound, errs.TemplateExists,
	} {
		known[reason] = true
		if _, ok := agentixv1.ErrorReason_value["ERROR_REASON_"+string(reason)]; !ok {
			t.Errorf("%s is not in the proto", reason)
		}
	}
	for number, name := range agentixv1.ErrorReason_name {
		if number != 0 && !known[errs.Reason(strings.TrimPrefix(name, "ERROR_REASON_"))] {
			t.Errorf("%s is not in package errs", name)
		}
	}
}

// Whatever an error holds, its status fits the 8 KiB of trailers that some clients take.
func TestStatusIsBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("ü", 1<<20), strings.Repeat("\xff", 1<<20), strings.Repeat("漢", 1<<20)} {
		e := errs.Invalid(text, "%s", text).WithMeta("k", text)
		for range 100 {
			e.Violations = append(e.Violations, errs.Violation{Field: text, Description: text})
		}
		st := Status(e)
		encoded, err := proto.Marshal(st.Proto())
		if err != nil {
			t.Fatal(err)
		}
		escaped := 0
		for _, b := range []byte(st.Message()) {
			if escaped++; b < 0x20 || b > 0x7e {
				escaped += 2
			}
		}
		if total := len(encoded)*4/3 + escaped; total > 8000 {
			t.Errorf("a status of %d bytes", total)
		}
		if !utf8.ValidString(st.Message()) || len(st.Details()) != 2 {
			t.Errorf("got %q with %d details", st.Message(), len(st.Details()))
		}
	}
}
