//go:build containerd

package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/containerd"
	"github.com/agentixd/agentixd/providers/providertest"
)

// outside is a world beyond the host: a network namespace with servers on several addresses.
type outside struct{ a, b, c, a6, b6, c6, linkLocal string }

const outsidePort = "4711"

// newOutside makes it and lets the host route; both are undone at the end of the test.
func newOutside(t *testing.T) outside {
	t.Helper()
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.WriteFile(path, old, 0) })
	}
	name := fmt.Sprintf("agxo%d", os.Getpid()%10000)
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { ip("netns", "del", name) })
	ip("link", "add", name, "type", "veth", "peer", "name", "out0", "netns", name)
	t.Cleanup(func() { ip("link", "del", name) }) // at once; the namespace ends later
	ip("addr", "add", "198.51.100.1/24", "dev", name)
	ip("addr", "add", "169.254.7.1/24", "dev", name)
	ip("addr", "add", "2001:db8:51::1/64", "dev", name, "nodad")
	ip("link", "set", name, "up")
	for i := 2; i <= 4; i++ {
		ip("-n", name, "addr", "add", fmt.Sprintf("198.51.100.%d/24", i), "dev", "out0")
		ip("-n", name, "addr", "add", fmt.Sprintf("2001:db8:51::%d/64", i), "dev", "out0", "nodad")
	}
	ip("-n", name, "addr", "add", "169.254.7.7/24", "dev", "out0")
	ip("-n", name, "link", "set", "out0", "up")
	ip("-n", name, "link", "set", "lo", "up")
	serveIn(t, "/run/netns/"+name)
	addr := func(host string) string { return net.JoinHostPort(host, outsidePort) }
	return outside{
		addr("198.51.100.2"), addr("198.51.100.3"), addr("198.51.100.4"),
		addr("2001:db8:51::2"), addr("2001:db8:51::3"), addr("2001:db8:51::4"),
		addr("169.254.7.7"),
	}
}

// serveIn serves on all addresses of a network namespace: a greeting, then echoes.
func serveIn(t *testing.T, netns string) {
	t.Helper()
	listeners := make(chan net.Listener, 1)
	go func() { // ends at once; the thread, which is elsewhere now, ends with it
		runtime.LockOSThread()
		defer close(listeners)
		if netns != "" {
			fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return
			}
			defer unix.Close(fd) //nolint:errcheck // read only
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return
			}
		}
		if l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "[::]:"+outsidePort); err == nil {
			listeners <- l
		}
	}()
	l, ok := <-listeners
	if !ok {
		t.Fatal("cannot listen in " + netns)
	}
	var group sync.WaitGroup
	group.Go(func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { // ends with the connection, or after a while
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				_, _ = io.WriteString(conn, "+")
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); group.Wait() })
}

// ask sends a request to the stub in a sandbox.
func ask(t testing.TB, h providers.Handle, path string, query url.Values) string {
	t.Helper()
	c := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return h.Dial(ctx) }, DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox"+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %s, %v", path, resp.Status, data, err)
	}
	return strings.TrimSpace(string(data))
}

func reached(t testing.TB, h providers.Handle, address string) bool {
	t.Helper()
	return strings.HasSuffix(ask(t, h, "/dial", url.Values{"addr": {address}}), " ok")
}

func bridged(id string, cidrs ...string) providers.Spec {
	return providers.Spec{ID: id, Image: "empty", Network: providers.Network{Mode: providers.NetworkBridge, AllowCIDRs: cidrs}}
}

// hostAddresses are all of the host's own, also those on the sandboxes' side.
func hostAddresses(t *testing.T) (all []string) {
	t.Helper()
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range devices {
		addrs, err := device.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || prefix.Addr().IsLoopback() {
				continue
			}
			address := prefix.Addr()
			if address.IsLinkLocalUnicast() && address.Is6() {
				address = address.WithZone("eth0") // as the sandbox names its device
			}
			all = append(all, netip.AddrPortFrom(address, 4711).String())
		}
	}
	return all
}

