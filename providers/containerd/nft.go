package containerd

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

// rules are the host's rules for bridged sandboxes: one table of nftables, of this daemon. Each
// change is one transaction of the kernel: a packet meets the rules before or those after.
//
// A sandbox reaches its list and nothing of the host: what comes from its device is refused on the
// way in, and on the way through unless its own chain lets it pass. What comes from the pool without
// a device that is known, or goes to one that nobody has, is dropped, so that a sandbox of
// which the rules are missing reaches nothing.
type rules struct {
	table string
	pool  pool

	mu    sync.Mutex
	ready bool            // the table is there, as far as is known
	boxes map[string]bool // by container id, those that have rules or may have
}

// base makes the table.
func (r *rules) base(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready {
		return nil
	}
	if err := runNFT(ctx, r.baseScript()); err != nil {
		return fmt.Errorf("make table of network rules: %w", err)
	}
	r.ready = true
	return nil
}

// set puts a sandbox's rules in place, whatever it had.
func (r *rules) set(ctx context.Context, cid string, box netBox, egress providers.Egress) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boxes == nil {
		r.boxes = map[string]bool{}
	}
	r.boxes[cid] = true
	script := r.boxScript(cid, box, egress)
	if err := runNFT(ctx, script); err == nil {
		return nil
	}
	return runNFT(ctx, r.baseScript()+script) // somebody removed the table
}

// drop removes a sandbox's rules, and with those of the last one the table. It is no error if there are none.
func (r *rules) drop(ctx context.Context, cid string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.boxes, cid)
	if len(r.boxes) == 0 {
		r.ready = false
		return runNFT(ctx, fmt.Sprintf("add table inet %[1]s\ndelete table inet %[1]s\n", r.table))
	}
	// The device is gone, so its name is asked of the table.
	elements := r.elementsOf(ctx, cid)
	chain := chainOf(cid)
	var s strings.Builder
	_, _ = fmt.Fprintf(&s, "add table inet %s\n", r.table)
	for _, device := range elements {
		_, _ = fmt.Fprintf(&s, "delete element inet %s egress { %q }\ndelete element inet %s boxes { %q }\n", r.table, device, r.table, device)
	}
	_, _ = fmt.Fprintf(&s, "add chain inet %[1]s %[2]s\nflush chain inet %[1]s %[2]s\ndelete chain inet %[1]s %[2]s\n", r.table, chain)
	return runNFT(ctx, s.String())
}

// elementsOf are the devices from which the table jumps to a sandbox's chain.
func (r *rules) elementsOf(ctx context.Context, cid string) []string {
	out, err := exec.CommandContext(ctx, "nft", "list", "map", "inet", r.table, "egress").Output()
	if err != nil {
		return nil
	}
	var devices []string
	for field := range strings.SplitSeq(strings.NewReplacer("{", ",", "}", ",", "elements =", "").Replace(string(out)), ",") {
		device, verdict, ok := strings.Cut(strings.TrimSpace(field), ":")
		if ok && strings.TrimSpace(verdict) == "jump "+chainOf(cid) {
			devices = append(devices, strings.Trim(strings.TrimSpace(device), `"`))
		}
	}
	return devices
}

// restore puts the rules of all sandboxes in place, if the table is not there.
func (r *rules) restore(ctx context.Context, boxes map[string]netBox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boxes == nil {
		r.boxes = map[string]bool{}
	}
	if len(boxes) == 0 {
		return nil
	}
	known := true
	for cid := range boxes {
		known = known && r.boxes[cid]
	}
	if known && r.ready && exec.CommandContext(ctx, "nft", "list", "chain", "inet", r.table, "forward").Run() == nil {
		return nil
	}
	script := r.baseScript()
	for cid, box := range boxes {
		egress, err := box.Network.Egress()
		if err != nil {
			egress = providers.Egress{} // nothing is let through by a record that cannot be read
		}
		script += r.boxScript(cid, box, egress)
		r.boxes[cid] = true
	}
	if err := runNFT(ctx, script); err != nil {
		return err
	}
	r.ready = true
	return nil
}

func (r *rules) baseScript() string {
	return strings.NewReplacer("TABLE", r.table, "POOL4", r.pool.v4.String(), "POOL6", r.pool.v6.String()).Replace(`
table inet TABLE {
	set boxes { type ifname; }
	map egress { type ifname : verdict; }
	chain input { type filter hook input priority -160; policy accept; }
	chain forward { type filter hook forward priority -160; policy accept; }
	chain postrouting { type nat hook postrouting priority srcnat; policy accept; }
}
flush chain inet TABLE input
flush chain inet TABLE forward
flush chain inet TABLE postrouting
add rule inet TABLE input iifname @boxes icmpv6 type nd-neighbor-solicit ip6 hoplimit 255 accept
add rule inet TABLE input iifname @boxes icmpv6 type nd-neighbor-advert ip6 hoplimit 255 accept
add rule inet TABLE input iifname @boxes reject with icmpx type admin-prohibited
add rule inet TABLE input iifname != "lo" ip saddr POOL4 drop
add rule inet TABLE input iifname != "lo" ip6 saddr POOL6 drop
add rule inet TABLE forward iifname vmap @egress
add rule inet TABLE forward iifname @boxes drop
add rule inet TABLE forward oifname @boxes ct state established,related accept
add rule inet TABLE forward oifname @boxes drop
add rule inet TABLE forward ip saddr POOL4 drop
add rule inet TABLE forward ip6 saddr POOL6 drop
add rule inet TABLE forward ip daddr POOL4 drop
add rule inet TABLE forward ip6 daddr POOL6 drop
add rule inet TABLE postrouting ip saddr POOL4 ip daddr != POOL4 masquerade
add rule inet TABLE postrouting ip6 saddr POOL6 ip6 daddr != POOL6 masquerade
`)
}

