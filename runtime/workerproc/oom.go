package workerproc

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oomKills reads how many processes of this cgroup the kernel killed for memory, from
// cgroup v2's memory.events or v1's memory.oom_control; 0 if neither can be read.
func oomKills() uint64 {
	for _, path := range oomFiles() {
		if b, err := os.ReadFile(path); err == nil {
			if n, ok := oomCounter(b); ok {
				return n
			}
		}
	}
	return 0
}

// oomFiles lists where the counter may be: by the path in /proc/self/cgroup, and at the
// root of the mount, which is what a container sees of its own cgroup.
func oomFiles() []string {
	const root = "/sys/fs/cgroup"
	var files []string
	b, err := os.ReadFile("/proc/self/cgroup")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(fields) != 3 {
				continue
			}
			switch path := fields[2]; {
			case fields[0] == "0":
				files = append(files, filepath.Join(root, path, "memory.events"), filepath.Join(root, "unified", path, "memory.events"))
			case strings.Contains(","+fields[1]+",", ",memory,"):
				files = append(files, filepath.Join(root, "memory", path, "memory.oom_control"))
			}
		}
	}
	return append(files, root+"/memory.events", root+"/memory/memory.oom_control")
}

func oomCounter(b []byte) (uint64, bool) {
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
