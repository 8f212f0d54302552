package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/agentixd/agentixd/internal/errs"
)

// pluginDirs are where distributions put the CNI plugins.
var pluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

const (
	networkStateDir = ".network" // below StateDir: addresses that were given, and CNI's own notes
	insideDevice    = "eth0"
)

// pluginDir is the first directory that has both plugins; empty if none has.
func pluginDir() string {
	for _, dir := range pluginDirs {
		_, ptp := os.Stat(filepath.Join(dir, "ptp"))
		_, ipam := os.Stat(filepath.Join(dir, "host-local"))
		if ptp == nil && ipam == nil {
			return dir
		}
	}
	return ""
}

func hashOf(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// networkID tells this daemon's network from those of others.
func (p *Provider) networkID() string {
	sum := hashOf("network " + p.cfg.Instance)
	return "agentix_" + hex.EncodeToString(sum[:6])
}

// cni is the network as the plugins want it: a link of two ends for each sandbox, so that no two
// share a segment.
func (p *Provider) cni() (*libcni.CNIConfig, *libcni.NetworkConfigList, error) {
	state := filepath.Join(p.cfg.StateDir, networkStateDir)
	ranges := [][]map[string]string{{{"subnet": p.pool.v4.String()}}}
	routes := []map[string]string{{"dst": "0.0.0.0/0"}}
	if routesIPv6() {
		ranges = append(ranges, []map[string]string{{"subnet": p.pool.v6.String()}})
		routes = append(routes, map[string]string{"dst": "::/0"})
	}
	text, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0",
		"name":       p.networkID(),
		"plugins": []any{map[string]any{
			"type": "ptp",
			"ipam": map[string]any{"type": "host-local", "dataDir": filepath.Join(state, "addresses"), "ranges": ranges, "routes": routes},
		}},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("describe network: %w", err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		return nil, nil, fmt.Errorf("describe network: %w", err)
	}
	return libcni.NewCNIConfigWithCacheDir([]string{pluginDir()}, filepath.Join(state, "cni"), nil), list, nil
}

// link makes the two ends and tells the host's and the sandbox's addresses.
func (p *Provider) link(ctx context.Context, cid, netns string, box *netBox) error {
	if err := p.checkPool(); err != nil {
		return err
	}
	plugins, list, err := p.cni()
	if err != nil {
		return err
	}
	made, err := plugins.AddNetworkList(ctx, list, &libcni.RuntimeConf{ContainerID: cid, NetNS: netns, IfName: insideDevice})
	if err != nil {
		return fmt.Errorf("link network: %w", err)
	}
	result, err := types100.GetResult(made)
	if err != nil {
		return fmt.Errorf("read result of network plugin: %w", err)
	}
	box.read(result)
	if box.Device == "" || box.V4 == "" {
		return errors.New("link network: the plugin told no device or no address")
	}
	return nil
}

// read takes the host's device and the sandbox's addresses from what the plugin told.
func (b *netBox) read(result *types100.Result) {
	for _, device := range result.Interfaces {
		if device.Sandbox == "" {
			b.Device = device.Name
		}
	}
	for _, ip := range result.IPs {
		if ip.Address.IP.To4() != nil {
			b.V4 = ip.Address.IP.String()
		} else {
			b.V6 = ip.Address.IP.String()
		}
	}
}

// unlink removes the devices, whose name may be known to the plugins alone, and gives the addresses back.
func (p *Provider) unlink(ctx context.Context, cid string, box netBox) error {
	if pluginDir() == "" {
		return errors.New("the CNI plugins are gone")
	}
	plugins, list, err := p.cni()
	if err != nil {
		return err
	}
	config := &libcni.RuntimeConf{ContainerID: cid, IfName: insideDevice}
	if box.Device == "" {
		if told, err := plugins.GetNetworkListCachedResult(list, config); err == nil && told != nil {
			if result, err := types100.GetResult(told); err == nil {
				box.read(result)
			}
		}
	}
	if box.Device != "" {
		if err := removeDevice(box.Device); err != nil {
			return err
		}
	}
	if err := plugins.DelNetworkList(ctx, list, config); err != nil {
		return fmt.Errorf("give addresses back: %w", err)
	}
	return nil
}

// checkPool refuses a pool that somebody else on this host uses.
func (p *Provider) checkPool() error {
	ours := map[string]bool{}
	dirs, err := filepath.Glob(filepath.Join(p.cfg.StateDir, "*", networkName))
	if err != nil {
		return fmt.Errorf("find bridged sandboxes: %w", err)
	}
	if len(dirs) > 1 { // the first one has checked
		return nil
	}
	devices, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("look at network devices: %w", err)
	}
	for _, device := range devices {
		addresses, err := device.Addrs()
		if err != nil || ours[device.Name] {
			continue
		}
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && (prefix.Overlaps(p.pool.v4) || prefix.Overlaps(p.pool.v6)) {
				return unsupported("sandbox.network.mode: the pool of addresses %s is in use on this host, by %s; name another by --bridge-pool",
					p.pool.v4, device.Name)
			}
		}
	}
	return nil
}

// mainPID is the host's pid of a running sandbox's main process.
func (p *Provider) mainPID(ctx context.Context, id string) (uint32, error) {
	resp, err := p.client.TaskService().Get(namespaces.WithNamespace(ctx, Namespace), &tasks.GetRequest{ContainerID: p.containerID(id)})
	if err != nil && !notFound(err) {
		return 0, fmt.Errorf("ask for sandbox %s: %w", id, p.translate(err))
	}
	if err != nil || resp.Process.Pid == 0 {
		return 0, errs.New(errs.FailedPrecondition, errs.SandboxNotReady, "sandbox %s does not run", id)
	}
	return resp.Process.Pid, nil
}
