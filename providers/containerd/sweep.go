package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

const (
	engineSweep = 5 * time.Second // for containerd itself to clean up after a dead shim
	sweepPause  = 10 * time.Millisecond
)

// sweep waits until the host has no process, cgroup, mount or note of a container any more. With a
// living shim that is so when its task was removed. After a dead one containerd cleans up
// in the background; what it does not within engineSweep is removed here.
func (p *Provider) sweep(ctx context.Context, cid string) error {
	deadline := time.Now().Add(engineSweep)
	for {
		cgroups, mounts := cgroupsOf(cid), mountsOf(cid)
		_, err := os.Stat(runcState(cid))
		noted := err == nil
		if len(cgroups) == 0 && len(mounts) == 0 && !noted {
			_ = os.Remove(p.shimSocket(cid)) // a dead shim leaves it
			removeRunscNotes(cid)
			return nil
		}
		for _, dir := range cgroups {
			killCgroup(dir)
		}
		thaw(cid)
		if time.Now().After(deadline) {
			for _, path := range mounts {
				if err := providers.UnmountAll(path); err != nil {
					return err
				}
			}
			for _, dir := range cgroups {
				_ = unix.Rmdir(dir) // busy until the last process is buried: the next round tries again
			}
			if noted && len(cgroups) == 0 {
				_ = os.RemoveAll(runcState(cid))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("sweep container %s: %w", cid, context.Cause(ctx))
		case <-time.After(sweepPause):
		}
	}
}

// runcState is where runc notes a container; a second one of that name is refused while it is there.
func runcState(cid string) string { return filepath.Join("/run/containerd/runc", Namespace, cid) }

// removeRunscNotes removes what runsc leaves there: a lock, and after a failed start its state.
func removeRunscNotes(cid string) {
	notes, err := filepath.Glob(filepath.Join(filepath.Dir(runcState(cid)), cid+"_sandbox:*"))
	if err != nil {
		return
	}
	for _, path := range notes {
		_ = os.Remove(path)
	}
}

// shimSocket is where containerd's shims listen.
func (p *Provider) shimSocket(cid string) string {
	sum := sha256.Sum256([]byte(filepath.Join(p.cfg.ContainerdAddress, Namespace, cid)))
	return filepath.Join("/run/containerd/s", hex.EncodeToString(sum[:]))
}

// cgroupsOf lists the cgroups of a container: one by controller on v1, one on v2.
func cgroupsOf(cid string) []string {
	dirs, err := filepath.Glob("/sys/fs/cgroup/*/" + cid)
	if err != nil {
		return nil
	}
	if _, err := os.Stat("/sys/fs/cgroup/" + cid); err == nil {
		dirs = append(dirs, "/sys/fs/cgroup/"+cid)
	}
	return dirs
}

func killCgroup(dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				continue
			}
		}
	}
}

// mountsOf lists the mount points that containerd made for a container.
func mountsOf(cid string) []string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var paths []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.Contains(fields[1], "/"+Namespace+"/"+cid+"/") {
			paths = append(paths, fields[1])
		}
	}
	return paths
}
