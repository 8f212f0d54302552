package containerd

import (
	"context"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/agentixd/agentixd/providers"
)

// checkNetwork refuses what this daemon or this host does not give.
func (p *Provider) checkNetwork(spec providers.Spec) error {
	if _, err := spec.Network.Egress(); err != nil {
		return err //nolint:wrapcheck // Of package errs, for clients.
	}
	switch spec.Network.Mode {
	case providers.NetworkNone:
		return nil
	case providers.NetworkHost:
		switch {
		case !p.cfg.AllowHostNetwork:
			return unsupported("sandbox.network.mode: this daemon does not allow HOST (--allow-host-network)")
		case spec.Security.UserNamespace:
			return unsupported("sandbox.network.mode: HOST cannot be had with security.user_namespace; leave one of them unset")
		case spec.Security.RuntimeHandler == handlerRunsc:
			return unsupported("sandbox.network.mode: HOST cannot be had with security.runtime_handler runsc; leave one of them unset")
		}
		return nil
	case providers.NetworkBridge:
	}
	return unsupported("sandbox.network.mode: %s is not built yet", spec.Network.Mode)
}

// withNetwork is the network of a sandbox as its specification has it: a namespace of its
// own, or the host's.
func (p *Provider) withNetwork(spec providers.Spec) oci.SpecOpts {
	return func(ctx context.Context, c oci.Client, container *containers.Container, s *oci.Spec) error {
		if spec.Network.Mode != providers.NetworkHost {
			return nil
		}
		for _, opt := range []oci.SpecOpts{
			oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostResolvconf, oci.WithHostHostsFile,
		} {
			if err := opt(ctx, c, container, s); err != nil {
				return err
			}
		}
		return nil
	}
}
