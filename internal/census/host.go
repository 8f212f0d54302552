package census

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mounts are all mounts of this mount namespace.
func mounts(c Census) error {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 2 {
			c.add(Mounts, fields[2]+" "+fields[1])
		}
	}
	return nil
}

// cgroups are those whose name shows that they are ours: agx-… and agentix….
func cgroups(c Census) error {
	const root = "/sys/fs/cgroup"
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil // it went away meanwhile
		}
		if name := d.Name(); d.IsDir() && (strings.HasPrefix(name, "agx-") || strings.HasPrefix(name, "agentix")) {
			c.add(CGroups, path)
		}
		return nil
	})
}

// netNamespaces are those that processes live in and those kept by name.
func netNamespaces(c Census) error {
	seen := map[string]bool{}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	for _, link := range links {
		if ns, err := os.Readlink(link); err == nil && !seen[ns] {
			seen[ns] = true
			c.add(NetNS, ns)
		}
	}
	for _, pattern := range []string{"/run/netns/*", "/run/docker/netns/*"} {
		named, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range named {
			c.add(NetNS, path)
		}
	}
	return nil
}

// devices are all network devices of this network namespace.
func devices(c Census) error {
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return err
	}
	for _, e := range entries {
		c.add(Devices, e.Name())
	}
	return nil
}

func loopDevices(c Census) error {
	used, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, path := range used {
		file, err := os.ReadFile(path)
		if err == nil {
			c.add(LoopDevices, strings.Split(path, "/")[3]+" "+strings.TrimSpace(string(file)))
		}
	}
	return nil
}

// sockets are the listening Unix sockets of runtimes, daemons and shims, and the files that
// dead ones left.
func sockets(c Census) error {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		// Num RefCount Protocol Flags Type St Inode Path; only a bound socket has a path.
		fields := strings.Fields(line)
		const acceptsConnections = "00010000"
		if len(fields) == 8 && fields[3] == acceptsConnections && ours(fields[7]) {
			c.add(Sockets, fields[7])
		}
	}
	files, err := filepath.Glob("/run/containerd/s/*")
	if err != nil {
		return err
	}
	for _, file := range files {
		c.add(Sockets, "file "+file)
	}
	return nil
}

func ours(path string) bool {
	return strings.HasSuffix(path, "/rpc.sock") || strings.Contains(path, "agentix") || strings.Contains(path, "containerd")
}

// directories are temporary ones and runc's notes of containers.
func directories(c Census) error {
	patterns := []string{"/run/containerd/runc/agentix/*"}
	for _, prefix := range []string{"agentix-", "agx", "agc", "agm"} {
		patterns = append(patterns, filepath.Join(os.TempDir(), prefix+"*"))
	}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			c.add(Directories, path)
		}
	}
	return nil
}

// processes are daemons, runtimes, workers, shims and whatever carries a sandbox's marker.
// A process with an empty command line is a kernel thread or a zombie and is not counted.
func processes(c Census) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(cmdline) == 0 || filepath.Base(dir) == strconv.Itoa(os.Getpid()) {
			continue
		}
		command := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		environ, _ := os.ReadFile(filepath.Join(dir, "environ")) // another user's is not readable
		if ourCommand(command) || strings.Contains("\x00"+string(environ), "\x00AGENTIX_SANDBOX_DIR=") {
			c.add(PIDs, filepath.Base(dir)+" "+shorten(strings.Join(command, " ")))
		}
	}
	return nil
}

func ourCommand(command []string) bool {
	switch filepath.Base(command[0]) {
	case "agentix-runtime", "agentixd", "containerd", "containerd-shim-runc-v2", "runc":
		return true
	}
	for _, arg := range command[1:] {
		if strings.Contains(arg, "_agentix_worker") {
			return true
		}
	}
	return false
}

func shorten(s string) string {
	const maxBytes = 120
	if len(s) > maxBytes {
		return s[:maxBytes] + "…"
	}
	return s
}
