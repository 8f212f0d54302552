package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// TestImagePull: credentials are those of the flags, else of docker's file, for the one registry;
// progress is on the standard error.
func TestImagePull(t *testing.T) {
	var got *agentixv1.PullImageRequest
	address := serve(t, &daemon{pull: func(r *agentixv1.PullImageRequest, s grpc.ServerStreamingServer[agentixv1.PullImageResponse]) error {
		got = proto.CloneOf(r)
		for _, phase := range []agentixv1.PullPhase{agentixv1.PullPhase_PULL_PHASE_RESOLVING, agentixv1.PullPhase_PULL_PHASE_FETCHING, agentixv1.PullPhase_PULL_PHASE_FETCHING} {
			progress := &agentixv1.PullImageResponse_Progress{Progress: &agentixv1.PullProgress{Phase: phase, DoneBytes: 1, TotalBytes: 2}}
			if err := s.Send(&agentixv1.PullImageResponse{Message: progress}); err != nil {
				return err
			}
		}
		return s.Send(&agentixv1.PullImageResponse{Message: &agentixv1.PullImageResponse_Image{Image: &agentixv1.Image{Name: "n\x1b"}}})
	}})
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	config := filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json")
	if err := os.WriteFile(config, []byte(`{"auths": {"r.example:5000": {"username": "u", "password": "p"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args  []string
		stdin string
		want  *agentixv1.PullImageRequest
	}{
		"docker's": {[]string{"r.example:5000/app"}, "", &agentixv1.PullImageRequest{
			Reference: "r.example:5000/app", Credentials: &agentixv1.RegistryCredentials{Username: "u", Password: "p"},
		}},
		"none": {[]string{"python", "--name", "py"}, "", &agentixv1.PullImageRequest{Reference: "python", Name: "py"}},
		"given": {[]string{"r.example:5000/app", "-u", "me", "--password-stdin", "--plain-http"}, "secret\n", &agentixv1.PullImageRequest{
			Reference: "r.example:5000/app", PlainHttp: true, Credentials: &agentixv1.RegistryCredentials{Username: "me", Password: "secret"},
		}},
	} {
		ran := execute(t, tt.stdin, append([]string{"--address", address, "image", "pull"}, tt.args...)...)
		if diff := cmp.Diff(ran, result{0, `n\x1b` + "\n", "resolving\nfetching\n"}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(got, tt.want, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if ran := execute(t, "", "image", "pull", "python", "--username", "me"); ran.Code != exitTransport {
		t.Errorf("a user without a password: %+v", ran)
	}
}

// TestImageExport: the file appears once it is whole, and not at all after an error.
func TestImageExport(t *testing.T) {
	address := serve(t, &daemon{export: func(r *agentixv1.ExportImageRequest, s grpc.ServerStreamingServer[agentixv1.ExportImageResponse]) error {
		for range 3 {
			if err := s.Send(&agentixv1.ExportImageResponse{Chunk: bytes.Repeat([]byte{'x'}, 1<<20)}); err != nil {
				return err
			}
		}
		if r.GetName() == "broken" {
			return status.Error(codes.NotFound, "no such image")
		}
		return nil
	}})
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.tar"), filepath.Join(dir, "bad.tar")
	if ran := execute(t, "", "--address", address, "image", "export", "python", "-o", good); ran.Code != 0 || ran.Stdout != "" {
		t.Errorf("export: %+v", ran)
	}
	if data, err := os.ReadFile(good); err != nil || len(data) != 3<<20 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if ran := execute(t, "", "--address", address, "image", "export", "broken", "-o", bad); ran.Code != exitTransport {
		t.Errorf("export of a missing image: %+v", ran)
	}
	if ran := execute(t, "", "--address", address, "image", "export", "python"); len(ran.Stdout) != 3<<20 {
		t.Errorf("to standard output: %d bytes", len(ran.Stdout))
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files: %v, %v", entries, err)
	}
}

// TestBundleImport: the tar arrives in chunks, with the digest that was asked for.
func TestBundleImport(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 300000)
	var got []byte
	var digest string
	address := serve(t, &daemon{bundle: func(s grpc.ClientStreamingServer[agentixv1.ImportBundleRequest, agentixv1.Bundle]) error {
		for {
			message, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return s.SendAndClose(&agentixv1.Bundle{Name: "bundles/0123"})
			}
			if err != nil {
				return err
			}
			digest += message.GetHeader().GetDigest()
			if len(message.GetChunk()) > 1048576 {
				t.Errorf("a chunk of %d bytes", len(message.GetChunk()))
			}
			got = append(got, message.GetChunk()...)
		}
	}})
	ran := execute(t, string(content), "--address", address, "bundle", "import", "--digest", "sha256:ab", "-")
	if diff := cmp.Diff(ran, result{0, "bundles/0123\n", ""}); diff != "" {
		t.Error(diff)
	}
	if !bytes.Equal(got, content) || digest != "sha256:ab" {
		t.Errorf("%d bytes arrived with the digest %q", len(got), digest)
	}
}
