package reaper

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts a reaper that ends with the test.
func run(t *testing.T, orphans bool) *Reaper {
	t.Helper()
	r := New(orphans)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }() // ends with cancel
	t.Cleanup(func() { cancel(context.Canceled); <-done })
	return r
}

func sh(t *testing.T, r *Reaper, script string) *Process {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Start(path, []string{"sh", "-c", script}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestReturncodes(t *testing.T) {
	r := run(t, false)
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": -9, "kill -15 $$": -15} {
		p := sh(t, r, script)
		<-p.Done()
		if got := p.Returncode(); got != want {
			t.Errorf("%s: got %d, want %d", script, got, want)
		}
		if err := p.Signal(syscall.SIGKILL, true); err != nil {
			t.Errorf("signal a process that is gone: %v", err)
		}
	}
}

func TestStartFails(t *testing.T) {
	if _, err := New(false).Start("/nonexistent", []string{"x"}, &syscall.ProcAttr{}); err == nil {
		t.Error("no error")
	}
}

func TestSignalReachesTheGroup(t *testing.T) {
	r := run(t, false)
	p := sh(t, r, "sleep 1000 & wait")
	if err := p.Signal(syscall.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if got := p.Returncode(); got != -9 {
		t.Errorf("got %d", got)
	}
}

// TestOrphansAreReapedAndExitCodesKept makes 500 grandchildren that outlive their parents
// while processes that are waited for exit with codes of their own.
func TestOrphansAreReapedAndExitCodesKept(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	}()
	r := run(t, true)
	for i := range 50 {
		p := sh(t, r, fmt.Sprintf("for n in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.0$n; exit 3) & done; exit %d", i))
		<-p.Done()
		if got := p.Returncode(); got != i {
			t.Errorf("got %d, want %d", got, i)
		}
	}
	await.True(t, func() bool { return len(children()) == 0 }, "the orphans to be reaped")
}

func TestKillOrphans(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	}()
	r := run(t, true)
	p := sh(t, r, "sh -c 'sleep 1000 & sleep 1000' & exit 4")
	<-p.Done()
	r.KillOrphans(t.Context())
	if left := children(); len(left) > 0 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", left[0]))
		t.Errorf("left %v: %s %v", left, strings.ReplaceAll(string(b), "\x00", " "), err)
	}
	if got := p.Returncode(); got != 4 {
		t.Errorf("got %d", got)
	}
}
