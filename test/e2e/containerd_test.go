//go:build containerd

package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/agentixd/agentixd/daemon"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/daemontest"
	"github.com/agentixd/agentixd/providers/containerd"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// engine is one containerd for all tests of this process.
var engine *containerdtest.Daemon

// begin starts containerd; end fails if a test has left anything in it.
func begin() (end func() int) {
	dir, err := os.MkdirTemp("", "agc")
	if err == nil {
		engine, err = containerdtest.Open(context.Background(), dir)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	return func() int {
		if err := errors.Join(engine.Stop(), os.RemoveAll(dir)); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
		return 0
	}
}

func configure(c *daemon.Config) {
	c.Provider, c.InsecureProcessAsRoot, c.ContainerdAddress = "containerd", false, engine.Address
}

// prepare imports the image, once, and makes it that of all sandboxes.
func prepare(t *testing.T, e *daemontest.Env) {
	t.Helper()
	e.Template.Image = "python"
	e.Template.Resources = &agentixv1.Resources{MemoryBytes: 4 << 30}
	list, err := e.Images.ListImages(t.Context(), &agentixv1.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range list.GetImages() {
		if image.GetName() == e.Template.GetImage() {
			return
		}
	}
	s, err := e.Images.ImportImage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	header := &agentixv1.ImportImageHeader{Name: e.Template.GetImage(), Format: agentixv1.ImageFormat_IMAGE_FORMAT_ROOTFS}
	err = s.Send(&agentixv1.ImportImageRequest{Message: &agentixv1.ImportImageRequest_Header{Header: header}})
	archive := containerdtest.Image(t)
	for chunk := make([]byte, 1<<20); err == nil; {
		var n int
		if n, err = archive.Read(chunk); err == nil {
			err = s.Send(&agentixv1.ImportImageRequest{Message: &agentixv1.ImportImageRequest_Chunk{Chunk: chunk[:n]}})
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	made, err := s.CloseAndRecv()
	if err != nil || len(made.GetImages()) != 1 || !strings.HasPrefix(made.GetImages()[0].GetDigest(), "sha256:") {
		t.Fatalf("got %v, %v", made, err)
	}
}

// kill ends a sandbox by hand.
func kill(t *testing.T, _ *daemontest.Env, sandbox string) {
	t.Helper()
	c, err := client.New(engine.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // Nothing depends on it.
	ctx := namespaces.WithNamespace(t.Context(), containerd.Namespace)
	list, err := c.Containers(ctx, `labels."agentix.dev/sandbox"==`+strings.TrimPrefix(sandbox, "sandboxes/"))
	if err != nil || len(list) != 1 {
		t.Fatalf("containers of %s: %v, %v", sandbox, list, err)
	}
	task, err := list[0].Task(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Kill(ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestWorkerDiesForWantOfMemory(t *testing.T) {
	e, _ := start(t)
	e.Template.Resources = &agentixv1.Resources{MemoryBytes: 128 << 20}
	sandbox := e.Sandbox(t)
	request := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::text", Args: "[1000000000]"}
	for name, remote := range protocols {
		t.Run(name, func(t *testing.T) {
			isError("WorkerDied", "", func(e *agentixv1.RemoteError) bool {
				return e.GetReturncode() == -9 && e.GetCause() == "OOM_KILLED"
			})(t, remote(t.Context(), t, e, request))
		})
	}
}
