package external

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
)

// Allow is what an operator lets clients join.
type Allow struct {
	ranges  []netip.Prefix
	sockets []string // absolute paths: prefixes of allowed sockets
}

// ParseAllow reads the values of --external-allow: address ranges (10.0.0.0/8, ::1/128),
// single addresses, and directories or sockets (/run/runtimes, also unix:///run/runtimes).
func ParseAllow(values []string) (Allow, error) {
	var a Allow
	for _, value := range values {
		text := strings.TrimPrefix(value, "unix://")
		switch {
		case path.IsAbs(text):
			a.sockets = append(a.sockets, path.Clean(text))
		case strings.HasPrefix(value, "unix:"):
			return Allow{}, fmt.Errorf("external-allow: %q must be unix:// and an absolute path", value)
		default:
			prefix, err := parsePrefix(text)
			if err != nil {
				return Allow{}, fmt.Errorf("external-allow: %q is neither an address range such as 10.0.0.0/8 nor an absolute path", value)
			}
			a.ranges = append(a.ranges, prefix)
		}
	}
	return a, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, err
	}
	if prefix.Addr().Is4In6() { // ::ffff:10.0.0.0/104 is meant as 10.0.0.0/8
		if prefix.Bits() < 96 {
			return prefix, fmt.Errorf("%s mixes both families", text)
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

func (a Allow) empty() bool { return len(a.ranges)+len(a.sockets) == 0 }

// address reports whether addr may be joined.
func (a Allow) address(addr netip.Addr) bool {
	addr = addr.Unmap()
	if forbidden(addr) {
		return false
	}
	for _, r := range a.ranges {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}

// socket splits the path of a socket into the longest allowed prefix and what is below it.
func (a Allow) socket(name string) (prefix, rest string, ok bool) {
	for _, p := range a.sockets {
		if len(p) < len(prefix) {
			continue
		}
		if name == p {
			prefix, rest, ok = path.Dir(p), path.Base(p), true
		} else if below, is := strings.CutPrefix(name, strings.TrimSuffix(p, "/")+"/"); is {
			prefix, rest, ok = p, below, true
		}
	}
	return prefix, rest, ok
}

// metadata are the addresses outside the link-local ranges at which clouds tell a machine's
// credentials to whoever asks from it.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// embedding are the IPv6 ranges that lead to the IPv4 address in them, which begins at a byte.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},   // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/96"), 12}, // NAT64 of local use, in its longest form
	{netip.MustParsePrefix("::/96"), 12},          // IPv4-compatible
	{netip.MustParsePrefix("2002::/16"), 2},       // 6to4
}

var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// forbidden reports whether an address is refused whatever is allowed: link-local and
// metadata addresses, and what is no single machine's.
func forbidden(addr netip.Addr) bool {
	if addr.Zone() != "" || !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() ||
		addr.IsLinkLocalUnicast() || thisNetwork.Contains(addr) || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	for _, m := range metadata {
		if addr == m {
			return true
		}
	}
	if addr.IsLoopback() {
		return false
	}
	for _, e := range embedding {
		if addr.Is6() && e.prefix.Contains(addr) {
			b := addr.As16()
			return forbidden(netip.AddrFrom4([4]byte(b[e.at : e.at+4])))
		}
	}
	return false
}
