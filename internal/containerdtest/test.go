package containerdtest

import (
	"context"
	"os"
	"testing"
)

// Start starts a containerd for one test. At its end everything must be gone: what a test
// leaves behind fails it.
func Start(t testing.TB) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "agc") // short: containerd's sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove containerd's directory: %v", err)
		}
	})
	d, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log ends with:\n%s", d.logTail())
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Image returns the tar of the small Python image.
func Image(t testing.TB) *os.File {
	t.Helper()
	path, err := PythonRootFS(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
