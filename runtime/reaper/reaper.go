// Package reaper starts processes and collects their exit statuses in one place, so that a
// runtime that is PID 1 (or a child subreaper) reaps orphans without ever taking the exit
// code of a process that someone waits for.
package reaper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Reaper is the only place of a program that waits for children.
type Reaper struct {
	orphans bool

	mu    sync.Mutex
	procs map[int]*Process
}

// Process is a child started by a Reaper.
type Process struct {
	Pid    int
	reaper *Reaper
	done   chan struct{}
	status syscall.WaitStatus
}

// New returns a reaper. With orphans it collects every child, also those that it did not
// start: only for a program that starts all its processes here.
func New(orphans bool) *Reaper {
	return &Reaper{orphans: orphans, procs: map[int]*Process{}}
}

// Run collects exit statuses until ctx ends.
func (r *Reaper) Run(ctx context.Context) {
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	defer signal.Stop(child)
	for {
		r.collect()
		select {
		case <-ctx.Done():
			r.collect()
			return
		case <-child:
		}
	}
}

// Start forks and executes path. The lock is held meanwhile, so that not even a child that
// exits at once is collected before it is known.
func (r *Reaper) Start(path string, argv []string, attr *syscall.ProcAttr) (*Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &Process{Pid: pid, reaper: r, done: make(chan struct{})}
	r.procs[pid] = p
	return p, nil
}

func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.orphans {
		for r.wait(-1) {
		}
		return
	}
	for pid := range r.procs {
		r.wait(pid)
	}
}

// wait collects one child, if one has exited.
func (r *Reaper) wait(pid int) bool {
	var status syscall.WaitStatus
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.EINTR) {
		return true
	}
	if err != nil || got <= 0 {
		return false
	}
	if p := r.procs[got]; p != nil && (status.Exited() || status.Signaled()) {
		p.status = status
		delete(r.procs, got)
		close(p.done)
	}
	return true
}

// Done is closed once the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Returncode is the exit code, or the negative signal number; only once Done is closed.
func (p *Process) Returncode() int {
	if p.status.Signaled() {
		return -int(p.status.Signal())
	}
	return p.status.ExitStatus()
}

// Signal sends sig to the process, or to its whole group; nothing if it is gone, so that a
// reused pid is never hit.
func (p *Process) Signal(sig syscall.Signal, group bool) error {
	p.reaper.mu.Lock()
	defer p.reaper.mu.Unlock()
	if p.reaper.procs[p.Pid] != p {
		return nil
	}
	pid := p.Pid
	if group {
		pid = -pid
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.Pid, err)
	}
	return nil
}

// KillOrphans kills every child that is left, and those that they leave behind, until there
// are none or ctx ends. Only for a reaper of orphans.
func (r *Reaper) KillOrphans(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for r.orphans {
		children := children()
		if len(children) == 0 {
			return
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
		}
		r.collect()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// children lists the children of this process.
func children() []int {
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil
	}
	var pids []int
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
