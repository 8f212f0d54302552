package providers

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/agentixd/agentixd/internal/errs"
)

// Limits of a network's lists.
const (
	MaxAllowCIDRs = 256
	MaxDNSServers = 3 // as many as resolvers read
)

// NeverReached are the ranges that no bridged sandbox reaches, whatever is allowed: loopback
// and link-local ones, the addresses at which clouds tell a machine's credentials, what
// is no single machine's, and the IPv6 forms that lead to some of these.
var NeverReached = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud's metadata
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud's
	netip.MustParsePrefix("224.0.0.0/3"),        // multicast, reserved, broadcast
	netip.MustParsePrefix("::/96"),              // unspecified, loopback, IPv4-compatible
	netip.MustParsePrefix("::ffff:0:0/96"),      // IPv4-mapped
	netip.MustParsePrefix("64:ff9b::/96"),       // NAT64
	netip.MustParsePrefix("64:ff9b:1::/48"),     // NAT64 of local use
	netip.MustParsePrefix("2002::/16"),          // 6to4
	netip.MustParsePrefix("fd00:ec2::254/128"),  // AWS's metadata
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud's
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// Egress is the parsed form of a network's lists.
type Egress struct {
	Allow []netip.Prefix // sorted, each once
	DNS   []netip.Addr
}

// Egress parses and checks a network. It is InvalidArgument, by field, if a list is too
// long, is given in another mode than BRIDGE, or holds what can never be reached.
func (n Network) Egress() (Egress, error) {
	var e Egress
	switch {
	case n.Mode != NetworkNone && n.Mode != NetworkBridge && n.Mode != NetworkHost:
		return e, errs.Invalid("sandbox.network.mode", "must be NONE, BRIDGE or HOST")
	case n.Mode != NetworkBridge && len(n.AllowCIDRs) > 0:
		return e, errs.Invalid("sandbox.network.allow_cidrs", "only with mode BRIDGE; leave it empty")
	case n.Mode != NetworkBridge && len(n.DNSServers) > 0:
		return e, errs.Invalid("sandbox.network.dns_servers", "only with mode BRIDGE; leave it empty")
	case len(n.AllowCIDRs) > MaxAllowCIDRs:
		return e, errs.Invalid("sandbox.network.allow_cidrs", "%d ranges; at most %d are allowed", len(n.AllowCIDRs), MaxAllowCIDRs)
	case len(n.DNSServers) > MaxDNSServers:
		return e, errs.Invalid("sandbox.network.dns_servers", "%d servers; at most %d are allowed", len(n.DNSServers), MaxDNSServers)
	}
	for _, text := range n.AllowCIDRs {
		p, err := parseRange(text)
		if err != nil {
			return e, err
		}
		e.Allow = append(e.Allow, p)
	}
	slices.SortFunc(e.Allow, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	e.Allow = slices.Compact(e.Allow)
	for _, text := range n.DNSServers {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || a.Zone() != "":
			return e, errs.Invalid("sandbox.network.dns_servers", "%.80q must be an IP address", text)
		case !e.Reaches(a):
			return e, errs.Invalid("sandbox.network.dns_servers", "%s is not reached by allow_cidrs; add it there", a)
		}
		e.DNS = append(e.DNS, a)
	}
	return e, nil
}

func parseRange(text string) (netip.Prefix, error) {
	const field = "sandbox.network.allow_cidrs"
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, errs.Invalid(field, "%.80q must be a range such as 192.0.2.0/24, 192.0.2.7/32 or 2001:db8::/32", text)
	}
	if p != p.Masked() {
		return p, errs.Invalid(field, "%s has bits behind its length; write %s", p, p.Masked())
	}
	for _, never := range NeverReached {
		if never.Bits() <= p.Bits() && never.Contains(p.Addr()) {
			return p, errs.Invalid(field, "%s is within %s, which no sandbox reaches", p, never)
		}
	}
	return p, nil
}

// Reaches tells whether the lists allow an address. The host's own are refused besides.
func (e Egress) Reaches(a netip.Addr) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(e.Allow, contains) && !slices.ContainsFunc(NeverReached, contains)
}
