// Package containerdtest starts a containerd of one's own for tests and the demo: private
// root, state and address, no CRI. The host's containerd, if any, is not touched. It also
// builds the small Python image that they use.
package containerdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
)

// Daemon is a containerd process with its own directory.
type Daemon struct {
	// Address is its socket.
	Address string
	// Dir holds its root, state, configuration and log.
	Dir string

	cmd    *exec.Cmd
	exited chan struct{} // closed once the process has ended
	killed bool
}

const configText = `version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = %q
`

// Open starts containerd in dir, which should have a short path, and waits until it
// serves. It fails naming what is missing. The caller calls Stop.
func Open(ctx context.Context, dir string) (*Daemon, error) {
	for _, binary := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if _, err := exec.LookPath(binary); err != nil {
			return nil, fmt.Errorf("start containerd: %s is missing (apt-get install containerd runc): %w", binary, err)
		}
	}
	// The root of a sandbox with a user namespace is nobody here and has to get through.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // As containerd's own directories.
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	d := &Daemon{Dir: dir, Address: filepath.Join(dir, "c.sock")}
	config := fmt.Sprintf(configText, filepath.Join(dir, "root"), filepath.Join(dir, "state"), d.Address)
	if err := os.WriteFile(d.configFile(), []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	return d, d.Restart(ctx)
}

func (d *Daemon) configFile() string { return filepath.Join(d.Dir, "config.toml") }
func (d *Daemon) logFile() string    { return filepath.Join(d.Dir, "containerd.log") }

// Restart starts containerd again after Kill.
func (d *Daemon) Restart(ctx context.Context) error {
	log, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	defer log.Close()
	cmd := exec.Command("containerd", "--config", d.configFile()) //nolint:noctx // ended by Stop and Kill
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	exited := make(chan struct{})
	go func() { // ends with the process, which Stop waits for
		defer close(exited)
		_ = cmd.Wait()
	}()
	d.cmd, d.exited, d.killed = cmd, exited, false
	if err := d.waitServing(ctx); err != nil {
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("start containerd: %w; its log ends with: %s", err, d.logTail())
	}
	return nil
}

func (d *Daemon) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("it did not serve in time"))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if serving(ctx, d.Address) {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.exited:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func serving(ctx context.Context, address string) bool {
	if _, err := os.Stat(address); err != nil {
		return false
	}
	c, err := client.New(address)
	if err != nil {
		return false
	}
	defer c.Close() //nolint:errcheck // a probe
	ctx, cancel := context.WithTimeoutCause(ctx, time.Second, errors.New("no answer"))
	defer cancel()
	_, err = c.Version(ctx)
	return err == nil
}

func (d *Daemon) logTail() string {
	data, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// PID is containerd's process id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Kill ends containerd with SIGKILL; its containers go on. Restart brings it back.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill()
	<-d.exited
	d.killed = true
}

// Stop ends containerd and everything that it started, and unmounts what is left below its
// directory. It reports what was left, since a clean run leaves nothing.
func (d *Daemon) Stop() error {
	if !d.killed {
		_ = d.cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-d.exited:
		case <-time.After(stopTimeout):
			d.Kill()
		}
	}
	var left []string
	for _, pid := range d.shims() {
		left = append(left, "shim "+strconv.Itoa(pid))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for _, path := range mountsBelow(d.Dir) {
		left = append(left, "mount "+path)
		_ = unix.Unmount(path, unix.MNT_DETACH)
	}
	if len(left) > 0 {
		return fmt.Errorf("stop containerd: left behind: %s", strings.Join(left, ", "))
	}
	return nil
}

// shims finds the shims of this containerd by their command lines.
func (d *Daemon) shims() []int {
	var pids []int
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(data, []byte("containerd-shim")) || !bytes.Contains(data, []byte("\x00"+d.Address+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mountsBelow lists mount points below dir, the deepest first.
func mountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var paths []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			paths = append([]string{fields[1]}, paths...)
		}
	}
	return paths
}
