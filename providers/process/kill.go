package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/failpoint"
)

// killTimeout is how long killed processes may take to disappear.
const killTimeout = 10 * time.Second

// destroy kills the sandbox's processes and removes its directory. It may be called twice.
func (s *sandbox) destroy() error {
	s.destroyMu.Lock()
	defer s.destroyMu.Unlock()
	if s.destroyed {
		return nil
	}
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	if err := killAll(rec, s.dir); err != nil {
		return err
	}
	if err := failpoint.Inject("delete/afterKill"); err != nil {
		return err
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove directory: %w", err)
	}
	s.destroyed = true
	return nil
}

// sweep kills what a runtime left behind when it ended.
func (s *sandbox) sweep() error {
	s.destroyMu.Lock()
	defer s.destroyMu.Unlock()
	if s.destroyed {
		return nil
	}
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	return killAll(rec, s.dir)
}

// killAll ends the recorded runtime, its descendants, its session and every process that
// carries the sandbox's marker. All are stopped before the first is killed, so that none
// forks away meanwhile, and the runtime is killed last, since it is the one that orphans
// fall back to. A process that left the tree after the runtime had died, left the session
// and dropped its environment is beyond reach: that is what "no isolation" means.
func killAll(rec record, dir string) error {
	deadline := time.Now().Add(killTimeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		victims := members(rec, dir)
		if len(victims) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill processes: %d still there after %s", len(victims), killTimeout)
		}
		stopped := map[int]bool{}
		for len(stopped) < len(victims) {
			for _, pid := range victims {
				if !stopped[pid] {
					_ = unix.Kill(pid, unix.SIGSTOP)
					stopped[pid] = true
				}
			}
			victims = merge(victims, members(rec, dir))
		}
		for _, pid := range victims {
			if pid == rec.PID && len(victims) > 1 {
				continue // next round
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if len(victims) > 1 {
			continue
		}
		<-time.After(wait) // the kernel takes a moment to bury them
	}
}

func merge(a, b []int) []int {
	seen := map[int]bool{}
	for _, pid := range a {
		seen[pid] = true
	}
	for _, pid := range b {
		if !seen[pid] {
			a = append(a, pid)
		}
	}
	return a
}

// members lists the living processes of a sandbox, zombies not counted.
func members(rec record, dir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	stats := map[int]procStat{}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		if err != nil {
			continue
		}
		stats[pid] = st
		children[st.ppid] = append(children[st.ppid], pid)
	}
	root := 0 // the recorded runtime, if it still is that process
	if st, ok := stats[rec.PID]; ok && rec.Boot == bootID() && st.startTime == rec.StartTime {
		root = rec.PID
	}
	in := map[int]bool{}
	var add func(pid int)
	add = func(pid int) {
		if in[pid] || pid == os.Getpid() {
			return
		}
		in[pid] = true
		for _, child := range children[pid] {
			add(child)
		}
	}
	if root != 0 {
		add(root)
	}
	marker := []byte(markerEnv + "=" + dir)
	for pid, st := range stats {
		if root != 0 && st.session == root || marked(pid, marker) {
			add(pid)
		}
	}
	var pids []int
	for pid := range in {
		if stats[pid].state != 'Z' {
			pids = append(pids, pid)
		}
	}
	return pids
}

func marked(pid int, marker []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // not ours to read, or gone
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, marker) {
			return true
		}
	}
	return false
}
