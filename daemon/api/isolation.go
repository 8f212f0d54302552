package api

import (
	"strings"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/providers"
)

func fromResources(r *agentixv1.Resources) providers.Limits {
	return providers.Limits{
		CPUs: r.GetCpus(), MemoryBytes: r.GetMemoryBytes(), PIDs: r.GetPids(), OpenFiles: r.GetOpenFiles(), DiskBytes: r.GetDiskBytes(),
	}
}

func toResources(l providers.Limits) *agentixv1.Resources {
	return &agentixv1.Resources{
		Cpus: l.CPUs, MemoryBytes: l.MemoryBytes, Pids: l.PIDs, OpenFiles: l.OpenFiles, DiskBytes: l.DiskBytes,
	}
}

const networkModePrefix = "NETWORK_MODE_"

// fromNetwork keeps a mode that this build does not know, so that it is refused.
func fromNetwork(n *agentixv1.Network) providers.Network {
	out := providers.Network{AllowCIDRs: n.GetAllowCidrs(), DNSServers: n.GetDnsServers()}
	switch mode := n.GetMode(); mode {
	case agentixv1.NetworkMode_NETWORK_MODE_UNSPECIFIED, agentixv1.NetworkMode_NETWORK_MODE_NONE:
	default:
		out.Mode = providers.NetworkMode(strings.TrimPrefix(mode.String(), networkModePrefix))
	}
	return out
}

// toNetwork leaves the default unset.
func toNetwork(n providers.Network) *agentixv1.Network {
	if n.IsZero() {
		return nil
	}
	mode := agentixv1.NetworkMode(agentixv1.NetworkMode_value[networkModePrefix+string(n.Mode)])
	return &agentixv1.Network{Mode: mode, AllowCidrs: n.AllowCIDRs, DnsServers: n.DNSServers}
}

func fromSecurity(s *agentixv1.Security) providers.Security {
	return providers.Security{
		ReadOnlyRootFS: s.GetReadOnlyRootfs(), UserNamespace: s.GetUserNamespace(), RuntimeHandler: s.GetRuntimeHandler(),
	}
}

// toSecurity leaves the default unset.
func toSecurity(s providers.Security) *agentixv1.Security {
	if s == (providers.Security{}) {
		return nil
	}
	return &agentixv1.Security{ReadOnlyRootfs: s.ReadOnlyRootFS, UserNamespace: s.UserNamespace, RuntimeHandler: s.RuntimeHandler}
}
