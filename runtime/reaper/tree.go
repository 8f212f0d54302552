package reaper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Tree names the processes that one of ours started: its descendants, as long as the chain of
// parents holds, and of those that lost it the ones that carry Marker in their environment or
// hold one of Pipes. A process that hides from all three is not found.
type Tree struct {
	Root   *Process
	Marker string   // NAME=value
	Pipes  []uint64 // inode numbers; the ends that are written to count
	All    bool     // every process below this one: only for a reaper of orphans
}

// proc is one process as /proc tells it. A pid with its start time is never used twice.
type proc struct {
	pid, ppid int
	start     uint64
	zombie    bool
}

type procID struct {
	pid   int
	start uint64
}

func (p proc) id() procID { return procID{p.pid, p.start} }

// KillTree kills a tree and waits until nothing of it is left, or ctx ends. All of it is stopped
// first, so that nothing is started while it is killed.
func (r *Reaper) KillTree(ctx context.Context, t Tree) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	members := map[procID]bool{} // true: stopped
	for {
		living := r.freeze(&t, members)
		for _, p := range living {
			strike(p, unix.SIGKILL)
		}
		if len(living) == 0 {
			return nil
		}
		r.collect()
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes are left: %w", len(living), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// freeze stops every member until no new one is found, and returns those that live, or that
// nobody has collected yet. The lock keeps it from what Start has forked and not executed: a
// copy of this process, for which Start waits.
func (r *Reaper) freeze(t *Tree, members map[procID]bool) []proc {
	r.mu.Lock()
	defer r.mu.Unlock()
	const rounds = 100 // one that forks faster than this is killed as far as it is known
	var living []proc
	for range rounds {
		living = r.find(t, members)
		fresh := false
		for _, p := range living {
			if !members[p.id()] && !p.zombie {
				fresh = true
				strike(p, unix.SIGSTOP)
			}
			members[p.id()] = true
		}
		if !fresh {
			break
		}
	}
	return living
}

// find looks for the members of a tree. What was one stays one.
func (r *Reaper) find(t *Tree, members map[procID]bool) []proc {
	all := processes()
	children := map[int][]proc{}
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
	}
	root := 0
	select {
	case <-t.Root.Done():
	default:
		root = t.Root.Pid
	}
	candidates := all
	if r.orphans { // nothing of ours is anywhere else
		candidates = below(os.Getpid(), children)
	}
	var found []proc
	seen := map[int]bool{}
	for _, p := range candidates {
		if seen[p.pid] || p.pid == os.Getpid() {
			continue
		}
		_, known := members[p.id()]
		if !known && p.pid != root && !t.All && (p.zombie || !t.marks(p.pid)) {
			continue
		}
		for _, q := range append([]proc{p}, below(p.pid, children)...) {
			if !seen[q.pid] {
				seen[q.pid] = true
				found = append(found, q)
			}
		}
	}
	if !r.orphans { // who collects the dead is not known: they are gone
		found = slices.DeleteFunc(found, func(p proc) bool { return p.zombie })
	}
	return found
}

// below is every descendant of a process, parents first.
func below(pid int, children map[int][]proc) []proc {
	var found []proc
	for next := []int{pid}; len(next) > 0; {
		at := next[0]
		next = next[1:]
		for _, p := range children[at] {
			found = append(found, p)
			next = append(next, p.pid)
		}
	}
	return found
}

// marks reports whether a process carries the mark of the tree.
func (t *Tree) marks(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	env, err := os.ReadFile(dir + "/environ")
	if err == nil && t.Marker != "" && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+t.Marker+"\x00")) {
		return true
	}
	if len(t.Pipes) == 0 {
		return false
	}
	files, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return false
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm()&0o200 == 0 {
			continue
		}
		target, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
		if err != nil {
			continue
		}
		for _, inode := range t.Pipes {
			if target == "pipe:["+strconv.FormatUint(inode, 10)+"]" {
				return true
			}
		}
	}
	return false
}

// strike sends sig to exactly this process.
func strike(p proc, sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		_ = syscall.Kill(p.pid, sig)
		return
	}
	if err != nil {
		return // gone
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := readProc(p.pid); ok && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may be gone
	}
}

// processes lists every process that /proc shows.
func processes() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	list := make([]proc, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// readProc reads from behind the command name, which may hold any byte, also ')'.
func readProc(pid int) (proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return proc{}, false
	}
	ppid, err1 := strconv.Atoi(fields[1])
	start, err2 := strconv.ParseUint(fields[19], 10, 64)
	if err1 != nil || err2 != nil {
		return proc{}, false
	}
	return proc{pid: pid, ppid: ppid, start: start, zombie: fields[0] == "Z" || fields[0] == "X"}, true
}
