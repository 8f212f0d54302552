// Package api serves the gRPC API: each method decodes, calls one method of the domain and
// encodes. It is the only package that knows both protobuf messages and the domain, and
// errors.go the only place that maps error kinds to codes. Every RPC passes the Chain, so
// that handlers see authenticated callers only; what those send is still hostile.
package api

import (
	"github.com/agentixd/agentixd/daemon/bundles"
	"github.com/agentixd/agentixd/daemon/dispatch"
	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/grpc"
)

// Services are the parts of the domain that the API offers.
type Services struct {
	Sandboxes  *sandboxes.Manager
	Dispatcher *dispatch.Dispatcher
	Journal    *events.Journal
	Bundles    *bundles.Store
}

// Register adds the services to a server.
func (s Services) Register(server grpc.ServiceRegistrar) {
	agentixv1.RegisterSandboxServiceServer(server, &sandboxService{manager: s.Sandboxes})
	agentixv1.RegisterTemplateServiceServer(server, &templateService{manager: s.Sandboxes})
	agentixv1.RegisterRemoteServiceServer(server, &remoteService{dispatcher: s.Dispatcher, manager: s.Sandboxes})
	agentixv1.RegisterEventServiceServer(server, &eventService{journal: s.Journal})
	agentixv1.RegisterBundleServiceServer(server, &bundleService{store: s.Bundles, manager: s.Sandboxes})
	agentixv1.RegisterImageServiceServer(server, &imageService{manager: s.Sandboxes})
}

// ServerOptions make a server that every RPC enters through the chain.
func (c *Chain) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(c.Tap),
		grpc.UnaryInterceptor(c.Unary),
		grpc.StreamInterceptor(c.Stream),
		grpc.UnknownServiceHandler(unknownMethod),
	}
}

// unknownMethod answers for every method that no service has.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return errs.New(errs.Unimplemented, errs.NoSuchMethod, "there is no method %s", cut(method, maxViolationBytes))
}
