package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agentixd/agentixd/providers"
)

var _ providers.Pauser = handle{}

// freezeTimeout is how long the kernel may take to freeze a container: a process in the
// middle of a system call that cannot be interrupted ends it first.
const freezeTimeout = 5 * time.Second

// Pause freezes the container's cgroup. It is written to directly, which takes microseconds;
// by containerd each pause and resume would start a runc, and a shim that paused a container
// refuses what it does not refuse otherwise. runc looks at the cgroup itself.
func (h handle) Pause(ctx context.Context) error {
	return h.withFreezer(ctx, "pause", func(f freezer) error { return f.freeze(ctx) })
}

// Resume thaws the container's cgroup.
func (h handle) Resume(ctx context.Context) error {
	return h.withFreezer(ctx, "resume", freezer.thaw)
}

func (h handle) withFreezer(ctx context.Context, verb string, do func(freezer) error) error {
	unlock, err := h.p.locks.Lock(ctx, h.id)
	if err != nil {
		return err //nolint:wrapcheck // It names the sandbox.
	}
	defer unlock()
	f, err := freezerOf(h.p.containerID(h.id))
	if err == nil {
		err = do(f)
	}
	if err != nil {
		return fmt.Errorf("%s sandbox %s: %w", verb, h.id, err)
	}
	return nil
}

// freezer is the cgroup by which a container is frozen: its directory on v1 or v2.
type freezer struct {
	dir string
	v1  bool
}

// freezerOf finds the freezer of a container that has one.
func freezerOf(cid string) (freezer, error) {
	for _, dir := range cgroupsOf(cid) {
		for file, v1 := range map[string]bool{"freezer.state": true, "cgroup.freeze": false} {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
				return freezer{dir: dir, v1: v1}, nil
			}
		}
	}
	return freezer{}, errors.New("it has no freezer cgroup")
}

func (f freezer) write(freeze bool) error {
	file, text := "cgroup.freeze", map[bool]string{true: "1", false: "0"}[freeze]
	if f.v1 {
		file, text = "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[freeze]
	}
	return os.WriteFile(filepath.Join(f.dir, file), []byte(text), 0o600) //nolint:wrapcheck // It names the file.
}

// asked and frozen tell whether it is to be frozen, and whether it is.
func (f freezer) state() (asked, frozen bool, err error) {
	if f.v1 {
		state, err := os.ReadFile(filepath.Join(f.dir, "freezer.state"))
		text := string(bytes.TrimSpace(state))
		return text != "THAWED", text == "FROZEN", err //nolint:wrapcheck // It names the file.
	}
	want, err := os.ReadFile(filepath.Join(f.dir, "cgroup.freeze"))
	if err != nil {
		return false, false, err //nolint:wrapcheck // It names the file.
	}
	events, err := os.ReadFile(filepath.Join(f.dir, "cgroup.events"))
	return string(bytes.TrimSpace(want)) == "1", bytes.Contains(events, []byte("frozen 1")), err //nolint:wrapcheck // It names the file.
}

// freeze waits until all processes stand still. On v1 a write can get stuck half way: then it
// is thawed and asked again, as runc does.
func (f freezer) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeTimeout, fmt.Errorf("not all its processes stood still within %s", freezeTimeout))
	defer cancel()
	const again = 50 // looks
	for looks := 0; ; looks++ {
		if f.v1 && looks > 0 && looks%again == 0 {
			if err := f.write(false); err != nil {
				return err
			}
		}
		if looks == 0 || f.v1 {
			if err := f.write(true); err != nil {
				return err
			}
		}
		if _, frozen, err := f.state(); frozen || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), f.write(false))
		case <-time.After(min(time.Duration(looks+1)*100*time.Microsecond, 10*time.Millisecond)):
		}
	}
}

func (f freezer) thaw() error { return f.write(false) }

// frozen tells whether a container is frozen, or about to be.
func frozen(cid string) bool {
	f, err := freezerOf(cid)
	if err != nil {
		return false
	}
	asked, _, err := f.state()
	return err == nil && asked
}

// thaw lets a container go on, so that its processes can die; one without a cgroup has none.
func thaw(cid string) {
	if f, err := freezerOf(cid); err == nil {
		_ = f.thaw()
	}
}
