package main

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is a server of the public API whose answers a test chooses.
type daemon struct {
	agentixv1.UnimplementedSandboxServiceServer
	agentixv1.UnimplementedRemoteServiceServer
	agentixv1.UnimplementedEventServiceServer
	agentixv1.UnimplementedImageServiceServer
	agentixv1.UnimplementedBundleServiceServer

	remote    func(context.Context, *agentixv1.RemoteRequest) (*agentixv1.RemoteResponse, error)
	submit    func(context.Context, *agentixv1.SubmitCallRequest) (*agentixv1.Call, error)
	get       func(context.Context, *agentixv1.GetCallRequest) (*agentixv1.Call, error)
	wait      func(context.Context, *agentixv1.WaitCallRequest) (*agentixv1.Call, error)
	cancel    func(context.Context, *agentixv1.CancelCallRequest) (*agentixv1.Call, error)
	calls     func(context.Context, *agentixv1.ListCallsRequest) (*agentixv1.ListCallsResponse, error)
	create    func(context.Context, *agentixv1.CreateSandboxRequest) (*agentixv1.Sandbox, error)
	list      func(context.Context, *agentixv1.ListSandboxesRequest) (*agentixv1.ListSandboxesResponse, error)
	change    func(context.Context, *agentixv1.UpdateSandboxRequest) (*agentixv1.Sandbox, error)
	prune     func(context.Context, *agentixv1.DeleteMatchingSandboxesRequest) (*agentixv1.DeleteMatchingSandboxesResponse, error)
	templates agentixv1.TemplateServiceServer // nil = none

	pause  func(context.Context, *agentixv1.PauseSandboxRequest) (*agentixv1.Sandbox, error)
	resume func(context.Context, *agentixv1.ResumeSandboxRequest) (*agentixv1.Sandbox, error)
	watch  func(*agentixv1.WatchSandboxesRequest, grpc.ServerStreamingServer[agentixv1.WatchSandboxesResponse]) error
	stream func(*agentixv1.StreamEventsRequest, grpc.ServerStreamingServer[agentixv1.StreamEventsResponse]) error
	bundle func(grpc.ClientStreamingServer[agentixv1.ImportBundleRequest, agentixv1.Bundle]) error
	pull   func(*agentixv1.PullImageRequest, grpc.ServerStreamingServer[agentixv1.PullImageResponse]) error
	export func(*agentixv1.ExportImageRequest, grpc.ServerStreamingServer[agentixv1.ExportImageResponse]) error
	load   func(grpc.ClientStreamingServer[agentixv1.ImportImageRequest, agentixv1.ImportImageResponse]) error
}

func (d *daemon) Remote(ctx context.Context, r *agentixv1.RemoteRequest) (*agentixv1.RemoteResponse, error) {
	return d.remote(ctx, r)
}

func (d *daemon) SubmitCall(ctx context.Context, r *agentixv1.SubmitCallRequest) (*agentixv1.Call, error) {
	return d.submit(ctx, r)
}

func (d *daemon) GetCall(ctx context.Context, r *agentixv1.GetCallRequest) (*agentixv1.Call, error) {
	return d.get(ctx, r)
}

func (d *daemon) WaitCall(ctx context.Context, r *agentixv1.WaitCallRequest) (*agentixv1.Call, error) {
	return d.wait(ctx, r)
}

func (d *daemon) CancelCall(ctx context.Context, r *agentixv1.CancelCallRequest) (*agentixv1.Call, error) {
	return d.cancel(ctx, r)
}

func (d *daemon) ListCalls(ctx context.Context, r *agentixv1.ListCallsRequest) (*agentixv1.ListCallsResponse, error) {
	return d.calls(ctx, r)
}

func (d *daemon) CreateSandbox(ctx context.Context, r *agentixv1.CreateSandboxRequest) (*agentixv1.Sandbox, error) {
	return d.create(ctx, r)
}

