package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/protobuf/proto"
)

// loads is n in the long form (AGENTIX_LOAD=long), else few.
func loads(few, n int) int {
	if os.Getenv("AGENTIX_LOAD") == "long" {
		return n
	}
	return few
}

// fleet creates n sandboxes at once and returns their names.
func fleet(t *testing.T, e *daemontest.Env, n int) []string {
	t.Helper()
	names := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: proto.CloneOf(e.Template)})
			if err != nil {
				t.Errorf("create %d: %v", i, err)
			}
			names[i] = made.GetName()
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return names
}

// TestParallelCreatesAndDeletes: so many at once, also a delete beside each create, and no failure.
func TestParallelCreatesAndDeletes(t *testing.T) {
	e, _ := start(t)
	n := loads(8, 64)
	began := time.Now()
	old := fleet(t, e, n)
	made := time.Since(began)
	began = time.Now()
	var wg sync.WaitGroup
	for _, name := range old {
		wg.Go(func() {
			if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: name}); err != nil {
				t.Errorf("delete %s: %v", name, err)
			}
		})
	}
	fresh := fleet(t, e, n)
	wg.Wait()
	t.Logf("%d creates at once: %s; %d deletes beside %d creates: %s", n, made.Round(time.Millisecond), n, n, time.Since(began).Round(time.Millisecond))
	for _, name := range fresh {
		isValue("120")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: name, Callable: "math::factorial", Args: "[5]"}))
	}
	if _, err := e.Sandboxes.DeleteMatchingSandboxes(t.Context(), &agentixv1.DeleteMatchingSandboxesRequest{Filter: "*"}); err != nil {
		t.Error(err)
	}
}

// TestManySandboxes: so many live at once and answer; what one costs is printed.
func TestManySandboxes(t *testing.T) {
	e, first := start(t)
	n := loads(4, 100)
	runtime.GC()
	before, own := available(t), resident(t)
	began := time.Now()
	names := append(fleet(t, e, n-1), first)
	took := time.Since(began)
	var wg sync.WaitGroup
	began = time.Now()
	for _, name := range names {
		wg.Go(func() {
			isValue("120")(t, grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: name, Callable: "math::factorial", Args: "[5]"}))
		})
	}
	wg.Wait()
	answered := time.Since(began)
	each := (before - available(t)) / int64(n-1)
	t.Logf("%d alive after %s, all called once in %s; %d KiB of the host's memory each, of which %d KiB are the daemon's (with the test): 20 GiB would hold about %d",
		n, took.Round(time.Millisecond), answered.Round(time.Millisecond), each>>10, (resident(t)-own)/int64(n-1)>>10, (20<<30)/max(1, each))
}

// available is the memory that the host could still give; resident is what this process has.
func available(t *testing.T) int64 {
	t.Helper()
	return kilobytes(t, "/proc/meminfo", "MemAvailable:")
}

func resident(t *testing.T) int64 {
	t.Helper()
	return kilobytes(t, "/proc/self/status", "VmRSS:")
}

func kilobytes(t *testing.T, file, name string) int64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, found := strings.CutPrefix(line, name); found {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("%s has no %s", file, name)
	return 0
}

// TestCallsWhileSandboxesStart measures calls in one sandbox, alone and while others are made.
func TestCallsWhileSandboxesStart(t *testing.T) {
	e, sandbox := start(t)
	n := loads(4, 200)
	call := func(ctx context.Context) time.Duration {
		began := time.Now()
		isValue("120")(t, grpcUnix(ctx, t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "math::factorial", Args: "[5]"}))
		return time.Since(began)
	}
	measure := func(until func(i int) bool) (all []time.Duration) {
		for i := 0; !until(i); i++ {
			all = append(all, call(t.Context()))
			<-time.After(10 * time.Millisecond) // a client that is not in a hurry
		}
		slices.Sort(all)
		return all
	}
	measure(func(i int) bool { return i == 50 })
	alone := measure(func(i int) bool { return i == loads(50, 1000) })
	done := make(chan struct{})
	began := time.Now()
	go func() { // ends with the last create
		defer close(done)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: proto.CloneOf(e.Template)})
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: made.GetName()}); err != nil && !errors.Is(err, t.Context().Err()) {
					t.Errorf("delete: %v", err)
				}
			})
		}
		wg.Wait()
	}()
	beside := measure(func(int) bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	p := func(all []time.Duration, percent int) string {
		return fmt.Sprint(all[min(len(all)-1, len(all)*percent/100)].Round(10 * time.Microsecond))
	}
	t.Logf("a call alone: p50 %s, p99 %s (%d); beside %d creates in %s: p50 %s, p99 %s (%d)", p(alone, 50), p(alone, 99), len(alone),
		n, time.Since(began).Round(time.Millisecond), p(beside, 50), p(beside, 99), len(beside))
}
