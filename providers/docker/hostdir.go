package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
		if err := spec.Project.MountAt(d.path(projectName), nil); err != nil {
			return err
		}
	}
	if spec.Bundle != nil {
		return spec.Bundle.Dir.MountAt(d.path(bundleName), nil)
	}
	return nil
}

// remove unmounts and removes everything. It removes only what it knows by name, so that a
// mount that does not go away can never be emptied.
func (d hostDir) remove() error {
	for _, name := range []string{projectName, bundleName, socketDirName} {
		if err := providers.UnmountAll(d.path(name)); err != nil {
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
