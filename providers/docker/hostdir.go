package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

// Names in a sandbox's directory on the host.
const (
	socketDirName = "socket"
	projectName   = "project"
	bundleName    = "bundle"
	socketName    = "rpc.sock"
)

// hostDir is a sandbox's directory under StateDir.
type hostDir string

func (p *Provider) hostDir(id string) hostDir { return hostDir(filepath.Join(p.cfg.StateDir, id)) }

func (d hostDir) path(name string) string { return filepath.Join(string(d), name) }
func (d hostDir) socket() string          { return filepath.Join(string(d), socketDirName, socketName) }

// fill makes the small file system for the socket, and mounts project and bundle, if there are
// any. The directory itself lets only root of the host in; inside the sandbox whoever the
// image's user is may make the socket. On error the caller removes what was made.
func (d hostDir) fill(spec providers.Spec) error {
	if err := os.Mkdir(d.path(socketDirName), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("agentix", d.path(socketDirName), "tmpfs", flags, "size=64k,nr_inodes=16,mode=0777"); err != nil {
		return fmt.Errorf("mount socket directory: %w", err)
	}
	if spec.Project != nil {
		if err := d.mountDir(projectName, spec.Project); err != nil {
			return err
		}
	}
	if spec.Bundle != nil {
		return d.mountDir(bundleName, &spec.Bundle.Dir)
	}
	return nil
}

// mountDir mounts the open directory itself, read-only, whatever its path leads to by now. The
// engine binds this mount with all its restrictions.
func (d hostDir) mountDir(name string, dir *providers.Dir) error {
	target := d.path(name)
	if err := os.Mkdir(target, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	tree, err := unix.OpenTree(dir.FD, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone %s: %w", dir.Path, err)
	}
	defer unix.Close(tree) //nolint:errcheck // the mount holds it
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", dir.Path, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", dir.Path, err)
	}
	return nil
}

// remove unmounts and removes everything. It removes only what it knows by name, so that a
// mount that does not go away can never be emptied.
func (d hostDir) remove() error {
	for _, name := range []string{projectName, bundleName, socketDirName} {
		if err := unmountAll(d.path(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{projectName, bundleName, socketDirName, ""} {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove directory: %w", err)
		}
	}
	return nil
}

// unmountAll unmounts until nothing is mounted at path.
func unmountAll(path string) error {
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

// awaitSocket waits a moment until the runtime has made its socket, so that the first try to
// connect is not made in vain and followed by a pause. One that is slow or has ended is
// for the caller to find out.
func (d hostDir) awaitSocket(ctx context.Context) {
	const patience = 100 * time.Millisecond
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, err := os.Lstat(d.socket()); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
