package providers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MountAt mounts the open directory itself at target, which it makes, read-only, whatever the
// directory's path leads to by now. change, if not nil, may change the mount before it is attached.
func (d *Dir) MountAt(target string, change func(tree int) error) error {
	if err := os.Mkdir(target, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	tree, err := unix.OpenTree(d.FD, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone %s: %w", d.Path, err)
	}
	defer unix.Close(tree) //nolint:errcheck // the mount holds it
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", d.Path, err)
	}
	if change != nil {
		if err := change(tree); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", d.Path, err)
	}
	return nil
}

// UnmountAll unmounts until nothing is mounted at path.
func UnmountAll(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil || errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // nothing is mounted there
			return nil
		default:
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

// AwaitSocket waits a moment until the runtime has made its socket at path, so that the first
// try to connect is not made in vain and followed by a pause. One that is slow or has ended is
// for the caller to find out.
func AwaitSocket(ctx context.Context, path string) {
	const patience = 100 * time.Millisecond
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