// chainOf is the chain of a sandbox.
func chainOf(cid string) string {
	sum := hashOf("chain " + cid)
	return "box_" + hex.EncodeToString(sum[:8])
}

// boxScript lets packets from a sandbox's device through, if they come from its addresses and
// go to its list. Every packet is looked at, also those of connections that exist.
func (r *rules) boxScript(cid string, box netBox, egress providers.Egress) string {
	var s strings.Builder
	chain := r.table + " " + chainOf(cid)
	rule := func(format string, args ...any) {
		_, _ = fmt.Fprintf(&s, "add rule inet %s %s\n", chain, fmt.Sprintf(format, args...))
	}
	_, _ = fmt.Fprintf(&s, "add chain inet %s\nflush chain inet %s\n", chain, chain)
	rule("ip saddr != %s drop", box.V4)
	if box.V6 == "" {
		rule("meta nfproto ipv6 drop")
	} else {
		rule("ip6 saddr != %s drop", box.V6)
	}
	rule("oifname @boxes reject with icmpx type admin-prohibited")
	rule("ip daddr %s reject with icmpx type admin-prohibited", r.pool.v4)
	rule("ip6 daddr %s reject with icmpx type admin-prohibited", r.pool.v6)
	for _, line := range egressRules(egress) {
		rule("%s", line)
	}
	_, _ = fmt.Fprintf(&s, "add element inet %s boxes { %q }\nadd element inet %s egress { %q : jump %s }\n",
		r.table, box.Device, r.table, box.Device, chainOf(cid))
	return s.String()
}

// egressRules refuse what is never reached, let through what is allowed, and refuse the rest. They
// are plain comparisons: elements of a set go out of force by themselves while a packet that
// entered the chain before a change is still on its way through the rules of before, so that
// for a moment a rule with a set would not hold.
func egressRules(egress providers.Egress) []string {
	const refuse = "reject with icmpx type admin-prohibited"
	lines := make([]string, 0, len(providers.NeverReached)+len(egress.Allow)+1)
	for _, r := range providers.NeverReached {
		lines = append(lines, to(r)+" "+refuse)
	}
	for _, r := range egress.Allow {
		lines = append(lines, to(r)+" accept")
	}
	return append(lines, refuse)
}

// to matches packets to a range.
func to(r netip.Prefix) string {
	family := "ip6"
	if r.Addr().Is4() {
		family = "ip"
	}
	return family + " daddr " + r.String()
}

// insideRules filter in a sandbox's own namespace, where nothing of the sandbox can change them.
func insideRules(ctx context.Context, netns string, egress providers.Egress) error {
	script := `
table inet agentix {
	chain output { type filter hook output priority -160; policy drop; }
	chain input { type filter hook input priority -160; policy drop; }
}
flush chain inet agentix output
flush chain inet agentix input
add rule inet agentix input iifname "lo" accept
add rule inet agentix input ct state established,related accept
add rule inet agentix input icmpv6 type nd-neighbor-solicit ip6 hoplimit 255 accept
add rule inet agentix input icmpv6 type nd-neighbor-advert ip6 hoplimit 255 accept
add rule inet agentix output oifname "lo" accept
add rule inet agentix output icmpv6 type nd-neighbor-solicit ip6 hoplimit 255 accept
add rule inet agentix output icmpv6 type nd-neighbor-advert ip6 hoplimit 255 accept
`
	for _, line := range egressRules(egress) {
		script += "add rule inet agentix output " + line + "\n"
	}
	return inNetNS(netns, func() error { return runNFT(ctx, script) })
}

// inNetNS runs do, and the processes that it starts, in a network namespace.
func inNetNS(path string, do func() error) error {
	done := make(chan error, 1)
	go func() { // ends with do
		// Never unlocked: the thread, which is in another namespace, ends with the goroutine.
		runtime.LockOSThread()
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- fmt.Errorf("open network namespace: %w", err)
			return
		}
		defer unix.Close(fd) //nolint:errcheck // it was only read
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}

// runNFT runs a script as one transaction.
func runNFT(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, shorten(strings.TrimSpace(out.String())))
	}
	return nil
}
