package providers_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

func TestEgress(t *testing.T) {
	n := providers.Network{
		Mode:       providers.NetworkBridge,
		AllowCIDRs: []string{"10.0.0.0/8", "2001:db8::/32", "10.0.0.0/8", "0.0.0.0/0"},
		DNSServers: []string{"10.0.0.53"},
	}
	e, err := n.Egress()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range e.Allow {
		got = append(got, p.String())
	}
	if diff := cmp.Diff([]string{"0.0.0.0/0", "10.0.0.0/8", "2001:db8::/32"}, got); diff != "" {
		t.Error(diff)
	}
	for address, want := range map[string]bool{
		"10.1.2.3": true, "8.8.8.8": true, "2001:db8::1": true, "2001:db9::1": false, "169.254.169.254": false, "127.0.0.1": false,
		"100.100.100.200": false, "fe80::1": false, "::ffff:10.0.0.1": false, "64:ff9b::a9fe:a9fe": false, "255.255.255.255": false,
	} {
		if e.Reaches(netip.MustParseAddr(address)) != want {
			t.Errorf("%s: reached = %v, want %v", address, !want, want)
		}
	}
}

func TestEgressRefusals(t *testing.T) {
	many := make([]string, 257)
	for i := range many {
		many[i] = "10.0." + strconv.Itoa(i%256) + ".0/24"
	}
	bridge := func(cidrs ...string) providers.Network {
		return providers.Network{Mode: providers.NetworkBridge, AllowCIDRs: cidrs}
	}
	for says, n := range map[string]providers.Network{
		"mode: must be NONE, BRIDGE or HOST":                   {Mode: "bridge"},
		"allow_cidrs: only with mode BRIDGE":                   {AllowCIDRs: []string{"10.0.0.0/8"}},
		"dns_servers: only with mode BRIDGE":                   {Mode: providers.NetworkHost, DNSServers: []string{"10.0.0.1"}},
		`allow_cidrs: "10.0.0.1" must be a range such as`:      bridge("10.0.0.1"),
		`"0.0.0.0/0; drop" must be a range`:                    bridge("0.0.0.0/0; drop"),
		"10.0.0.1/8 has bits behind its length; write 10.0.0.": bridge("10.0.0.1/8"),
		"169.254.169.254/32 is within 169.254.0.0/16":          bridge("169.254.169.254/32"),
		"fe80::/64 is within fe80::/10":                        bridge("fe80::/64"),
		"127.0.0.0/8 is within 127.0.0.0/8":                    bridge("127.0.0.0/8"),
		"::ffff:10.0.0.0/104 is within ::ffff:0.0.0.0/96":      bridge("::ffff:10.0.0.0/104"),
		"257 ranges; at most 256 are allowed":                  bridge(many...),
		"dns_servers: 10.0.0.1 is not reached by allow_cidrs":  {Mode: providers.NetworkBridge, AllowCIDRs: []string{"10.0.0.2/32"}, DNSServers: []string{"10.0.0.1"}},
		`dns_servers: "dns.example" must be an IP address`:     {Mode: providers.NetworkBridge, DNSServers: []string{"dns.example"}},
	} {
		_, err := n.Egress()
		if !errs.Is(err, errs.InvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q in it", err, says)
		}
	}
}
