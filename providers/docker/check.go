package docker

import (
	"os"
	"strconv"
	"strings"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

const (
	cpuPeriod = 100000 // 100 ms in µs: the quota's period
	minQuota  = 1000   // 1 ms in µs: the kernel's minimum

	maxTmpfsBytes = 64 << 20 // 64 MiB: /dev/shm, and /tmp and /run of a read-only sandbox; each
	minTmpfsBytes = 64 << 10 // 64 KiB
	tmpfsShare    = 8        // each of them has at most one part in so many of the memory

	handlerRunc  = "runc"
	handlerRunsc = "runsc"
)

func unsupported(format string, args ...any) error {
	return errs.New(errs.FailedPrecondition, errs.Unsupported, format, args...)
}

// check refuses what this provider or this engine cannot do, before anything is made.
func (p *Provider) check(spec providers.Spec) error {
	switch {
	case !providers.ValidID(spec.ID):
		return providers.InvalidID()
	case spec.Image == "":
		return errs.Invalid("sandbox.image", "the docker provider needs the name of an image of the engine")
	case spec.RuntimeURL != "":
		return unsupported("the docker provider starts runtimes and cannot join sandbox.runtime.url; leave it unset")
	}
	if err := p.checkLimits(spec.Limits); err != nil {
		return err
	}
	if err := checkBundle(spec); err != nil {
		return err
	}
	if err := checkSecurity(spec.Security); err != nil {
		return err
	}
	return checkNetwork(spec.Network)
}

func (p *Provider) checkLimits(l providers.Limits) error {
	for _, need := range []struct {
		asked, can bool
		field      string
	}{
		{l.CPUs > 0, p.info.CPUQuota, "cpus"}, {l.MemoryBytes > 0, p.info.MemoryLimit, "memory_bytes"}, {l.PIDs > 0, p.info.PidsLimit, "pids"},
	} {
		if need.asked && !need.can {
			return unsupported("sandbox.resources.%s: this Docker Engine cannot enforce it on this host", need.field)
		}
	}
	if l.DiskBytes > 0 {
		return unsupported("sandbox.resources.disk_bytes: the docker provider cannot enforce it; leave it unset, or use the containerd provider")
	}
	if most, known := mostOpenFiles(); known && uint64(l.OpenFiles) > most {
		return unsupported("sandbox.resources.open_files: a process may open %d files on this host; ask for at most that", most)
	}
	return nil
}

// mostOpenFiles is the highest limit that the kernel allows.
func mostOpenFiles() (uint64, bool) {
	data, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return 0, false
	}
	most, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return most, err == nil
}

// checkBundle refuses what a bundle's own server does not do.
func checkBundle(spec providers.Spec) error {
	if spec.Bundle == nil || !spec.Bundle.Server {
		return nil
	}
	switch {
	case spec.Project != nil:
		return unsupported("the bundle brings its own runtime server, which knows no sandbox.project; leave it unset")
	case spec.Workers > 1:
		return unsupported("the bundle brings its own runtime server, which knows no sandbox.workers; leave it unset")
	}
	return nil
}

func checkSecurity(s providers.Security) error {
	switch s.RuntimeHandler {
	case "", handlerRunc:
	case handlerRunsc:
		return unsupported("sandbox.security.runtime_handler: the docker provider runs runc only; use it, or the containerd provider")
	default:
		return errs.Invalid("sandbox.security.runtime_handler", "must be empty, %s or %s", handlerRunc, handlerRunsc)
	}
	if s.UserNamespace {
		return unsupported("sandbox.security.user_namespace: the Docker Engine has none of a container's own; leave it unset, or use the containerd provider")
	}
	return nil
}

func checkNetwork(n providers.Network) error {
	if _, err := n.Egress(); err != nil {
		return err //nolint:wrapcheck // Of package errs, for clients.
	}
	if n.Mode != providers.NetworkNone {
		return unsupported("sandbox.network.mode: the docker provider gives sandboxes no network; leave it unset, or use the containerd provider")
	}
	return nil
}

// checkImage refuses what an image asks for and cannot be had.
func checkImage(spec providers.Spec, image imageInfo) error {
	if spec.Security.ReadOnlyRootFS && len(image.Config.Volumes) > 0 {
		return unsupported("sandbox.security.read_only_rootfs: the image declares volumes, which could be written to; use another image, or leave it unset")
	}
	return nil
}

// tmpfsBytes is the size of each file system in memory that a sandbox can write to: so
// small that all of them together leave most of the memory.
func tmpfsBytes(l providers.Limits) int64 {
	size := int64(maxTmpfsBytes)
	if l.MemoryBytes > 0 {
		size = min(size, l.MemoryBytes/tmpfsShare)
	}
	return max(size, minTmpfsBytes)
}
