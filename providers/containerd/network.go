package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
)

// A bridged sandbox has the network namespace that its container has anyway. Between the
// creation of the container, when nothing of the sandbox runs yet, and its start, a CNI
// plugin links it to the host by a pair of virtual devices, and rules go in place on both
// ends: in the namespace, which the sandbox cannot change without capabilities, and on the
// host. The namespace ends with the container; devices, addresses and rules
// are given back by detach.

// Files in a sandbox's directory.
const (
	networkName = "network.json"
	resolvName  = "resolv.conf"
)

// netBox is the record of a bridged sandbox, written before anything of it is made.
type netBox struct {
	Network providers.Network `json:"network"`
	Device  string            `json:"device,omitempty"` // the host's end; empty until it is there
	V4      string            `json:"v4,omitempty"`     // the sandbox's addresses
	V6      string            `json:"v6,omitempty"`
}

func (d hostDir) writeNetwork(b netBox) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode network: %w", err)
	}
	if err := os.WriteFile(d.path(networkName)+".new", data, 0o600); err != nil {
		return fmt.Errorf("write network: %w", err)
	}
	if err := os.Rename(d.path(networkName)+".new", d.path(networkName)); err != nil {
		return fmt.Errorf("write network: %w", err)
	}
	return nil
}

// readNetwork tells also whether the sandbox is a bridged one.
func (d hostDir) readNetwork() (b netBox, bridged bool) {
	data, err := os.ReadFile(d.path(networkName))
	if err != nil {
		return b, false
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return netBox{}, true
	}
	return b, true
}

// checkNetwork refuses what this daemon or this host does not give.
func (p *Provider) checkNetwork(spec providers.Spec) error {
	egress, err := spec.Network.Egress()
	if err != nil {
		return err //nolint:wrapcheck // Of package errs, for clients.
	}
	switch spec.Network.Mode {
	case providers.NetworkHost:
		switch {
		case !p.cfg.AllowHostNetwork:
			return unsupported("sandbox.network.mode: this daemon does not allow HOST (--allow-host-network)")
		case spec.Security.UserNamespace:
			return unsupported("sandbox.network.mode: HOST cannot be had with security.user_namespace; leave one of them unset")
		case spec.Security.RuntimeHandler == handlerRunsc:
			return unsupported("sandbox.network.mode: HOST cannot be had with security.runtime_handler runsc; leave one of them unset")
		}
	case providers.NetworkBridge:
		if spec.Security.RuntimeHandler == handlerRunsc {
			return unsupported("sandbox.network.mode: BRIDGE cannot be had with security.runtime_handler runsc; leave one of them unset")
		}
		return p.checkBridge(egress)
	case providers.NetworkNone:
	}
	return nil
}

// checkBridge tells what is missing on this host. It turns nothing on by itself: to route is a
// decision about the whole host.
func (p *Provider) checkBridge(egress providers.Egress) error {
	const field = "sandbox.network.mode: BRIDGE needs "
	if _, err := exec.LookPath("nft"); err != nil {
		return unsupported(field + "nft on this host (package nftables)")
	}
	if pluginDir() == "" {
		return unsupported(field+"the CNI plugins ptp and host-local in one of %s (package containernetworking-plugins)", strings.Join(pluginDirs, ", "))
	}
	if !switchedOn("ipv4/ip_forward") {
		return unsupported(field + "a host that routes IPv4: sysctl -w net.ipv4.ip_forward=1")
	}
	return checkIPv6(egress)
}

func checkIPv6(egress providers.Egress) error {
	for _, r := range egress.Allow {
		if r.Addr().Is6() && !routesIPv6() {
			return unsupported("sandbox.network.allow_cidrs: %s needs a host that routes IPv6: sysctl -w net.ipv6.conf.all.forwarding=1", r)
		}
	}
	return nil
}

func routesIPv6() bool { return switchedOn("ipv6/conf/all/forwarding") }

func switchedOn(name string) bool {
	data, err := os.ReadFile(filepath.Join("/proc/sys/net", name))
	return err == nil && strings.TrimSpace(string(data)) != "0"
}

