//go:build containerd

package containerd_test

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"go.uber.org/goleak"

	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/containerd"
	"github.com/agentixd/agentixd/providers/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testInstance = "test-instance"

func open(t testing.TB, d *containerdtest.Daemon, instance, stateDir, runtime string) *containerd.Provider {
	t.Helper()
	p, err := containerd.New(t.Context(), providers.Config{
		StateDir: stateDir, Instance: instance, RuntimePath: runtime, ContainerdAddress: d.Address,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// emptyRootFS is a root file system with nothing but the directories that runc wants: the
// stub is static, so it needs no more.
func emptyRootFS(t testing.TB) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []string{"proc/", "sys/", "dev/", "tmp/", "etc/", "run/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// killTask kills a sandbox's main process as `ctr task kill` would.
func killTask(t testing.TB, d *containerdtest.Daemon, id string) {
	t.Helper()
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	ctx := namespaces.WithNamespace(t.Context(), containerd.Namespace)
	list, err := c.Containers(ctx, `labels."agentix.dev/sandbox"==`+id)
	if err != nil || len(list) != 1 {
		t.Fatalf("containers of %s: %v, %v", id, list, err)
	}
	task, err := list[0].Task(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), "/proc/self/exe")
	if _, err := p.ImportRootFS(t.Context(), "empty", emptyRootFS(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	providertest.Run(t, providertest.Features{
		New: func(t testing.TB, stateDir, runtime string) providers.Provider {
			return open(t, d, testInstance, stateDir, runtime)
		},
		Image:    "empty",
		Limits:   true,
		Isolated: true,
		Kill:     func(t testing.TB, _ providers.Provider, id string) { killTask(t, d, id) },
	})
}
