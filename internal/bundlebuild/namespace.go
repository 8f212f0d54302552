package bundlebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// run runs the bundle's interpreter in its place.
func (b *builder) run(ctx context.Context, args ...string) (output string, err error) {
	return b.runProgram(ctx, append([]string{"/nix/" + venvDir + "/bin/python"}, args...)...)
}

// runProgram runs a program with the tree at /nix, in a mount namespace of its own: the host
// never sees it there, and needs no such directory.
func (b *builder) runProgram(ctx context.Context, argv ...string) (output string, err error) {
	if len(b.Enter) == 0 {
		return "", errors.New("no command to enter a namespace with")
	}
	args := append([]string{b.root, b.nix}, argv...)
	cmd := exec.CommandContext(ctx, b.Enter[0], append(append([]string{}, b.Enter[1:]...), args...)...)
	// Nothing of the user's environment: the same input is to give the same bundle.
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C.UTF-8", "PYTHONHASHSEED=0", "SOURCE_DATE_EPOCH=315532800"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	err = cmd.Run()
	const most = 2000
	text := bytes.TrimSpace(out.Bytes())
	return string(text[max(0, len(text)-most):]), err
}

// Enter replaces this process by the program argv, for which the host's files are where they
// are and the directory nix is at /nix. It wants a mount namespace of its own, and an empty
// directory root. It returns only on error.
func Enter(root, nix string, argv []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("bundle", root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount root: %w", err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return fmt.Errorf("read the host's root: %w", err)
	}
	for _, e := range entries {
		if err := show(root, e); err != nil {
			return err
		}
	}
	target := filepath.Join(root, "nix")
	if err := os.MkdirAll(target, 0o755); err != nil { //nolint:gosec // A mount point.
		return fmt.Errorf("make /nix: %w", err)
	}
	if err := unix.Mount(nix, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /nix: %w", err)
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("change directory: %w", err)
	}
	if err := unix.Exec(argv[0], argv, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", argv[0], err)
	}
	return nil
}

// show makes one entry of the host's root visible below root.
func show(root string, e os.DirEntry) error {
	from, to := "/"+e.Name(), filepath.Join(root, e.Name())
	switch {
	case e.Name() == "nix":
		return nil
	case e.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil { //nolint:gosec // A mount point.
			return fmt.Errorf("show %s: %w", from, err)
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("show %s: %w", from, err)
		}
	case e.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err == nil {
			err = os.Symlink(target, to)
		}
		if err != nil {
			return fmt.Errorf("show %s: %w", from, err)
		}
	}
	return nil
}
