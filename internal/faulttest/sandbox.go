package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/protobuf/proto"
)

// Sandbox is one sandbox and what is known of it.
type Sandbox struct {
	Name string // resource name
	Dir  string // gates and the file of runs
	Runs *Runs

	d   *Daemon
	pid int // of the runtime in a container
}

// NewSandbox creates a sandbox with the project of the fault tests.
func (d *Daemon) NewSandbox() *Sandbox {
	d.t.Helper()
	dir, err := os.MkdirTemp(d.Dir, "box")
	if err != nil {
		d.t.Fatal(err)
	}
	template := proto.CloneOf(d.Template)
	if template.Env == nil {
		template.Env = map[string]string{}
	}
	template.Env["FAULT_DIR"] = dir
	if d.Locate != nil {
		template.Env["FAULT_DIR"] = "/tmp"
	}
	ctx, cancel := context.WithTimeoutCause(d.t.Context(), time.Minute, errors.New("creating a sandbox took too long"))
	defer cancel()
	made, err := d.Sandboxes().CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{Sandbox: template})
	if err != nil {
		d.t.Fatalf("create sandbox: %v; %s", err, d.LogTail(3000))
	}
	s := &Sandbox{Name: made.GetName(), Dir: dir, d: d}
	if d.Locate != nil {
		s.pid = d.Locate(s)
		s.Dir = filepath.Join("/proc", strconv.Itoa(s.pid), "root/tmp")
	}
	if s.Runs, err = OpenRuns(filepath.Join(s.Dir, "runs")); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = s.Runs.Close() })
	return s
}

// Join joins a runtime that the test itself started, with dir as its FAULT_DIR.
func (d *Daemon) Join(url, dir string) *Sandbox {
	d.t.Helper()
	ctx, cancel := context.WithTimeoutCause(d.t.Context(), time.Minute, errors.New("joining a runtime took too long"))
	defer cancel()
	made, err := d.Sandboxes().CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{
		Sandbox: &agentixv1.Sandbox{Provider: "external", Runtime: &agentixv1.Runtime{Url: url}},
	})
	if err != nil {
		d.t.Fatalf("join %s: %v; %s", url, err, d.LogTail(3000))
	}
	runs, err := OpenRuns(filepath.Join(dir, "runs"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = runs.Close() })
	return &Sandbox{Name: made.GetName(), Dir: dir, Runs: runs, d: d}
}

// Open opens a gate.
func (s *Sandbox) Open(gate string) {
	s.d.t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, gate), nil, 0o600); err != nil {
		s.d.t.Fatal(err)
	}
}

// ID is the last part of its name.
func (s *Sandbox) ID() string { return strings.TrimPrefix(s.Name, "sandboxes/") }

// EngineDir is where the process provider keeps it.
func (s *Sandbox) EngineDir() string { return filepath.Join(s.d.StateDir, "process", s.ID()) }

// RuntimePID is the process of its runtime.
func (s *Sandbox) RuntimePID() int {
	s.d.t.Helper()
	if s.pid > 0 {
		return s.pid
	}
	var record struct{ PID int }
	data, err := os.ReadFile(filepath.Join(s.EngineDir(), "record.json"))
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err != nil || record.PID <= 1 {
		s.d.t.Fatalf("record of sandbox %s: %v %s", s.ID(), err, data)
	}
	return record.PID
}

// WorkerPIDs are the children of its runtime that run Python.
func (s *Sandbox) WorkerPIDs() []int {
	s.d.t.Helper()
	var pids []int
	for _, pid := range Children(s.RuntimePID()) {
		cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && bytes.Contains(cmdline, []byte("python")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Children lists the child processes of pid.
func Children(pid int) []int {
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		return nil
	}
	var pids []int
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// Delete deletes the sandbox.
func (s *Sandbox) Delete() {
	s.d.t.Helper()
	s.d.delete(s.Name)
}

func (d *Daemon) delete(name string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(d.t.Context()), time.Minute, errors.New("deleting a sandbox took too long"))
	defer cancel()
	if _, err := d.Sandboxes().DeleteSandbox(ctx, &agentixv1.DeleteSandboxRequest{Name: name, AllowMissing: true}); err != nil {
		d.t.Errorf("delete %s: %v", name, err)
	}
}

// DeleteAll deletes all sandboxes.
func (d *Daemon) DeleteAll() {
	d.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(d.t.Context()), time.Minute, errors.New("listing sandboxes took too long"))
	defer cancel()
	list, err := d.Sandboxes().ListSandboxes(ctx, &agentixv1.ListSandboxesRequest{PageSize: 1000})
	if err != nil {
		d.t.Errorf("list sandboxes: %v", err)
	}
	for _, s := range list.GetSandboxes() {
		d.delete(s.GetName())
	}
}
