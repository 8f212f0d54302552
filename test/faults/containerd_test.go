//go:build faults && containerd

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/faulttest"
	"github.com/agentixd/agentixd/providers/containerd"
)

// onContainers prepares a daemon on a containerd of its own.
func onContainers(t *testing.T) (*faulttest.Daemon, *containerdtest.Daemon) {
	t.Helper()
	return onContainersOf(t, func() *faulttest.Daemon { return prepare(t) })
}

// onContainersWith is onContainers with other binaries.
func onContainersWith(t *testing.T, b faulttest.Binaries) (*faulttest.Daemon, *containerdtest.Daemon) {
	t.Helper()
	return onContainersOf(t, func() *faulttest.Daemon { return faulttest.NewDaemon(t, b) })
}

func onContainersOf(t *testing.T, prepare func() *faulttest.Daemon) (*faulttest.Daemon, *containerdtest.Daemon) {
	t.Helper()
	engine := containerdtest.Start(t) // it outlives the daemon
	d := prepare()
	d.Provider = []string{"--provider", "containerd", "--containerd-address", engine.Address}
	d.Locate = func(s *faulttest.Sandbox) int { return locate(t, engine, s) }
	d.Template.Image = "python"
	d.Template.Resources = &agentixv1.Resources{MemoryBytes: 512 << 20}
	check(t, os.Chmod(d.Dir, 0o755)) //nolint:gosec // containers look into the project
	d.Start()
	images := agentixv1.NewImageServiceClient(d.Conn(0))
	s, err := images.ImportImage(t.Context())
	check(t, err)
	header := &agentixv1.ImportImageHeader{Name: "python", Format: agentixv1.ImageFormat_IMAGE_FORMAT_ROOTFS}
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
	_, err = s.CloseAndRecv()
	check(t, err)
	return d, engine
}

// locate finds the main process of a sandbox's container.
func locate(t *testing.T, engine *containerdtest.Daemon, s *faulttest.Sandbox) int {
	t.Helper()
	c, err := client.New(engine.Address)
	check(t, err)
	defer c.Close() //nolint:errcheck // read only
	ctx := namespaces.WithNamespace(context.WithoutCancel(t.Context()), containerd.Namespace)
	list, err := c.Containers(ctx, `labels."agentix.dev/sandbox"==`+s.ID())
	if err != nil || len(list) != 1 {
		t.Fatalf("containers of %s: %v, %v", s.ID(), list, err)
	}
	task, err := list[0].Task(ctx, nil)
	check(t, err)
	return int(task.Pid())
}

// parent is the parent process of pid: the shim of a container's main process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(t, err)
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	n, err := strconv.Atoi(fields[1])
	check(t, err)
	return n
}

// engineFault is a fault of containerd or a shim while calls run.
type engineFault struct {
	strike func(e *era, engine *containerdtest.Daemon) // and what brings all back
	lost   bool                                        // the sandbox may be lost
}

func restart(e *era, engine *containerdtest.Daemon) { check(e.t, engine.Restart(e.t.Context())) }

func (e *era) killShim() { _ = syscall.Kill(parent(e.t, e.box.RuntimePID()), syscall.SIGKILL) }

