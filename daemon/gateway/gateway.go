// Package gateway is the REST side: a skin over the daemon's own gRPC server. It decides
// which hosts, headers and bodies may pass and turns JSON into messages and back; what a
// request means and who may send it is decided behind it. HTTP clients are hostile until
// Options.Authenticate has admitted them, and nothing of a body is read before.
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Options are what the gateway needs from the daemon.
type Options struct {
	// Conn is a connection to the daemon's own gRPC server, inside this process.
	Conn grpc.ClientConnInterface
	// Authenticate admits a request or returns why not.
	Authenticate func(*http.Request) error
	// Forward is what the gRPC server must know of the caller.
	Forward func(*http.Request) metadata.MD
	// Status translates an error for clients; every status it returns has an ErrorInfo.
	Status func(error) *status.Status
	// Local reports whether a request came over a transport that browsers cannot reach.
	Local func(*http.Request) bool
	// Hosts are names of this daemon besides the loopback ones.
	Hosts []string
	// Logger gets the causes of faults that the gRPC server did not see.
	Logger *slog.Logger
	// Metrics serves GET /metrics to those who are admitted; nil = there are none.
	Metrics http.Handler
	// Ready returns nil once the daemon takes calls, else why not.
	Ready func() error
}

type gateway struct {
	Options
	mux     *runtime.ServeMux
	hosts   map[string]bool
	openAPI []byte
}

// New returns the handler of all HTTP requests.
func New(ctx context.Context, o Options) (http.Handler, error) {
	g := &gateway{Options: o, hosts: hostSet(o.Hosts)}
	var err error
	if g.openAPI, err = openAPIDocument(); err != nil {
		return nil, err
	}
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		runtime.WithIncomingHeaderMatcher(incomingHeader),
		runtime.WithOutgoingHeaderMatcher(outgoingHeader),
		runtime.WithOutgoingTrailerMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithMetadata(func(_ context.Context, r *http.Request) metadata.MD { return o.Forward(r) }),
		runtime.WithErrorHandler(g.rpcError),
		runtime.WithRoutingErrorHandler(g.routingError),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.SetQueryParameterParser(strictQuery{}),
	)
	for _, register := range []func(context.Context, *runtime.ServeMux, grpc.ClientConnInterface) error{
		func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return agentixv1.RegisterSandboxServiceHandlerClient(ctx, mux, agentixv1.NewSandboxServiceClient(conn))
		},
		func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return agentixv1.RegisterTemplateServiceHandlerClient(ctx, mux, agentixv1.NewTemplateServiceClient(conn))
		},
		func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return agentixv1.RegisterRemoteServiceHandlerClient(ctx, mux, agentixv1.NewRemoteServiceClient(conn))
		},
		func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return agentixv1.RegisterEventServiceHandlerClient(ctx, mux, agentixv1.NewEventServiceClient(conn))
		},
		func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return agentixv1.RegisterImageServiceHandlerClient(ctx, mux, agentixv1.NewImageServiceClient(conn))
		},
		func(ctx context.Context, mux *runtime.ServeMux, conn grpc.ClientConnInterface) error {
			return agentixv1.RegisterBundleServiceHandlerClient(ctx, mux, agentixv1.NewBundleServiceClient(conn))
		},
	} {
		if err := register(ctx, g.mux, o.Conn); err != nil {
			return nil, fmt.Errorf("register REST handlers: %w", err)
		}
	}
	// The last registered pattern wins: streams have our own handlers.
	for _, handle := range []func() error{g.handleEvents, g.handlePull, g.handleWatch, g.handleRemote} {
		if err := handle(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// ServeHTTP checks what must be checked before anything is read, then routes.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if err := g.checkSite(r); err != nil {
		g.fail(w, err)
		return
	}
	if g.open(w, r) {
		return
	}
	if err := g.Authenticate(r); err != nil {
		g.fail(w, err)
		return
	}
	if err := checkRequest(r); err != nil {
		g.fail(w, err)
		return
	}
	if r.URL.Path == "/metrics" && g.Metrics != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		g.Metrics.ServeHTTP(w, r)
		return
	}
	original := r.Body
	r.Body = newBody(w, r)
	g.mux.ServeHTTP(w, r)
	if r.Body.(*body).over {
		drain(w, original)
	}
}

// open serves the few documents that need no credential.
func (g *gateway) open(w http.ResponseWriter, r *http.Request) bool {
	var serve func()
	switch r.URL.Path {
	case "/healthz":
		serve = func() { g.text(w, http.StatusOK, "ok\n") }
	case "/readyz":
		serve = func() {
			if err := g.Ready(); err != nil {
				g.fail(w, err)
				return
			}
			g.text(w, http.StatusOK, "ok\n")
		}
	case "/openapi.json":
		serve = func() {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(g.openAPI)
		}
	default:
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		g.failWith(w, noSuchMethod(r), http.StatusMethodNotAllowed)
		return true
	}
	serve()
	return true
}

func (g *gateway) text(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

func noSuchMethod(r *http.Request) error {
	return errs.New(errs.NotFound, errs.NoSuchMethod, "there is no %s %s; see /openapi.json", clip(r.Method), clip(strings.ToValidUTF8(r.URL.Path, "�")))
}
