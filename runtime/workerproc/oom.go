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
	for _, path := range memoryFiles("memory.events", "memory.oom_control") {
		if b, err := os.ReadFile(path); err == nil {
			if n, ok := oomCounter(b); ok {
				return n
			}
		}
	}
	return 0
}

// oomKilled reports whether the kernel killed a worker for memory, which was started when it
// had killed before processes. Each kill is the cause of one death.
func (p *Pool) oomKilled(before uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := max(p.oomSeen, before)
	if p.oomKills() <= seen {
		return false
	}
	p.oomSeen = seen + 1
	return true
}

// memoryLimit reads how many bytes this cgroup may have; 0 if that cannot be read or there
// is no limit.
func memoryLimit() int64 {
	for _, path := range memoryFiles("memory.max", "memory.limit_in_bytes") {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n >= noLimit { // "max"
			return 0
		}
		return n
	}
	return 0
}

// noLimit is where cgroup v1 begins to mean none.
const noLimit = 1 << 60

// memoryFiles lists where a file of the memory controller, named v2 or v1, may be: by the
// path in /proc/self/cgroup, and at the root of the mount, which is what a container sees of
// its own cgroup.
func memoryFiles(v2, v1 string) []string {
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
				files = append(files, filepath.Join(root, path, v2), filepath.Join(root, "unified", path, v2))
			case strings.Contains(","+fields[1]+",", ",memory,"):
				files = append(files, filepath.Join(root, "memory", path, v1))
			}
		}
	}
	return append(files, root+"/"+v2, root+"/memory/"+v1)
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
