package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/agentixd/agentixd/daemon/auth"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// isOpen reports whether a method needs no credential: health only, as /healthz.
func isOpen(method string) bool {
	return method == healthv1.Health_Check_FullMethodName || method == healthv1.Health_Watch_FullMethodName
}

// Tap refuses unauthenticated RPCs before anything of their messages is read into memory.
func (c *Chain) Tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if isOpen(info.FullMethodName) {
		return ctx, nil
	}
	if _, err := c.auth.AuthenticateRPC(ctx); err != nil {
		return ctx, Status(err).Err()
	}
	return ctx, nil
}

// maxRequestIDBytes bounds what a caller may put into our log as its request id.
const maxRequestIDBytes = 128

// requestID takes the caller's x-request-id, or makes one, and sends it back.
func (c *Chain) requestID(ctx context.Context, call *call, next func(context.Context) error) error {
	md, _ := metadata.FromIncomingContext(ctx)
	given := md.Get("x-request-id")
	if len(given) == 1 && given[0] != "" && len(given[0]) <= maxRequestIDBytes && isPrintable(given[0]) {
		call.requestID = given[0]
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-request-id", call.requestID)) // fails only after the answer began
		return next(ctx)
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	call.requestID = hex.EncodeToString(id[:])
	err := next(ctx)
	if err != nil {
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-request-id", call.requestID))
	}
	return err
}

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// validate refuses messages without their required fields.
func (c *Chain) validate(ctx context.Context, call *call, next func(context.Context) error) error {
	call.message = checkRequired
	return next(ctx)
}

var requiredFields sync.Map // protoreflect.FullName → []protoreflect.FieldDescriptor

func checkRequired(message proto.Message) error {
	m := message.ProtoReflect()
	var missing *errs.Error
	for _, field := range requiredOf(m.Descriptor()) {
		if m.Has(field) {
			continue
		}
		if missing == nil {
			missing = errs.Invalid(string(field.Name()), "is required")
			continue
		}
		missing.Violations = append(missing.Violations, errs.Violation{Field: string(field.Name()), Description: "is required"})
	}
	if missing != nil {
		return missing
	}
	return nil
}

func requiredOf(message protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if known, ok := requiredFields.Load(message.FullName()); ok {
		return known.([]protoreflect.FieldDescriptor)
	}
	var required []protoreflect.FieldDescriptor
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		behaviors, _ := proto.GetExtension(field.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
		for _, behavior := range behaviors {
			if behavior == annotations.FieldBehavior_REQUIRED {
				required = append(required, field)
			}
		}
	}
	requiredFields.Store(message.FullName(), required)
	return required
}

// peerOf is the process behind an RPC, nil for clients with a token.
func peerOf(ctx context.Context) *auth.Peer {
	principal, _ := auth.PrincipalFrom(ctx)
	return principal.Peer
}
