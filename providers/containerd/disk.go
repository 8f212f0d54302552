package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

// A sandbox with a disk limit writes to a file system of its own, in a sparse file of that
// size: the upper layer of its root file system. The loop device goes away by itself once
// the file system is unmounted.

// Names on the file system of a sandbox.
const (
	diskFile  = "disk.img"
	diskName  = "disk"
	upperName = "upper" // what the sandbox wrote
	workName  = "work"  // overlayfs's own
	tmpName   = "tmp"   // /tmp, if the root file system is read-only
)

const minDiskBytes = 16 << 20 // 16 MiB: less does not hold a file system and the small ones in memory

const loopTries = 64 // others take loop devices, too

// diskBytes is the size of the file system: what the file systems in memory do not take.
func diskBytes(l providers.Limits) int64 {
	return (l.DiskBytes - 2*tmpfsBytes(l) - devBytes) &^ 4095
}

// makeDisk makes and mounts the file system; what it holds belongs to owner.
func (d hostDir) makeDisk(ctx context.Context, size int64, owner int) error {
	file, err := os.OpenFile(d.path(diskFile), os.O_CREATE|os.O_EXCL|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	// No journal: what a sandbox wrote does not outlive a crash of the host.
	out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode",
		"-E", "nodiscard,lazy_itable_init=1", d.path(diskFile)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make disk: mkfs.ext4: %w: %s", err, strings.TrimSpace(string(out)))
	}
	loop, device, err := attachLoop(file)
	if err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	defer loop.Close() // the mount holds it from here on; without one it is freed
	if err := os.Mkdir(d.path(diskName), 0o700); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	const flags = unix.MS_NOATIME | unix.MS_NODEV
	if err := unix.Mount(device, d.path(diskName), "ext4", flags, "noinit_itable,errors=remount-ro"); err != nil {
		return fmt.Errorf("mount disk: %w", err)
	}
	for name, mode := range map[string]os.FileMode{upperName: 0o755, workName: 0o755, tmpName: 0o777 | os.ModeSticky} {
		path := filepath.Join(d.path(diskName), name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode), os.Chown(path, owner, owner)); err != nil {
			return fmt.Errorf("make disk: %w", err)
		}
	}
	return nil
}

// attachLoop makes a loop device of a file. It is freed when its last user closes it.
func attachLoop(file *os.File) (loop *os.File, device string, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("open loop control: %w", err)
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, "", fmt.Errorf("find free loop device: %w", err)
		}
		device = fmt.Sprintf("/dev/loop%d", n)
		if loop, err = os.OpenFile(device, os.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			if errors.Is(err, os.ErrNotExist) { // a device file system that lags behind
				continue
			}
			return nil, "", fmt.Errorf("open loop device: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], file.Name())
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), &config); err == nil {
			return loop, device, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) { // somebody else was faster
			return nil, "", fmt.Errorf("set up loop device: %w", err)
		}
	}
	return nil, "", errors.New("find free loop device: others took them all")
}

// full tells whether next to nothing is left of the file system at path.
func full(path string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false
	}
	const few = 64 // one part in so many, as what is left of the blocks of a full one cannot all be used
	return st.Bavail <= st.Blocks/few || st.Files > 0 && st.Ffree == 0
}
