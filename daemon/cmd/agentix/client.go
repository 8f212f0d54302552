package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"strings"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const defaultAddress = "unix:///var/lib/agentix/agentixd.sock"

// client is a connection to the daemon; close it.
type client struct {
	conn      *grpc.ClientConn
	sandboxes agentixv1.SandboxServiceClient
	templates agentixv1.TemplateServiceClient
	remote    agentixv1.RemoteServiceClient
	events    agentixv1.EventServiceClient
	images    agentixv1.ImageServiceClient
	bundles   agentixv1.BundleServiceClient
}

func (c *client) close() { _ = c.conn.Close() }

// connect prepares a connection; it is made when it is first used.
func (a *app) connect() (*client, error) {
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // Unix socket or loopback
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		// The daemon has the limits and names them.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	target, err := a.target()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	return &client{
		conn:      conn,
		sandboxes: agentixv1.NewSandboxServiceClient(conn),
		templates: agentixv1.NewTemplateServiceClient(conn),
		remote:    agentixv1.NewRemoteServiceClient(conn),
		events:    agentixv1.NewEventServiceClient(conn),
		images:    agentixv1.NewImageServiceClient(conn),
		bundles:   agentixv1.NewBundleServiceClient(conn),
	}, nil
}

// target is the address in gRPC's form; it refuses what could only fail later and obscurely.
func (a *app) target() (string, error) {
	address := a.address
	if address == "" {
		address = os.Getenv("AGENTIX_ADDRESS")
	}
	if address == "" {
		address = defaultAddress
	}
	if strings.HasPrefix(address, "/") {
		return "unix://" + address, nil
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok && strings.TrimLeft(path, "/") != "" {
		return address, nil
	}
	target := strings.TrimPrefix(address, "http://")
	if _, port, err := net.SplitHostPort(target); err != nil || port == "" || strings.Contains(target, "/") {
		return "", fmt.Errorf("address %q is neither unix:///path nor host:port", address)
	}
	return target, nil
}

func (a *app) token() (string, error) {
	if a.tokenFile == "" {
		return os.Getenv("AGENTIX_TOKEN"), nil
	}
	text, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// bearer is a token that goes with each request; it is never printed.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false: the daemon listens on a Unix socket and on loopback only.
func (bearer) RequireTransportSecurity() bool { return false }

func (bearer) String() string { return "[redacted]" }

// sandboxName accepts an id or a resource name.
func sandboxName(id string) string {
	if strings.HasPrefix(id, "sandboxes/") {
		return id
	}
	return "sandboxes/" + id
}

func sandboxID(name string) string { return strings.TrimPrefix(name, "sandboxes/") }
