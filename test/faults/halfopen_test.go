//go:build faults

package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/faulttest"
)

// island is a runtime in a network namespace of its own, behind one link.
type island struct {
	t   *testing.T
	pid string
	url string
}

// newIsland starts a runtime that everybody who reaches it may use. Its namespace, the link and
// its rules end with it.
func newIsland(t *testing.T, d *faulttest.Daemon, dir string) *island {
	t.Helper()
	third := strconv.Itoa(os.Getpid() % 250)
	here, there, near := "10.213."+third+".1", "10.213."+third+".2", "agf"+third
	command := exec.CommandContext(t.Context(), d.Binaries.Runtime, "--project", filepath.Join(d.Dir, "project"), "--ping-interval", "1s", "--ping-timeout", "3s")
	command.Env = append(os.Environ(), "AGENTIX_BIND_HOST=0.0.0.0", "AGENTIX_BIND_PORT=7000", "FAULT_DIR="+dir)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.Stderr = os.Stderr
	check(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // by our signal
	})
	i := &island{t: t, pid: strconv.Itoa(command.Process.Pid), url: "http://" + net.JoinHostPort(there, "7000")}
	run(t, "ip", "link", "add", near, "type", "veth", "peer", "name", "far", "netns", i.pid)
	run(t, "ip", "addr", "add", here+"/30", "dev", near)
	run(t, "ip", "link", "set", near, "up")
	i.inside("ip", "addr", "add", there+"/30", "dev", "far")
	i.inside("ip", "link", "set", "far", "up")
	i.inside("ip", "link", "set", "lo", "up")
	e := &era{t: t, d: d}
	e.await(func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", net.JoinHostPort(there, "7000"))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "the runtime to listen")
	d.Args = []string{"--external-allow", "10.213." + third + ".0/30"}
	return i
}

// inside runs a command in the island's network.
func (i *island) inside(name string, args ...string) {
	i.t.Helper()
	run(i.t, "nsenter", append([]string{"-t", i.pid, "-n", name}, args...)...)
}

// drown drops every packet, in one direction or both, and tells nobody.
func (i *island) drown(chains ...string) {
	for _, chain := range chains {
		i.inside("iptables", "-A", chain, "-p", "tcp", "-j", "DROP")
	}
}

func (i *island) heal() { i.inside("iptables", "-F") }

// TestR2_R3_HalfOpen: packets between daemon and runtime are dropped, both ways and each way,
// under running calls and new ones, for longer than it takes to notice. When they pass again all
// calls have their results, and ran once.
func TestR2_R3_HalfOpen(t *testing.T) {
	d := prepare(t)
	dir := filepath.Join(d.Dir, "island")
	check(t, os.Mkdir(dir, 0o700))
	i := newIsland(t, d, dir)
	d.Start()
	e := newEraIn(t, d, random(t), "island", d.Join(i.url, dir))
	apart := 12 * time.Second
	ways := [][]string{{"INPUT", "OUTPUT"}}
	if long() {
		apart, ways = 30*time.Second, append(ways, []string{"INPUT"}, []string{"OUTPUT"})
	}
	for round, way := range ways {
		o, gate := &ops{}, fmt.Sprint("gate-", round)
		var running []faulttest.Call
		for n := range 20 {
			running = append(running, e.call(round, n, gate))
			o.ask(e.client("first"), running[n])
		}
		e.await(func() bool { return e.box.Runs.InFlight(running) == len(running) }, "calls to run")
		i.drown(way...)
		e.box.Open(gate)
		for n := range 10 {
			o.ask(e.client("meanwhile"), e.call(round, 20+n, ""))
		}
		<-time.After(apart)
		i.heal()
		began := time.Now()
		o.wg.Wait()
		t.Logf("dropped %v for %s: all calls were over %s after that", way, apart, time.Since(began).Round(time.Millisecond))
	}
	report := e.end()
	t.Log(report.Text())
	assertClean(t, report)
	if report.Mix["value"] != len(e.calls) {
		t.Errorf("of %d calls only %d have results", len(e.calls), report.Mix["value"])
	}
}
