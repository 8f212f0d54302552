package containerd

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

const (
	cgroupRoot = "/sys/fs/cgroup"

	maxTmpfsBytes = 64 << 20 // 64 MiB: /run, /dev/shm and, without a disk of its own, /tmp; each
	minTmpfsBytes = 64 << 10 // 64 KiB
	devBytes      = 1 << 20  // 1 MiB: /dev, which holds nodes only
	tmpfsShare    = 8        // each of them has at most one part in so many of memory and disk
)

// checkLimits refuses what cannot be enforced on this host.
func (p *Provider) checkLimits(ctx context.Context, l providers.Limits) error {
	for _, need := range []struct {
		asked             bool
		field, controller string
	}{
		{l.CPUs > 0, "cpus", "cpu"}, {l.MemoryBytes > 0, "memory_bytes", "memory"}, {l.PIDs > 0, "pids", "pids"},
	} {
		if need.asked && !hasController(need.controller) {
			return unsupported("sandbox.resources.%s: this host has no %s controller of cgroups", need.field, need.controller)
		}
	}
	if l.DiskBytes > 0 {
		if err := checkDisk(l.DiskBytes); err != nil {
			return err
		}
	}
	if l.OpenFiles == 0 {
		return nil
	}
	if most, known := p.mostOpenFiles(ctx); known && uint64(l.OpenFiles) > most {
		return unsupported("sandbox.resources.open_files: containerd itself may open %d files here, and its sandboxes no more; "+
			"ask for at most that, or raise the limit of containerd (LimitNOFILE)", most)
	}
	return nil
}

func unsupported(format string, args ...any) error {
	return errs.New(errs.FailedPrecondition, errs.Unsupported, format, args...)
}

// hasController tells whether cgroups, v2 or v1, can limit something here.
func hasController(name string) bool {
	if data, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		for field := range strings.FieldsSeq(string(data)) {
			if field == name {
				return true
			}
		}
		return false
	}
	_, err := os.Stat(filepath.Join(cgroupRoot, name))
	return err == nil
}

// checkDisk tells what a file system of a sandbox's own needs and is not here.
func checkDisk(size int64) error {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return unsupported("sandbox.resources.disk_bytes: mkfs.ext4 is missing on this host (package e2fsprogs)")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return unsupported("sandbox.resources.disk_bytes: this host has no loop devices (/dev/loop-control)")
	}
	if size < minDiskBytes {
		return errs.Invalid("sandbox.resources.disk_bytes", "must be at least %d", int64(minDiskBytes))
	}
	return nil
}

// mostOpenFiles is the highest limit that containerd can give: its own, unless it may raise it.
func (p *Provider) mostOpenFiles(ctx context.Context) (uint64, bool) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.cfg.ContainerdAddress)
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, false
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil || pid <= 0 {
		return 0, false
	}
	if mayRaiseLimits(pid) {
		data, err := os.ReadFile("/proc/sys/fs/nr_open")
		if err != nil {
			return 0, false
		}
		most, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		return most, err == nil
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return 0, false
	}
	return limit.Max, true
}

// mayRaiseLimits tells whether a process has CAP_SYS_RESOURCE.
func mayRaiseLimits(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && caps&(1<<unix.CAP_SYS_RESOURCE) != 0
		}
	}
	return false
}

func withLimits(l providers.Limits) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if s.Linux.Resources == nil {
			s.Linux.Resources = &specs.LinuxResources{}
		}
		r := s.Linux.Resources
		if l.MemoryBytes > 0 {
			r.Memory = &specs.LinuxMemory{Limit: &l.MemoryBytes}
			if swapAccounted() {
				r.Memory.Swap = &l.MemoryBytes // memory and swap together: no swap
			} else if _, err := os.Stat(filepath.Join(cgroupRoot, "memory/memory.swappiness")); err == nil {
				never := uint64(0)
				r.Memory.Swappiness = &never
			}
		}
		if l.CPUs > 0 {
			quota, period := max(int64(l.CPUs*cpuPeriod), 1000), uint64(cpuPeriod) // 1000 µs is the kernel's minimum
			r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
		}
		if l.PIDs > 0 {
			r.Pids = &specs.LinuxPids{Limit: &l.PIDs}
		}
		if l.OpenFiles > 0 && s.Process != nil {
			n := uint64(l.OpenFiles)
			s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: n, Hard: n})
		}
		return nil
	}
}

// swapAccounted tells whether a swap limit can be set: always on cgroup v2.
func swapAccounted() bool {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return true
	}
	_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	return err == nil
}

// tmpfsBytes is the size of each file system in memory that a sandbox can write to: so
// small that all of them together leave most of the memory and of the disk.
func tmpfsBytes(l providers.Limits) int64 {
	size := int64(maxTmpfsBytes)
	for _, limit := range []int64{l.MemoryBytes, l.DiskBytes} {
		if limit > 0 {
			size = min(size, limit/tmpfsShare)
		}
	}
	return max(size&^4095, minTmpfsBytes) // whole pages
}

// withSmallTmpfs bounds what the default mounts hold in memory.
func withSmallTmpfs(l providers.Limits) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		for i := range s.Mounts {
			m := &s.Mounts[i]
			switch m.Destination {
			case "/run", "/dev/shm":
				m.Options = withSize(m.Options, tmpfsBytes(l))
			case "/dev":
				m.Options = withSize(m.Options, devBytes)
			}
		}
		return nil
	}
}

func withSize(options []string, size int64) []string {
	var kept []string
	for _, option := range options {
		if !strings.HasPrefix(option, "size=") {
			kept = append(kept, option)
		}
	}
	return append(kept, fmt.Sprintf("size=%dk", size>>10))
}