// TestBridge: an allowed address is reached by IPv4 and IPv6, others, link-local ones, neighbours and the
// host's services are not; nothing is left.
func TestBridge(t *testing.T) {
	out := newOutside(t)
	d := containerdtest.Start(t)
	state := t.TempDir()
	p := open(t, d, testInstance, state, providertest.Stub(t))
	t.Cleanup(func() { _ = p.Close() })
	importEmpty(t, p)
	serveIn(t, "") // services of the host on all addresses
	for name, change := range map[string]func(*providers.Spec){
		"plain": func(*providers.Spec) {}, "user-namespace": func(s *providers.Spec) { s.Security.UserNamespace = true },
	} {
		t.Run(name, func(t *testing.T) {
			spec := bridged("narrow", "198.51.100.2/32", "2001:db8:51::2/128")
			change(&spec)
			wide := bridged("wide", "0.0.0.0/0", "::/0")
			change(&wide)
			h := create(t, p, spec)
			all := create(t, p, wide)
			await.True(t, func() bool { return reached(t, h, out.a6) && reached(t, all, out.c6) }, "IPv6 of the sandboxes")
			for _, address := range []string{out.a, out.a6} {
				if !reached(t, h, address) {
					t.Errorf("%s is allowed and not reached", address)
				}
			}
			for _, address := range []string{out.b, out.c, out.b6, out.c6} {
				if reached(t, h, address) {
					t.Errorf("%s is not allowed and reached", address)
				}
				if !reached(t, all, address) {
					t.Errorf("%s: everything is allowed and it is not reached", address)
				}
			}
			forbidden := append(hostAddresses(t), out.linkLocal, "169.254.169.254:4711", "127.0.0.1:1", "[::1]:1", "[ff02::1%eth0]:4711", "224.0.0.1:4711")
			forbidden = append(forbidden, addressesOf(t, h)...)
			for _, box := range []providers.Handle{h, all} {
				for _, address := range forbidden {
					if reached(t, box, address) {
						t.Errorf("%s reaches %s", box.ID(), address)
					}
				}
			}
			for _, box := range []providers.Handle{h, all} {
				if err := p.Delete(t.Context(), box.ID()); err != nil {
					t.Error(err)
				}
			}
			assertNoNetwork(t, state)
		})
	}
}

func create(t testing.TB, p *containerd.Provider, spec providers.Spec) providers.Handle {
	t.Helper()
	h, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), 20*time.Second, errors.New("no end of the sandbox"))
		defer cancel()
		_ = p.Delete(ctx, spec.ID) // it may be gone with its provider
	})
	waitRunning(t, h)
	return h
}

// addressesOf are a sandbox's own, with a port on which its neighbour would listen.
func addressesOf(t *testing.T, h providers.Handle) (all []string) {
	t.Helper()
	for line := range strings.Lines(ask(t, h, "/read", url.Values{"path": {"/proc/net/fib_trie"}})) {
		if address, err := netip.ParseAddr(strings.TrimPrefix(strings.TrimSpace(line), "|-- ")); err == nil && address.IsPrivate() {
			all = append(all, netip.AddrPortFrom(address, 4711).String())
		}
	}
	return all
}