// withNetwork is the network of a sandbox as its specification has it: a namespace of its
// own, or the host's.
func (p *Provider) withNetwork(spec providers.Spec) oci.SpecOpts {
	return func(ctx context.Context, c oci.Client, container *containers.Container, s *oci.Spec) error {
		var opts []oci.SpecOpts
		switch spec.Network.Mode {
		case providers.NetworkHost:
			opts = []oci.SpecOpts{oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostResolvconf, oci.WithHostHostsFile}
		case providers.NetworkBridge:
			s.Linux.Sysctl = map[string]string{"net.ipv6.conf.default.accept_dad": "0"} // nobody else has these addresses
			if len(spec.Network.DNSServers) > 0 {
				opts = []oci.SpecOpts{oci.WithMounts([]specs.Mount{{
					Destination: "/etc/resolv.conf", Type: "bind", Source: p.hostDir(spec.ID).path(resolvName),
					Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"},
				}})}
			}
		case providers.NetworkNone:
		}
		for _, opt := range opts {
			if err := opt(ctx, c, container, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// noteNetwork writes what is to be undone and what is mounted, before anything is made.
func (d hostDir) noteNetwork(n providers.Network) error {
	if n.Mode != providers.NetworkBridge {
		return nil
	}
	if err := d.writeNetwork(netBox{Network: n}); err != nil {
		return err
	}
	var text strings.Builder
	for _, server := range n.DNSServers {
		_, _ = fmt.Fprintln(&text, "nameserver", server)
	}
	if err := os.WriteFile(d.path(resolvName), []byte(text.String()), 0o644); err != nil { //nolint:gosec // For all in the sandbox.
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	return nil
}

// attach links a container that was created and not started yet, and puts its rules in place.
func (p *Provider) attach(ctx context.Context, spec providers.Spec, pid uint32) error {
	if spec.Network.Mode != providers.NetworkBridge {
		return nil
	}
	cid, dir, netns := p.containerID(spec.ID), p.hostDir(spec.ID), fmt.Sprintf("/proc/%d/ns/net", pid)
	if err := p.rules.base(ctx); err != nil {
		return err
	}
	box := netBox{Network: spec.Network}
	if err := p.link(ctx, cid, netns, &box); err != nil {
		return err
	}
	if err := dir.writeNetwork(box); err != nil {
		return err
	}
	if err := failpoint.Inject("create/afterNetwork"); err != nil {
		return err
	}
	return p.filter(ctx, cid, netns, box)
}

// filter puts the rules of a sandbox in place, or others in their place; on each end that is
// one step, and what passes meanwhile has to pass both. An empty netns: on the host only.
func (p *Provider) filter(ctx context.Context, cid, netns string, box netBox) error {
	egress, err := box.Network.Egress()
	if err != nil {
		return err //nolint:wrapcheck // Of package errs, for clients.
	}
	if netns != "" {
		if err := insideRules(ctx, netns, egress); err != nil {
			return fmt.Errorf("filter network of the sandbox: %w", err)
		}
	}
	if err := p.rules.set(ctx, cid, box, egress); err != nil {
		return fmt.Errorf("filter network on the host: %w", err)
	}
	return nil
}

// SetNetwork replaces what a bridged sandbox may reach; connections to what it no longer may
// reach end. The mode and the name servers stay.
func (h handle) SetNetwork(ctx context.Context, n providers.Network) error {
	unlock, err := h.p.locks.Lock(ctx, h.id)
	if err != nil {
		return err
	}
	defer unlock()
	dir := h.p.hostDir(h.id)
	box, bridged := dir.readNetwork()
	egress, err := n.Egress()
	switch {
	case err != nil:
		return err //nolint:wrapcheck // Of package errs, for clients.
	case n.Mode != providers.NetworkBridge || !bridged || box.Device == "":
		return errs.New(errs.FailedPrecondition, errs.Unsupported, "sandbox.network.mode: it cannot be changed; create another sandbox")
	}
	if err := checkIPv6(egress); err != nil {
		return err
	}
	pid, err := h.p.mainPID(ctx, h.id)
	if err != nil {
		return err
	}
	box.Network = n
	// The record first: after a crash in between, the next start makes the rules by it.
	if err := dir.writeNetwork(box); err != nil {
		return err
	}
	return h.p.filter(ctx, h.p.containerID(h.id), fmt.Sprintf("/proc/%d/ns/net", pid), box)
}

// detach gives back what attach took. The container is gone.
func (p *Provider) detach(ctx context.Context, id string) error {
	cid, dir := p.containerID(id), p.hostDir(id)
	box, bridged := dir.readNetwork()
	if !bridged {
		return nil
	}
	if err := p.rules.drop(ctx, cid); err != nil {
		return fmt.Errorf("remove network rules: %w", err)
	}
	if err := p.unlink(ctx, cid, box); err != nil {
		return fmt.Errorf("remove network: %w", err)
	}
	return nil
}

// restoreRules puts the rules of all bridged sandboxes in place again, if someone removed them, for
// example by flushing all tables, and when the daemon starts.
func (p *Provider) restoreRules(ctx context.Context) error {
	dirs, err := os.ReadDir(p.cfg.StateDir)
	if err != nil {
		return fmt.Errorf("read state directory: %w", err)
	}
	boxes := map[string]netBox{}
	for _, d := range dirs {
		if !providers.ValidID(d.Name()) {
			continue
		}
		if box, bridged := p.hostDir(d.Name()).readNetwork(); bridged && box.Device != "" {
			boxes[p.containerID(d.Name())] = box
		}
	}
	if err := p.rules.restore(ctx, boxes); err != nil {
		return fmt.Errorf("restore network rules: %w", err)
	}
	return nil
}

// addresses of the pool from which bridged sandboxes get theirs.
type pool struct{ v4, v6 netip.Prefix }

// newPool derives a daemon's pool from its instance: one of 256 IPv4 ranges of 4094
// addresses, and a unique local IPv6 one.
func newPool(instance string, configured string) (pool, error) {
	sum := hashOf("pool " + instance)
	p := pool{
		v4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 208 | sum[0]>>4, sum[0] << 4, 0}), 20),
		v6: netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, sum[1], sum[2], sum[3], sum[4], sum[5]}), 64),
	}
	if configured == "" {
		return p, nil
	}
	var err error
	p.v4, err = netip.ParsePrefix(configured)
	if err != nil || !p.v4.Addr().Is4() || p.v4 != p.v4.Masked() || p.v4.Bits() > 28 || p.v4.Bits() < 8 {
		return p, errors.New("bridge pool must be an IPv4 range of /8 to /28, for example 10.208.0.0/20")
	}
	return p, nil
}
