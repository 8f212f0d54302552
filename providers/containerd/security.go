package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Runtime handlers.
const (
	handlerRunc  = "runc"
	handlerRunsc = "runsc"
)

// The owners of sandboxes with a user namespace: 65536 ids each, far above those that people,
// services and other engines have.
const (
	idsPerSandbox = 65536
	firstIDRange  = 1024  // × 65536: 67108864
	lastIDRange   = 32767 // below 2³¹, as some file systems and programs need
)

// hostUID is the user and group on the host that root is in a sandbox with a user namespace.
// It is made from the container's id, so that nothing has to be kept; two sandboxes in
// about 30000 have the same, and are apart by all other means.
func hostUID(cid string) int {
	sum := sha256.Sum256([]byte("uid " + cid))
	n := binary.BigEndian.Uint32(sum[:4]) % (lastIDRange - firstIDRange + 1)
	return int(firstIDRange+n) * idsPerSandbox
}

// usernsOf opens a user namespace in which owner is root.
func usernsOf(owner int) (*os.File, error) {
	ids := fmt.Sprintf("0:%d:%d", owner, idsPerSandbox)
	f, err := mount.GetUsernsFD(ids, ids)
	if err != nil {
		return nil, unsupported("sandbox.security.user_namespace: this host cannot make user namespaces: %s", err)
	}
	return f, nil
}

// checkSecurity refuses what this host cannot do.
func (p *Provider) checkSecurity(spec providers.Spec) error {
	switch s := spec.Security; s.RuntimeHandler {
	case "", handlerRunc:
		if !s.UserNamespace {
			return nil
		}
		if _, err := os.Stat("/proc/self/ns/user"); err != nil {
			return unsupported("sandbox.security.user_namespace: this kernel has no user namespaces")
		}
		return nil
	case handlerRunsc:
		if s.UserNamespace {
			return unsupported("sandbox.security.user_namespace: runsc keeps users apart by itself; leave it unset with runtime_handler runsc")
		}
		if _, err := exec.LookPath(handlerRunsc); err != nil {
			return unsupported("sandbox.security.runtime_handler: runsc is not installed on this host; install it, or use runc")
		}
		return nil
	}
	return errs.Invalid("sandbox.security.runtime_handler", "must be empty, %s or %s", handlerRunc, handlerRunsc)
}

// withSecurity is what a sandbox has beyond what all have.
func (p *Provider) withSecurity(spec providers.Spec) oci.SpecOpts {
	return func(ctx context.Context, c oci.Client, container *containers.Container, s *oci.Spec) error {
		var opts []oci.SpecOpts
		if spec.Security.UserNamespace {
			owner := uint32(hostUID(p.containerID(spec.ID)))
			ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: owner, Size: idsPerSandbox}}
			opts = append(opts, oci.WithUserNamespace(ids, ids))
		}
		if spec.Security.ReadOnlyRootFS {
			opts = append(opts, oci.WithRootFSReadonly(), oci.WithMounts([]specs.Mount{p.tmpMount(spec)}))
		}
		for _, opt := range opts {
			if err := opt(ctx, c, container, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// tmpMount is /tmp of a sandbox whose root file system is read-only: on its disk, or in memory.
func (p *Provider) tmpMount(spec providers.Spec) specs.Mount {
	m := specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmp", Options: []string{"nosuid", "nodev", "mode=1777"}}
	if spec.Limits.DiskBytes > 0 {
		m.Type, m.Source = "bind", filepath.Join(p.hostDir(spec.ID).path(diskName), tmpName)
		m.Options = []string{"bind", "rw", "nosuid", "nodev"}
		return m
	}
	m.Options = withSize(m.Options, tmpfsBytes(spec.Limits))
	return m
}

// runtime is the shim and its options for a handler.
func (p *Provider) runtime(handler string) (client.NewContainerOpts, error) {
	if handler != handlerRunsc {
		return client.WithRuntime(runtimeName, nil), nil
	}
	binary, err := p.runscWrapper()
	if err != nil {
		return nil, err
	}
	return client.WithRuntime(runtimeName, &runcoptions.Options{BinaryName: binary}), nil
}

// runscWrapper makes the command that runc's shim calls for runsc: the sandbox may make the
// socket that the daemon dials, no other socket of the host can be opened, and there is no
// network but loopback.
func (p *Provider) runscWrapper() (string, error) {
	path := filepath.Join(p.cfg.StateDir, ".runsc")
	runsc, err := exec.LookPath(handlerRunsc)
	if err != nil {
		return "", unsupported("sandbox.security.runtime_handler: runsc is not installed on this host; install it, or use runc")
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s --network=none --host-uds=create \"$@\"\n", runsc)
	if old, err := os.ReadFile(path); err == nil && string(old) == script {
		return path, nil
	}
	if err := unix.Unlink(path); err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("make runsc command: %w", err)
	}
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // A program.
		return "", fmt.Errorf("make runsc command: %w", err)
	}
	return path, nil
}
