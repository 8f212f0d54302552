package main

import (
	"fmt"
	"strings"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/pflag"
)

// isolationFlags are the options of sandbox create about limits and isolation.
type isolationFlags struct {
	openFiles               int64
	disk, handler, network  string
	readOnly, userNamespace bool
	allowCIDRs, dns         []string
}

func (f *isolationFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&f.openFiles, "open-files", 0, "open files of each process (default: the engine's)")
	flags.StringVar(&f.disk, "disk", "", "bytes of all that it can write to, for example 2g (default: the daemon's)")
	flags.BoolVar(&f.readOnly, "read-only", false, "root file system that cannot be written; /tmp can")
	flags.BoolVar(&f.userNamespace, "user-namespace", false, "root in the sandbox is nobody on the host")
	flags.StringVar(&f.handler, "runtime-handler", "", "what runs the container: runc (default) or runsc")
	flags.StringVar(&f.network, "network", "", "none (default), bridge or host")
	flags.StringArrayVar(&f.allowCIDRs, "allow-cidr", nil, "range that may be reached, for example 192.0.2.0/24; implies --network bridge; repeatable")
	flags.StringArrayVar(&f.dns, "dns", nil, "name server for /etc/resolv.conf, within --allow-cidr; repeatable")
}

func (f *isolationFlags) apply(sandbox *agentixv1.Sandbox) error {
	disk, err := parseBytes("--disk", f.disk)
	if err != nil {
		return err
	}
	if disk != 0 || f.openFiles != 0 {
		if sandbox.Resources == nil {
			sandbox.Resources = &agentixv1.Resources{}
		}
		sandbox.Resources.DiskBytes, sandbox.Resources.OpenFiles = disk, f.openFiles
	}
	if f.readOnly || f.userNamespace || f.handler != "" {
		sandbox.Security = &agentixv1.Security{ReadOnlyRootfs: f.readOnly, UserNamespace: f.userNamespace, RuntimeHandler: f.handler}
	}
	mode := f.network
	if mode == "" && len(f.allowCIDRs) > 0 {
		mode = "bridge"
	}
	if mode == "" && len(f.dns) == 0 {
		return nil
	}
	value, known := agentixv1.NetworkMode_value["NETWORK_MODE_"+strings.ToUpper(mode)]
	if mode != "" && (!known || value == 0) {
		return fmt.Errorf("--network is none, bridge or host, not %q", mode)
	}
	sandbox.Network = &agentixv1.Network{Mode: agentixv1.NetworkMode(value), AllowCidrs: f.allowCIDRs, DnsServers: f.dns}
	return nil
}
