package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestSandboxCreate(t *testing.T) {
	var got *agentixv1.CreateSandboxRequest
	address := serve(t, &daemon{create: func(_ context.Context, r *agentixv1.CreateSandboxRequest) (*agentixv1.Sandbox, error) {
		got = proto.CloneOf(r)
		return &agentixv1.Sandbox{Name: "sandboxes/box"}, nil
	}})
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	ran := execute(t, "", "--address", address, "sandbox", "create", "--id", "box", "--image", "python", "--project", "sub/..",
		"-e", "A=b=c", "-l", "team=x", "--cpus", "1.5", "--memory", "512m", "--pids", "64", "--request-id", "r")

	if diff := cmp.Diff(ran, result{0, "box\n", ""}); diff != "" {
		t.Error(diff)
	}
	want := &agentixv1.CreateSandboxRequest{SandboxId: "box", RequestId: "r", Sandbox: &agentixv1.Sandbox{
		Image: "python", Project: here, Env: map[string]string{"A": "b=c"}, Labels: map[string]string{"team": "x"},
		Resources: &agentixv1.Resources{Cpus: 1.5, MemoryBytes: 536870912, Pids: 64},
	}}
	if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// TestSandboxOfOthers: runtimes that someone else runs, and ours for clients of others.
func TestSandboxOfOthers(t *testing.T) {
	var got *agentixv1.CreateSandboxRequest
	address := serve(t, &daemon{create: func(_ context.Context, r *agentixv1.CreateSandboxRequest) (*agentixv1.Sandbox, error) {
		got = proto.CloneOf(r)
		return &agentixv1.Sandbox{Name: "sandboxes/box", Runtime: &agentixv1.Runtime{Url: "http://agentix:s@127.0.0.1:1"}}, nil
	}})
	for _, c := range []struct {
		args []string
		want *agentixv1.Sandbox
		out  string
	}{
		{[]string{"--runtime-url", "http://h:1"}, &agentixv1.Sandbox{Provider: "external", Runtime: &agentixv1.Runtime{Url: "http://h:1"}}, "box\n"},
		{[]string{"--provider", "process", "--expose-runtime"}, &agentixv1.Sandbox{Provider: "process", ExposeRuntime: true}, "box\nhttp://agentix:s@127.0.0.1:1\n"},
	} {
		ran := execute(t, "", append([]string{"--address", address, "sandbox", "create"}, c.args...)...)
		if diff := cmp.Diff(ran, result{0, c.out, ""}); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(got.GetSandbox(), c.want, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
}

// TestSandboxIsolation: limits and isolation as flags.
func TestSandboxIsolation(t *testing.T) {
	var got *agentixv1.CreateSandboxRequest
	address := serve(t, &daemon{create: func(_ context.Context, r *agentixv1.CreateSandboxRequest) (*agentixv1.Sandbox, error) {
		got = proto.CloneOf(r)
		return &agentixv1.Sandbox{Name: "sandboxes/box"}, nil
	}})
	bridge := agentixv1.NetworkMode_NETWORK_MODE_BRIDGE
	for args, want := range map[string]*agentixv1.Sandbox{
		"--disk 2g --open-files 512": {Resources: &agentixv1.Resources{DiskBytes: 2 << 30, OpenFiles: 512}},
		"--read-only --user-namespace --runtime-handler runc": {
			Security: &agentixv1.Security{ReadOnlyRootfs: true, UserNamespace: true, RuntimeHandler: "runc"},
		},
		"--allow-cidr 10.0.0.0/8 --allow-cidr ::/0 --dns 10.0.0.1": {
			Network: &agentixv1.Network{Mode: bridge, AllowCidrs: []string{"10.0.0.0/8", "::/0"}, DnsServers: []string{"10.0.0.1"}},
		},
		"--network host": {Network: &agentixv1.Network{Mode: agentixv1.NetworkMode_NETWORK_MODE_HOST}},
		"--network none": {Network: &agentixv1.Network{Mode: agentixv1.NetworkMode_NETWORK_MODE_NONE}},
	} {
		ran := execute(t, "", append([]string{"--address", address, "sandbox", "create"}, strings.Fields(args)...)...)
		if diff := cmp.Diff(ran, result{0, "box\n", ""}); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(got.GetSandbox(), want, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
	for _, args := range []string{"--network all", "--network unspecified", "--disk lots"} {
		if ran := execute(t, "", append([]string{"--address", address, "sandbox", "create"}, strings.Fields(args)...)...); ran.Code == 0 {
			t.Errorf("%s was taken", args)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "1": 1, "2k": 2048, "3M": 3145728, "1g": 1073741824} {
		if got, err := parseBytes("--memory", text); err != nil || got != want {
			t.Errorf("parseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "1.5g", "g", "99999999999g", "1t"} {
		if got, err := parseBytes("--memory", text); err == nil {
			t.Errorf("parseBytes(%q) = %d, want an error", text, got)
		}
	}
}

func TestSandboxList(t *testing.T) {
	created := timestamppb.New(time.Date(2026, 11, 29, 12, 0, 0, 0, time.Local))
	address := serve(t, &daemon{list: func(_ context.Context, r *agentixv1.ListSandboxesRequest) (*agentixv1.ListSandboxesResponse, error) {
		if r.GetPageToken() == "" {
			return &agentixv1.ListSandboxesResponse{NextPageToken: "2", Sandboxes: []*agentixv1.Sandbox{{
				Name: "sandboxes/one", State: agentixv1.SandboxState_SANDBOX_STATE_READY, Image: "py\x1b[2J", Provider: "process", CreateTime: created,
			}}}, nil
		}
		return &agentixv1.ListSandboxesResponse{Sandboxes: []*agentixv1.Sandbox{{
			Name: "sandboxes/two", State: agentixv1.SandboxState_SANDBOX_STATE_FAILED,
			Reason: agentixv1.SandboxReason_SANDBOX_REASON_OOM_KILLED, Provider: "process", CreateTime: created,
		}}}, nil
	}})

	text := execute(t, "", "--address", address, "sandbox", "ls")

	want := "ID   STATE   REASON      IMAGE        PROVIDER  CREATED\n" +
		`one  READY   -           py\x1b[2J    process   2026-11-29 12:00:00` + "\n" +
		"two  FAILED  OOM_KILLED               process   2026-11-29 12:00:00\n"
	if diff := cmp.Diff(strings.ReplaceAll(text.Stdout, " ", ""), strings.ReplaceAll(want, " ", "")); diff != "" || text.Code != 0 {
		t.Error(text.Code, diff)
	}
	asJSON := execute(t, "", "--address", address, "sandbox", "ls", "-o", "json")
	if lines := strings.Count(asJSON.Stdout, "\n"); lines != 2 || asJSON.Code != 0 {
		t.Errorf("%+v", asJSON)
	}
}

func TestImageImport(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 160<<10) + "end" // two and a half chunks
	var header *agentixv1.ImportImageHeader
	hash, largest, size := sha256.New(), 0, 0
	address := serve(t, &daemon{load: func(s grpc.ClientStreamingServer[agentixv1.ImportImageRequest, agentixv1.ImportImageResponse]) error {
		for {
			message, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return s.SendAndClose(&agentixv1.ImportImageResponse{Images: []*agentixv1.Image{{Name: "python"}}})
			}
			if err != nil {
				return err
			}
			if h := message.GetHeader(); h != nil {
				header = proto.CloneOf(h)
			}
			largest, size = max(largest, len(message.GetChunk())), size+len(message.GetChunk())
			_, _ = hash.Write(message.GetChunk())
		}
	}})
	file := filepath.Join(t.TempDir(), "rootfs.tar")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	ran := execute(t, "", "--address", address, "image", "import", "--rootfs", "--name", "python", file)

	if diff := cmp.Diff(ran, result{0, "python\n", ""}); diff != "" {
		t.Error(diff)
	}
	wantHeader := &agentixv1.ImportImageHeader{Name: "python", Format: agentixv1.ImageFormat_IMAGE_FORMAT_ROOTFS}
	if diff := cmp.Diff(header, wantHeader, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	wantHash := sha256.Sum256([]byte(content))
	if size != len(content) || largest > 1048576 || string(hash.Sum(nil)) != string(wantHash[:]) {
		t.Errorf("%d bytes arrived, in chunks of up to %d", size, largest)
	}
}

func TestImageImportShowsWhyItWasRefused(t *testing.T) {
	address := serve(t, &daemon{load: func(grpc.ClientStreamingServer[agentixv1.ImportImageRequest, agentixv1.ImportImageResponse]) error {
		return status.Error(codes.FailedPrecondition, "this provider has no images")
	}})

	ran := execute(t, strings.Repeat("x", 8<<20), "--address", address, "image", "import", "-")

	if diff := cmp.Diff(ran, result{2, "", "agentix: FailedPrecondition: this provider has no images\n"}); diff != "" {
		t.Error(diff)
	}
}
