//go:build faults

package faults

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/faulttest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// smallDisk puts the state directory of a daemon on a file system of 24 MiB.
func smallDisk(t *testing.T, d *faulttest.Daemon) {
	t.Helper()
	dir := d.StateDir
	image := dir + ".img"
	check(t, os.WriteFile(image, nil, 0o600))
	check(t, os.Truncate(image, 24<<20))
	run(t, "mkfs.ext4", "-q", "-m", "0", image)
	check(t, os.Mkdir(dir, 0o700))
	run(t, "mount", "-o", "loop", image, dir)
	d.AfterEnd = append(d.AfterEnd, func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount the small disk: %v", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, output)
	}
}

// fill writes until the disk is full, also for the smallest file.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	check(t, err)
	defer f.Close()
	for size := 1 << 20; size >= 1; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// TestR13_FullDisk: new work is RESOURCE_EXHAUSTED, running calls are delivered to those who
// wait, reading works, and all goes on once there is room, also for the next daemon.
func TestR13_FullDisk(t *testing.T) {
	d := prepare(t)
	smallDisk(t, d)
	d.Start()
	e := newEra(t, d, random(t), "disk")
	o := &ops{}
	var running []faulttest.Call
	for n := range 10 {
		running = append(running, e.call(0, n, "gate"))
		o.ask(e.client("first"), running[n])
	}
	e.await(func() bool { return e.box.Runs.InFlight(running) == len(running) }, "calls to run")
	filler := filepath.Join(d.StateDir, "filler")
	refusedAt := -1
	for n := 0; n < 3000 && refusedAt < 0; n++ { // the database has some room of its own
		fill(t, filler)
		c := e.client("first")
		c.Final = []codes.Code{codes.ResourceExhausted}
		if op := c.Do(t.Context(), e.call(1, n, "")); op.Outcome.Refused != "" {
			refusedAt = n
			t.Logf("call %d was refused: %s", n, op.Outcome.Refused)
		}
	}
	if refusedAt < 0 {
		t.Error("no call was refused on the full disk")
	}
	e.box.Open("gate")
	o.wg.Wait() // delivered while the disk is full
	for _, op := range o.all {
		if op.Outcome.Value == "" {
			t.Errorf("running call %s: %s", op.Call, op.Outcome)
		}
	}
	if _, err := d.Sandboxes().GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: e.box.Name}); err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}
	check(t, os.Remove(filler))
	for n := range 10 {
		e.client("first").Do(t.Context(), e.call(2, n, "")) // it waits until there is room
	}
	d.Kill()
	d.Start()
	for _, call := range running {
		e.client("later").Do(t.Context(), call)
	}
	report := e.end()
	t.Log(report.Text())
	assertClean(t, report)
	if report.Mix["refused"] != 1 || report.Mix["value"] != len(e.calls)-1 {
		t.Errorf("%d calls: %v", len(e.calls), report.Mix)
	}
}

// TestR12_DescriptorsRunOut: a daemon without free descriptors refuses connections and work,
// goes on with what it has, and recovers.
func TestR12_DescriptorsRunOut(t *testing.T) {
	d := prepare(t)
	d.Wrap = []string{"prlimit", "--nofile=96:96"}
	d.Start()
	e := newEra(t, d, random(t), "fds")
	o := &ops{}
	var running []faulttest.Call
	for n := range 10 {
		running = append(running, e.call(0, n, "gate"))
		o.ask(e.client("first"), running[n])
	}
	e.await(func() bool { return e.box.Runs.InFlight(running) == len(running) }, "calls to run")
	var conns []net.Conn
	for range 200 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", d.Socket())
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	e.await(func() bool { return descriptors(d.PID()) >= 95 }, "descriptors to run out")
	for n := range 10 {
		o.ask(e.client("meanwhile"), e.call(1, n, ""))
	}
	_, err := d.Sandboxes().CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: d.Template})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a create without descriptors: got %v, want RESOURCE_EXHAUSTED", err)
	}
	t.Logf("%d connections were opened; a create answers: %v", len(conns), err)
	e.box.Open("gate")
	o.wg.Wait()
	for _, conn := range conns {
		_ = conn.Close()
	}
	e.await(func() bool { return descriptors(d.PID()) < 60 }, "descriptors to be free again")
	other := d.NewSandbox()
	if op := (faulttest.Client{Daemon: d}).Do(t.Context(), faulttest.Call{ID: "other", Sandbox: other.Name, Callable: faulttest.Work}); op.Outcome.Value == "" {
		t.Errorf("after that: %s", op.Outcome)
	}
	report := e.end()
	t.Log(report.Text())
	assertClean(t, report)
	if report.Mix["value"] != len(e.calls) {
		t.Errorf("%d calls: %v", len(e.calls), report.Mix)
	}
	if log := d.LogTail(1 << 30); strings.Count(log, "\n") > 2000 {
		t.Errorf("the daemon logged %d lines over it", strings.Count(log, "\n"))
	}
}

func descriptors(pid int) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return len(entries)
}
