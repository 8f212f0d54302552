package containerd

import (
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
	logName       = "runtime.log"
	stdinName     = "stdin"
	socketName    = "rpc.sock"
)

// hostDir is a sandbox's directory under StateDir.
type hostDir string

func (p *Provider) hostDir(id string) hostDir { return hostDir(filepath.Join(p.cfg.StateDir, id)) }

func (d hostDir) path(name string) string { return filepath.Join(string(d), name) }
func (d hostDir) socket() string          { return filepath.Join(string(d), socketDirName, socketName) }

// make creates the directory, the small file system for the socket, and mounts project and
// bundle, if there are any. The socket belongs to user, who the runtime is; owner is who root
// is in the sandbox. On error the caller removes what was made.
func (d hostDir) make(spec providers.Spec, owner int, user account) error {
	if err := os.Mkdir(string(d), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.Mkdir(d.path(socketDirName), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("agentix", d.path(socketDirName), "tmpfs", flags, fmt.Sprintf("size=64k,nr_inodes=16,mode=0700,uid=%d,gid=%d", owner+int(user.uid), owner+int(user.gid))); err != nil {
		return fmt.Errorf("mount socket directory: %w", err)
	}
	log, err := os.OpenFile(d.path(logName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make runtime log: %w", err)
	}
	if err := log.Close(); err != nil {
		return fmt.Errorf("make runtime log: %w", err)
	}
	if spec.Project != nil {
		if err := d.mountDir(projectName, spec.Project, owner); err != nil {
			return err
		}
	}
	if spec.Bundle != nil {
		return d.mountDir(bundleName, &spec.Bundle.Dir, owner)
	}
	return nil
}

// mountDir mounts a directory read-only. To a sandbox with a user namespace root's files are its
// root's, where the file system can do that.
func (d hostDir) mountDir(name string, dir *providers.Dir, owner int) error {
	if owner == 0 {
		return dir.MountAt(d.path(name), nil) //nolint:wrapcheck // It names the directory.
	}
	return dir.MountAt(d.path(name), func(tree int) error { return shiftTree(tree, owner) }) //nolint:wrapcheck // It names the directory.
}

// shiftTree gives a mount that is not attached yet the owners of a sandbox. On a file system that
// cannot do that the sandbox reads what everybody may read.
func shiftTree(tree, owner int) error {
	userns, err := usernsOf(owner)
	if err != nil {
		return err
	}
	defer userns.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("give a directory to the sandbox: %w", err)
	}
	return nil
}

// remove unmounts and removes everything. It removes only what it knows by name, so that a
// mount that does not go away can never be emptied.
func (d hostDir) remove() error {
	for _, name := range []string{projectName, bundleName, socketDirName, diskName} {
		if err := providers.UnmountAll(d.path(name)); err != nil {
			return err
		}
	}
	if err := d.removeLower(); err != nil {
		return err
	}
	for _, name := range []string{projectName, bundleName, socketDirName, logName, stdinName, lowerName, diskName, diskFile, resolvName, networkName, networkName + ".new", ""} {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove directory: %w", err)
		}
	}
	return nil
}

// tokenPipe is the FIFO through which containerd's shim carries the token to the runtime's
// standard input. Both ends are held here, so nobody blocks and nothing is lost.
type tokenPipe struct {
	path string
	file *os.File
}

func newTokenPipe(d hostDir, spec providers.Spec) (*tokenPipe, error) {
	t := &tokenPipe{path: d.path(stdinName)}
	if err := unix.Mkfifo(t.path, 0o600); err != nil {
		return nil, fmt.Errorf("make token pipe: %w", err)
	}
	var err error
	if t.file, err = os.OpenFile(t.path, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		return nil, fmt.Errorf("open token pipe: %w", err)
	}
	line, err := spec.StdinLine()
	if err == nil {
		_, err = t.file.Write(line)
	}
	if err != nil {
		_ = t.file.Close()
		return nil, fmt.Errorf("write token: %w", err)
	}
	return t, nil
}

// taken waits until the shim has read the token.
func (t *tokenPipe) taken(done <-chan struct{}) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := t.file.SyscallConn()
		if err != nil {
			return fmt.Errorf("hand over token: %w", err)
		}
		var left int
		var ioErr error
		if err := conn.Control(func(fd uintptr) { left, ioErr = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
			return fmt.Errorf("hand over token: %w", err)
		}
		if ioErr != nil {
			return fmt.Errorf("hand over token: %w", ioErr)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-done:
			return errors.New("hand over token: nobody took it")
		case <-tick.C:
		}
	}
}

func (t *tokenPipe) close() {
	_ = t.file.Close()
	_ = os.Remove(t.path)
}
