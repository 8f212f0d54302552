package docker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentixd/agentixd/providers"
)

// Paths inside a sandbox.
const (
	insideDir     = "/.agentix"
	insideRuntime = "/.agentix/agentix-runtime"
	insideProject = "/.agentix/project"
	insideSocket  = "/.agentix/socket"
	insideBundle  = "/nix"
)

const (
	oomScore    = 100  // above the host's own processes
	maxLogBytes = "1m" // of what the runtime itself writes; the engine starts again when longer

	labelImage = "agentix.dev/image" // the name by which the image was asked for
)

// containerSpec is the body of a request to make a container.
type containerSpec struct {
	Hostname    string
	Image       string
	Entrypoint  []string
	Cmd         []string
	Env         []string
	Labels      map[string]string
	Healthcheck map[string][]string
	AttachStdin bool
	OpenStdin   bool
	StdinOnce   bool

	NetworkDisabled bool
	HostConfig      hostConfig
}

type hostConfig struct {
	Mounts         []mount
	Tmpfs          map[string]string
	NetworkMode    string
	IpcMode        string
	Runtime        string
	CapDrop        []string
	SecurityOpt    []string
	ReadonlyRootfs bool
	OomScoreAdj    int
	ShmSize        int64
	LogConfig      logConfig
	RestartPolicy  map[string]string

	CpuPeriod        int64  `json:",omitempty"` //nolint:revive // The engine's name.
	CpuQuota         int64  `json:",omitempty"` //nolint:revive // The engine's name.
	Memory           int64  `json:",omitempty"`
	MemorySwap       int64  `json:",omitempty"`
	MemorySwappiness *int64 `json:",omitempty"`
	PidsLimit        *int64 `json:",omitempty"`
	Ulimits          []ulimit
}

type mount struct {
	Type, Source, Target string
	ReadOnly             bool
}

type logConfig struct {
	Type   string
	Config map[string]string
}

type ulimit struct {
	Name       string
	Soft, Hard int64
}

// container describes the container of a sandbox.
func (p *Provider) container(spec providers.Spec, image imageInfo) containerSpec {
	return containerSpec{
		Hostname: spec.ID,
		Image:    image.ID,
		// All of it, so that nothing of the image's own command comes behind.
		Entrypoint:  runtimeArgs(spec),
		Cmd:         []string{},
		Env:         environment(image.Config.Env, spec.Env),
		Labels:      map[string]string{labelInstance: p.cfg.Instance, labelSandbox: spec.ID, labelImage: image.name},
		Healthcheck: map[string][]string{"Test": {"NONE"}},
		AttachStdin: true, OpenStdin: true, StdinOnce: true,
		NetworkDisabled: true,
		HostConfig:      p.hostConfig(spec),
	}
}

func runtimeArgs(spec providers.Spec) []string {
	args := []string{insideRuntime, "--socket", insideSocket + "/" + socketName, "--token-stdin"}
	args = append(args, spec.WorkerArgs()...)
	switch b := spec.Bundle; {
	case b == nil:
	case b.Server:
		args = append(args, "--front")
	default:
		args = append(args, "--python", b.Python)
	}
	if spec.Project != nil {
		args = append(args, "--project", insideProject)
	}
	return args
}

func (p *Provider) hostConfig(spec providers.Spec) hostConfig {
	dir, size := p.hostDir(spec.ID), tmpfsBytes(spec.Limits)
	h := hostConfig{
		Mounts: []mount{
			{Type: "bind", Source: p.cfg.RuntimePath, Target: insideRuntime, ReadOnly: true},
			{Type: "bind", Source: dir.path(socketDirName), Target: insideSocket},
		},
		Tmpfs:          map[string]string{insideDir: "ro,nosuid,nodev,size=4k,mode=0755"},
		NetworkMode:    "none",
		IpcMode:        "private",
		Runtime:        handlerRunc,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		ReadonlyRootfs: spec.Security.ReadOnlyRootFS,
		OomScoreAdj:    oomScore,
		ShmSize:        size,
		LogConfig:      logConfig{Type: "json-file", Config: map[string]string{"max-size": maxLogBytes, "max-file": "1"}},
		RestartPolicy:  map[string]string{"Name": "no"},
	}
	// Not ReadOnly: these mounts are that already. Asked for it, runc would mount them anew
	// without what else restricts them.
	if spec.Project != nil {
		h.Mounts = append(h.Mounts, mount{Type: "bind", Source: dir.path(projectName), Target: insideProject})
	}
	if spec.Bundle != nil {
		h.Mounts = append(h.Mounts, mount{Type: "bind", Source: dir.path(bundleName), Target: insideBundle})
	}
	if spec.Security.ReadOnlyRootFS {
		h.Tmpfs["/tmp"] = fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,mode=1777", size)
		h.Tmpfs["/run"] = fmt.Sprintf("rw,nosuid,nodev,size=%d,mode=0755", size)
	}
	h.limit(spec.Limits, p.info)
	return h
}

func (h *hostConfig) limit(l providers.Limits, info engineInfo) {
	if l.CPUs > 0 {
		h.CpuPeriod, h.CpuQuota = cpuPeriod, max(int64(l.CPUs*cpuPeriod), minQuota)
	}
	if l.MemoryBytes > 0 {
		h.Memory = l.MemoryBytes
		if info.SwapLimit {
			h.MemorySwap = l.MemoryBytes // memory and swap together: no swap
		} else {
			never := int64(0)
			h.MemorySwappiness = &never
		}
	}
	if l.PIDs > 0 {
		h.PidsLimit = &l.PIDs
	}
	if l.OpenFiles > 0 {
		h.Ulimits = append(h.Ulimits, ulimit{Name: "nofile", Soft: l.OpenFiles, Hard: l.OpenFiles})
	}
}

// environment is the sandbox's; the engine puts the image's under it. AGENTIX_… belongs to the
// runtime: a name without a value takes the image's away.
func environment(image []string, own map[string]string) []string {
	list := []string{}
	for _, v := range image {
		name, _, _ := strings.Cut(v, "=")
		if _, set := own[name]; !set && strings.HasPrefix(name, "AGENTIX_") {
			list = append(list, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		list = append(list, name+"="+own[name])
	}
	return list
}