// assertNoNetwork: no rule, device or address of ours is left.
func assertNoNetwork(t *testing.T, state string) {
	t.Helper()
	tables, err := exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
	if err != nil || strings.Contains(string(tables), "agentix_") {
		t.Errorf("tables left: %s, %v", tables, err)
	}
	await.True(t, func() bool {
		devices, err := filepath.Glob("/sys/class/net/veth*")
		return err == nil && len(devices) == 0
	}, "the end of the devices")
	given, err := filepath.Glob(filepath.Join(state, ".network", "addresses", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range given {
		if name := filepath.Base(path); name != "lock" && !strings.HasPrefix(name, "last_reserved_ip") {
			t.Errorf("address left: %s", path)
		}
	}
	notes, err := filepath.Glob(filepath.Join(state, ".network", "cni", "results", "*"))
	if err != nil || len(notes) != 0 {
		t.Errorf("notes left: %v, %v", notes, err)
	}
}

// TestBridgePolicyFlips: 1000 changes of what may be reached, without a hole: what is in no policy is never
// reached meanwhile, what is in both always is, and a connection that is no longer allowed ends.
func TestBridgePolicyFlips(t *testing.T) {
	out := newOutside(t)
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	t.Cleanup(func() { _ = p.Close() })
	importEmpty(t, p)
	policies := []providers.Network{
		bridged("", "198.51.100.2/32", "198.51.100.3/32", "2001:db8:51::2/128", "2001:db8:51::3/128").Network,
		bridged("", "198.51.100.2/32", "2001:db8:51::2/128", "198.51.100.128/25", "2001:db8:52::/48").Network,
	}
	h := create(t, p, bridged("flips", policies[0].AllowCIDRs...))
	await.True(t, func() bool { return reached(t, h, out.a6) }, "IPv6 of the sandbox")
	flipWide(t, p, out)
	networker := h.(providers.Networker)
	flips := 1000
	if testing.Short() {
		flips = 50
	}
	done := make(chan string, 1)
	stop := make(chan struct{})
	go func() { // ends with stop
		var total []string
		for {
			select {
			case <-stop:
				done <- strings.Join(total, "\n")
				return
			default:
				total = append(total, ask(t, h, "/hammer", url.Values{
					"for": {"1s"}, "never": {out.c, out.c6}, "always": {out.a, out.a6},
				}))
			}
		}
	}()
	for i := range flips {
		if err := networker.SetNetwork(t.Context(), policies[(i+1)%2]); err != nil {
			t.Fatalf("flip %d: %v", i, err)
		}
	}
	close(stop)
	var tries, holes, gaps int
	for line := range strings.Lines(<-done) {
		fields := strings.Fields(line)
		for i, sum := range []*int{&tries, &holes, &gaps} {
			n, err := strconv.Atoi(fields[i])
			if err != nil {
				t.Fatal(err)
			}
			*sum += n
		}
	}
	t.Logf("%d flips, %d connections: %d holes, %d gaps", flips, tries, holes, gaps)
	if holes > 0 || gaps > 0 || tries < flips/10 {
		t.Errorf("%d connections: %d holes, %d gaps", tries, holes, gaps)
	}
	for i, want := range []bool{true, false, true} { // by the policies in turn
		if err := networker.SetNetwork(t.Context(), policies[i%2]); err != nil {
			t.Fatal(err)
		}
		if got := reached(t, h, out.b); got != want {
			t.Errorf("policy %d: %s reached = %v", i%2, out.b, got)
		}
	}
	held := make(chan string, 1)
	go func() { held <- ask(t, h, "/hold", url.Values{"addr": {out.b}, "for": {"15s"}}) }() // ends by the cut
	await.True(t, func() bool {
		return strings.Contains(ask(t, h, "/read", url.Values{"path": {"/proc/net/tcp"}}), "036433C6:1267")
	}, "the held connection")
	if err := networker.SetNetwork(t.Context(), policies[1]); err != nil {
		t.Fatal(err)
	}
	if got := <-held; !strings.HasPrefix(got, "cut") {
		t.Errorf("a connection that is no longer allowed: %q", got)
	}
	for _, n := range []providers.Network{{}, {Mode: providers.NetworkHost}} {
		if err := networker.SetNetwork(t.Context(), n); !errs.Is(err, errs.FailedPrecondition) {
			t.Errorf("mode %q: %v, want FailedPrecondition", n.Mode, err)
		}
	}
}

// flipWide changes what a sandbox may reach that reaches nearly everything: link-local addresses
// and its host never are among it.
func flipWide(t *testing.T, p *containerd.Provider, out outside) {
	t.Helper()
	policies := []providers.Network{bridged("", "0.0.0.0/0").Network, bridged("", "0.0.0.0/0", "2001:db8::/32").Network}
	h := create(t, p, bridged("wide-flips", policies[0].AllowCIDRs...))
	done := make(chan string, 1)
	go func() { // ends by itself
		done <- ask(t, h, "/hammer", url.Values{"for": {"5s"}, "never": {out.linkLocal, "198.51.100.1:4711"}, "always": {out.a, out.b}})
	}()
	for i := 0; ; i++ {
		select {
		case got := <-done:
			if fields := strings.Fields(got); len(fields) != 4 || fields[1] != "0" || fields[2] != "0" {
				t.Errorf("%d flips; tries, holes, gaps: %s", i, got)
			}
			return
		default:
			if err := h.(providers.Networker).SetNetwork(t.Context(), policies[(i+1)%2]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBridgeRulesComeBack: rules that somebody removed are restored at the next look, and at a start.
func TestBridgeRulesComeBack(t *testing.T) {
	out := newOutside(t)
	d := containerdtest.Start(t)
	state := t.TempDir()
	p := open(t, d, testInstance, state, providertest.Stub(t))
	importEmpty(t, p)
	h := create(t, p, bridged("kept", "198.51.100.2/32"))
	flush := func() {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if name := strings.Fields(line); len(name) == 3 && strings.HasPrefix(name[2], "agentix_") {
				if err := exec.CommandContext(t.Context(), "nft", "delete", "table", name[1], name[2]).Run(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	flush()
	if reached(t, h, out.b) {
		t.Error("without the host's rules the sandbox's own let it through")
	}
	if _, err := p.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !reached(t, h, out.a) || reached(t, h, out.b) {
		t.Error("the rules did not come back by a look")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	flush()
	p = open(t, d, testInstance, state, providertest.Stub(t))
	t.Cleanup(func() { _ = p.Close() })
	if !reached(t, h, out.a) || reached(t, h, out.b) {
		t.Error("the rules did not come back at a start")
	}
	if err := p.Delete(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	assertNoNetwork(t, state)
}

// TestBridgeNeedsARoutingHost: nothing is switched on behind the operator's back.
func TestBridgeNeedsARoutingHost(t *testing.T) {
	d := containerdtest.Start(t)
	p := open(t, d, testInstance, t.TempDir(), providertest.Stub(t))
	t.Cleanup(func() { _ = p.Close() })
	importEmpty(t, p)
	const path = "/proc/sys/net/ipv4/ip_forward"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(path, old, 0) //nolint:errcheck // as it was
	_, err = p.Create(t.Context(), bridged("stuck", "198.51.100.2/32"))
	if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "sysctl -w net.ipv4.ip_forward=1") {
		t.Errorf("got %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != "0" {
		t.Errorf("ip_forward = %s, %v", now, err)
	}
}
