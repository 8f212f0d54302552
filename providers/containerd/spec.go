package containerd

import (
	"context"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/agentixd/agentixd/providers"
)

// Paths inside a sandbox.
const (
	insideDir     = "/.agentix"
	insideRuntime = "/.agentix/agentix-runtime"
	insideProject = "/.agentix/project"
	insideSocket  = "/.agentix/socket"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	cpuPeriod   = 100000 // 100 ms in µs: the quota's period
	oomScore    = 100    // above the host's own processes; below 0 needs CAP_SYS_RESOURCE
)

// specOpts describe the container of a sandbox.
func (p *Provider) specOpts(spec providers.Spec, image ocispec.ImageConfig, user account) []oci.SpecOpts {
	dir := p.hostDir(spec.ID)
	args := []string{insideRuntime, "--socket", insideSocket + "/" + socketName, "--token-stdin"}
	args = append(args, spec.WorkerArgs()...)
	args = append(args, bundleArgs(spec.Bundle)...)
	mounts := []specs.Mount{
		{Destination: insideDir, Type: "tmpfs", Source: "agentix", Options: []string{"ro", "nosuid", "nodev", "size=4k", "mode=0755"}},
		{Destination: insideRuntime, Type: "bind", Source: p.cfg.RuntimePath, Options: []string{"bind", "ro", "nosuid", "nodev"}},
		{Destination: insideSocket, Type: "bind", Source: dir.path(socketDirName), Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}},
		// Its own cgroup, to read: how the runtime knows that a worker died for want of memory.
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro", "nosuid", "nodev", "noexec", "relatime"}},
	}
	if spec.Project != nil {
		args = append(args, "--project", insideProject)
		mounts = append(mounts, specs.Mount{
			Destination: insideProject, Type: "bind", Source: dir.path(projectName), Options: []string{"bind", "ro", "nosuid", "nodev"},
		})
	}
	if spec.Bundle != nil {
		mounts = append(mounts, specs.Mount{
			Destination: insideBundle, Type: "bind", Source: dir.path(bundleName), Options: []string{"bind", "ro", "nosuid", "nodev"},
		})
	}
	return []oci.SpecOpts{
		oci.WithDefaultSpec(),
		oci.WithProcessArgs(args...),
		oci.WithProcessCwd(workDir(image)),
		oci.WithHostname(spec.ID),
		oci.WithMounts(mounts),
		oci.WithCgroup("/" + p.containerID(spec.ID)),
		withEnv(image.Env, spec.Env),
		withAccount(user),
		withoutPrivileges,
		seccomp.WithDefaultProfile(), // looks at the capabilities, so it comes after them
		withLimits(spec.Limits),
		withSmallTmpfs(spec.Limits),
		p.withSecurity(spec),
		p.withNetwork(spec),
	}
}

func workDir(image ocispec.ImageConfig) string {
	if strings.HasPrefix(image.WorkingDir, "/") {
		return image.WorkingDir
	}
	return "/"
}

// withoutPrivileges leaves the user of the container no capability and no way to get one.
func withoutPrivileges(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	s.Process.Capabilities = &specs.LinuxCapabilities{}
	s.Process.NoNewPrivileges = true
	s.Process.Rlimits = nil // the engine's own; raising any needs CAP_SYS_RESOURCE
	score := oomScore
	s.Process.OOMScoreAdj = &score
	return nil
}

// withEnv is the image's environment under the sandbox's. AGENTIX_… belongs to the runtime.
func withEnv(image []string, own map[string]string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		env := map[string]string{"PATH": defaultPath}
		for _, v := range image {
			if name, value, ok := strings.Cut(v, "="); ok && name != "" && !strings.HasPrefix(name, "AGENTIX_") {
				env[name] = value
			}
		}
		for name, value := range own {
			env[name] = value
		}
		s.Process.Env = sortedEnv(env)
		return nil
	}
}
