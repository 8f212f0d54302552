package containerd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/agentixd/agentixd/providers"
)

// Pressure reads what the kernel counted for the sandbox's cgroup, v1 or v2, and looks at
// its file systems.
func (h handle) Pressure(context.Context) (providers.Pressure, error) {
	cid, dir := h.p.containerID(h.id), h.p.hostDir(h.id)
	p := providers.Pressure{OOMKills: oomKills(cid), SocketFull: full(dir.path(socketDirName))}
	for _, file := range []string{filepath.Join(cgroupRoot, "pids", cid, "pids.events"), filepath.Join(cgroupRoot, cid, "pids.events")} {
		p.PIDsRefused = max(p.PIDsRefused, counter(file, "max"))
	}
	if _, err := os.Stat(dir.path(diskFile)); err == nil {
		p.DiskFull = full(dir.path(diskName))
	}
	return p, nil
}

// oomKills is how many processes of a container the kernel killed for want of memory. Its
// cgroup is there until the task is removed.
func oomKills(cid string) uint64 {
	return max(
		counter(filepath.Join(cgroupRoot, "memory", cid, "memory.oom_control"), "oom_kill"), // cgroup v1
		counter(filepath.Join(cgroupRoot, cid, "memory.events"), "oom_kill"),                // v2
	)
}

// counter reads one line of a file of lines of a name and a number; 0 if it is not there.
func counter(file, name string) uint64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if n, err := strconv.ParseUint(string(value), 10, 64); err == nil && string(key) == name {
			return n
		}
	}
	return 0
}