var engineFaults = map[string]engineFault{
	"containerd dies": {strike: func(e *era, engine *containerdtest.Daemon) { engine.Kill(); e.box.Open("gate"); restart(e, engine) }},
	"containerd stands still": {strike: func(e *era, engine *containerdtest.Daemon) {
		check(e.t, syscall.Kill(engine.PID(), syscall.SIGSTOP))
		e.box.Open("gate")
		<-time.After(time.Second)
		check(e.t, syscall.Kill(engine.PID(), syscall.SIGCONT))
	}},
	"the daemon dies": {strike: func(e *era, _ *containerdtest.Daemon) { e.d.Kill(); e.box.Open("gate"); e.d.Start() }},
	"daemon and containerd die, containerd first up": {strike: func(e *era, engine *containerdtest.Daemon) {
		e.d.Kill()
		engine.Kill()
		restart(e, engine)
		e.d.Start()
		e.box.Open("gate")
	}},
	"daemon and containerd die, daemon first up": {strike: func(e *era, engine *containerdtest.Daemon) {
		engine.Kill()
		e.d.Kill()
		e.d.Exec()
		select {
		case <-e.d.Exited():
			if code := e.d.ExitCode(); code == 0 || !strings.Contains(e.d.LogTail(2000), "containerd") {
				e.t.Errorf("the daemon without containerd ended with %d: %s", code, e.d.LogTail(2000))
			}
		case <-time.After(faulttest.Patience):
			e.t.Error("the daemon goes on without containerd")
			e.d.Kill()
		}
		restart(e, engine)
		e.d.Start()
		e.box.Open("gate")
	}},
	"the shim dies": {lost: true, strike: func(e *era, _ *containerdtest.Daemon) { e.killShim() }},
	"shim and containerd die": {lost: true, strike: func(e *era, engine *containerdtest.Daemon) {
		e.killShim()
		engine.Kill()
		restart(e, engine)
	}},
	"the runtime dies while containerd is down": {lost: true, strike: func(e *era, engine *containerdtest.Daemon) {
		engine.Kill()
		check(e.t, syscall.Kill(e.box.RuntimePID(), syscall.SIGKILL))
		restart(e, engine)
	}},
	"the runtime dies while daemon and containerd are down": {lost: true, strike: func(e *era, engine *containerdtest.Daemon) {
		e.d.Kill()
		engine.Kill()
		check(e.t, syscall.Kill(e.box.RuntimePID(), syscall.SIGKILL))
		restart(e, engine)
		e.d.Start()
	}},
}

// TestR3_R8_Engine: containerd, shims and the daemon die and stand still under running calls.
// Calls have their results, or end with a sandbox that was lost; new sandboxes can be made,
// and nothing is left.
func TestR3_R8_Engine(t *testing.T) {
	d, engine := onContainers(t)
	rnd := random(t)
	n := 0
	for name, fault := range engineFaults {
		n++
		t.Run(name, func(t *testing.T) {
			e := newEra(t, d, rnd, fmt.Sprint("engine", n))
			o := &ops{}
			var calls []faulttest.Call
			for i := range 20 {
				calls = append(calls, e.call(1, i, "gate"))
				o.ask(e.client("first"), calls[i])
			}
			e.await(func() bool { return e.box.Runs.InFlight(calls) == len(calls) }, "calls to run")
			pid := e.box.RuntimePID()
			fault.strike(e, engine)
			o.wg.Wait()
			if !fault.lost {
				o.ask(e.client("first"), e.call(2, 0, ""))
				o.wg.Wait()
			}
			e.dead = fault.lost
			report := e.end()
			t.Log(report.Text())
			assertClean(t, report)
			if !fault.lost && report.Mix["value"] != len(e.calls) {
				t.Errorf("of %d calls only %d have results", len(e.calls), report.Mix["value"])
			}
			e.await(func() bool { return gone(pid) }, "the end of the runtime")
			d.NewSandbox().Delete()
		})
	}
}

func gone(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ")
}

// TestR8_Containers: containers with running calls outlive the daemon; all are linked again.
func TestR8_Containers(t *testing.T) {
	many := 10
	if long() {
		many = 40
	}
	d, _ := onContainers(t)
	f := newFleet(t, d, many)
	waiting := f.ask(d, 0, "gate")
	e := &era{t: t, d: d}
	e.await(func() bool { return f.inFlight() == many }, "a call in each sandbox")
	d.Kill()
	began := time.Now()
	ready := d.Start()
	var wg sync.WaitGroup
	for _, box := range f.boxes {
		wg.Go(func() { box.Open("gate") })
	}
	wg.Wait()
	waiting.wg.Wait()
	t.Logf("%d containers: ready after %s, all calls have their results after %s", many, ready.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	for i, box := range f.boxes {
		runs, bad := box.Runs.All()
		r := faulttest.Check(faulttest.Evidence{Calls: f.calls[i], Ops: f.history.Ops(), Runs: runs, Bad: bad, Journal: box.ReadJournal()})
		assertClean(t, r)
		if r.Mix["value"] != 1 {
			t.Errorf("sandbox %d: %v", i, r.Mix)
		}
	}
}
