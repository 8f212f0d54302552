package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/agentixd/agentixd/daemon/api"
	"github.com/agentixd/agentixd/daemon/auth"
	"github.com/agentixd/agentixd/daemon/gateway"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"
)

const (
	maxHeaderBytes = 65536   // 64 KiB: the headers of one request
	bufconnBytes   = 1048576 // 1 MiB: between gateway and gRPC server
	gatewayWindow  = 262144  // 256 KiB: of one stream on its way to the gateway

	gatewayConnWindow = 8388608 // 8 MiB: of all of them together, until the gateway has read it
)

// servers are everything that clients talk to. Two gRPC servers offer the same services:
// one bounds the streams of each connection, which the gateway's own must not be.
type servers struct {
	local   *grpc.Server // the Unix socket and the gateway
	tcp     *grpc.Server
	http    *http.Server
	health  *health.Server
	inside  *bufconn.Listener
	gateway *grpc.ClientConn
	logger  *slog.Logger
	stopped bool
}

func newServers(ctx context.Context, cfg Config, chain *api.Chain, services api.Services, authenticator *auth.Authenticator, metrics http.Handler, ready func() error, logger *slog.Logger) (*servers, error) {
	s := &servers{health: health.NewServer(), inside: bufconn.Listen(bufconnBytes), logger: logger}
	codec, err := api.NewCodec()
	if err != nil {
		return nil, fmt.Errorf("make the codec: %w", err)
	}
	s.local = s.newGRPC(chain, services, codec, math.MaxUint32)
	s.tcp = s.newGRPC(chain, services, codec, wire.MaxConnStreams)
	conn, err := grpc.NewClient("passthrough:///daemon",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.inside.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(gatewayWindow), // what a client that does not read leaves in memory
		grpc.WithInitialConnWindowSize(gatewayConnWindow),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("connect the gateway: %w", err)
	}
	s.gateway = conn
	handler, err := gateway.New(ctx, gateway.Options{
		Conn: conn,
		Authenticate: func(r *http.Request) error {
			_, err := authenticator.Authenticate(auth.ConnFrom(r.Context()), r.Header.Values("Authorization"))
			return err //nolint:wrapcheck // For the gateway to translate.
		},
		Forward: func(r *http.Request) metadata.MD { return auth.Forward(auth.ConnFrom(r.Context())) },
		Status:  api.Status,
		Local:   func(r *http.Request) bool { return auth.ConnFrom(r.Context()).Peer != nil },
		Hosts:   cfg.HTTPHosts,
		Logger:  logger,
		Metrics: metrics,
		Ready:   ready,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the gateway: %w", err), conn.Close())
	}
	s.http = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if known, ok := conn.(auth.Known); ok {
				return auth.WithConn(ctx, known.AuthConn())
			}
			return ctx
		},
	}
	return s, nil
}

func (s *servers) newGRPC(chain *api.Chain, services api.Services, codec encoding.CodecV2, maxStreams uint32) *grpc.Server {
	server := grpc.NewServer(append(chain.ServerOptions(),
		grpc.Creds(auth.TransportCredentials()),
		grpc.ForceServerCodecV2(codec),
		grpc.MaxRecvMsgSize(wire.MaxRPCBytes),
		grpc.MaxSendMsgSize(wire.MaxRPCBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)...)
	services.Register(server)
	healthv1.RegisterHealthServer(server, s.health)
	reflection.Register(server)
	return server
}

// setServing tells the standard health service, for the whole and for each service.
func (s *servers) setServing(serving bool) {
	state := healthv1.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthv1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{
		"", agentixv1.SandboxService_ServiceDesc.ServiceName, agentixv1.TemplateService_ServiceDesc.ServiceName, agentixv1.RemoteService_ServiceDesc.ServiceName,
		agentixv1.EventService_ServiceDesc.ServiceName, agentixv1.ImageService_ServiceDesc.ServiceName,
		agentixv1.BundleService_ServiceDesc.ServiceName,
	} {
		s.health.SetServingStatus(service, state)
	}
}

// serveGRPC serves until the server is stopped.
func serveGRPC(server *grpc.Server, listener net.Listener) error {
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

// serveHTTP serves until the server is shut down.
func (s *servers) serveHTTP(listener net.Listener) error {
	if err := s.http.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// drain lets running requests end. It returns once they have, or once ctx ends.
func (s *servers) drain(ctx context.Context) {
	s.health.Shutdown()
	done := make(chan struct{})
	go func() { // ends once stop was called, at the latest
		defer close(done)
		_ = s.http.Shutdown(ctx)
		s.tcp.GracefulStop()
		s.local.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// stop ends everything at once. A second call does nothing.
func (s *servers) stop() error {
	if s.stopped {
		return nil
	}
	s.stopped = true
	err := s.http.Close()
	s.tcp.Stop()
	s.local.Stop()
	return errors.Join(err, s.gateway.Close(), s.inside.Close())
}

// insideListener marks the gateway's connection.
type insideListener struct{ *bufconn.Listener }

// Accept waits for the gateway.
func (l insideListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // For gRPC.
	}
	return insideConn{conn}, nil
}

type insideConn struct{ net.Conn }

// AuthConn says that this is the gateway.
func (insideConn) AuthConn() auth.Conn { return auth.Conn{Gateway: true} }

// notReady is what /readyz says until the sandboxes of the daemon before were taken over.
func notReady() error {
	return errs.New(errs.Unavailable, errs.ProviderUnavailable, "the daemon is still starting")
}