func (d *daemon) ListSandboxes(ctx context.Context, r *agentixv1.ListSandboxesRequest) (*agentixv1.ListSandboxesResponse, error) {
	return d.list(ctx, r)
}

func (d *daemon) UpdateSandbox(ctx context.Context, r *agentixv1.UpdateSandboxRequest) (*agentixv1.Sandbox, error) {
	return d.change(ctx, r)
}

func (d *daemon) DeleteMatchingSandboxes(ctx context.Context, r *agentixv1.DeleteMatchingSandboxesRequest) (*agentixv1.DeleteMatchingSandboxesResponse, error) {
	return d.prune(ctx, r)
}

func (d *daemon) PauseSandbox(ctx context.Context, r *agentixv1.PauseSandboxRequest) (*agentixv1.Sandbox, error) {
	return d.pause(ctx, r)
}

func (d *daemon) ResumeSandbox(ctx context.Context, r *agentixv1.ResumeSandboxRequest) (*agentixv1.Sandbox, error) {
	return d.resume(ctx, r)
}

func (d *daemon) WatchSandboxes(r *agentixv1.WatchSandboxesRequest, s grpc.ServerStreamingServer[agentixv1.WatchSandboxesResponse]) error {
	return d.watch(r, s)
}

func (d *daemon) StreamEvents(r *agentixv1.StreamEventsRequest, s grpc.ServerStreamingServer[agentixv1.StreamEventsResponse]) error {
	return d.stream(r, s)
}

func (d *daemon) ImportImage(s grpc.ClientStreamingServer[agentixv1.ImportImageRequest, agentixv1.ImportImageResponse]) error {
	return d.load(s)
}

func (d *daemon) ImportBundle(s grpc.ClientStreamingServer[agentixv1.ImportBundleRequest, agentixv1.Bundle]) error {
	return d.bundle(s)
}

func (d *daemon) PullImage(r *agentixv1.PullImageRequest, s grpc.ServerStreamingServer[agentixv1.PullImageResponse]) error {
	return d.pull(r, s)
}

func (d *daemon) ExportImage(r *agentixv1.ExportImageRequest, s grpc.ServerStreamingServer[agentixv1.ExportImageResponse]) error {
	return d.export(r, s)
}

// serve serves d until the test ends and returns its address.
func serve(t *testing.T, d *daemon) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agentix-cli-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	agentixv1.RegisterSandboxServiceServer(server, d)
	if d.templates != nil {
		agentixv1.RegisterTemplateServiceServer(server, d.templates)
	}
	agentixv1.RegisterRemoteServiceServer(server, d)
	agentixv1.RegisterEventServiceServer(server, d)
	agentixv1.RegisterImageServiceServer(server, d)
	agentixv1.RegisterBundleServiceServer(server, d)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }() // ends with Stop
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return "unix://" + path
}

// result is what one command line did.
type result struct {
	Code           int
	Stdout, Stderr string
}

func execute(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return executeContext(t.Context(), stdin, args...)
}

func executeContext(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return result{Code: code, Stdout: stdout.String(), Stderr: stderr.String()}
}

func TestHelp(t *testing.T) {
	var got strings.Builder
	var visit func(command *cobra.Command, path []string)
	visit = func(command *cobra.Command, path []string) {
		if command.Name() == "help" || command.Hidden {
			return
		}
		help := execute(t, "", append(path, "--help")...)
		if help.Code != 0 || help.Stderr != "" {
			t.Errorf("help of %v: code %d, stderr %q", path, help.Code, help.Stderr)
		}
		got.WriteString("$ agentix " + strings.Join(append(path, "--help"), " ") + "\n" + help.Stdout + "\n")
		for _, child := range command.Commands() {
			visit(child, append(path[:len(path):len(path)], child.Name()))
		}
	}
	visit(newRoot(&app{}), nil)
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.String(), string(want)); diff != "" {
		t.Errorf("help differs from %s (rewrite it with -update):\n%s", golden, diff)
	}
}
