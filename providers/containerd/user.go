package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
)

const (
	maxUserFileBytes = 1 << 20   // 1 MiB of an image's passwd or group
	maxUserID        = 1<<16 - 2 // of a user namespace's 65536, without nobody's
	maxGroups        = 64        // of one user besides its own
)

// account is who the runtime is in a sandbox, and so all code in it.
type account struct {
	uid, gid uint32
	groups   []uint32
	home     string // empty = unknown
}

// accountOf is the user that an image wants to be run as: `user[:group]` by names or numbers.
// Names are those of the image's own files; they are read once for each image.
func (p *Provider) accountOf(ctx context.Context, image client.Image, user string) (account, error) {
	if user == "" || user == "0" || user == "root" || user == "0:0" || user == "root:root" {
		return account{}, nil
	}
	key := image.Target().Digest.String() + " " + user
	if known, ok := p.accounts.Load(key); ok {
		return known.(account), nil
	}
	var a account
	err := p.readImage(ctx, image, func(root *os.Root) (err error) {
		a, err = lookUp(root, user)
		return err
	})
	if err != nil {
		return a, err
	}
	p.accounts.Store(key, a)
	return a, nil
}

// readImage shows the file system of an image, read-only.
func (p *Provider) readImage(ctx context.Context, image client.Image, look func(root *os.Root) error) (err error) {
	diffs, err := image.RootFS(ctx)
	if err != nil {
		return fmt.Errorf("read layers of image: %w", err)
	}
	service, parent := p.client.SnapshotService(snapshotter), identity.ChainID(diffs).String()
	ctx, done, err := p.workLease(ctx) // holds the view, and takes it along after a kill
	if err != nil {
		return err
	}
	defer done(true)
	key := "agx-view-" + parent[len("sha256:"):][:16] + "-" + strconv.FormatInt(p.views.Add(1), 36) + "-" + strconv.Itoa(os.Getpid())
	mounts, err := service.View(ctx, key, parent, snapshots.WithLabels(map[string]string{labelInstance: p.cfg.Instance}))
	if err != nil {
		return fmt.Errorf("look into image: %w", err)
	}
	defer service.Remove(context.WithoutCancel(ctx), key) //nolint:errcheck // its lease takes it along
	path, err := os.MkdirTemp(p.cfg.StateDir, viewPrefix)
	if err != nil {
		return fmt.Errorf("look into image: %w", err)
	}
	defer func() { err = errors.Join(err, p.removeView(filepath.Base(path))) }()
	if err := mount.All(mounts, path); err != nil {
		return fmt.Errorf("look into image: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read from
	return look(root)
}

// lookUp finds a user in the files of an image, as docker does: a number need not be in them.
func lookUp(root *os.Root, text string) (account, error) {
	name, group, grouped := strings.Cut(text, ":")
	a := account{}
	number, err := strconv.ParseUint(name, 10, 32)
	byNumber := err == nil
	a.uid = uint32(number) //nolint:gosec // 32 bits were asked for; 0 if it is a name.
	found := false
	users, err := readLines(root, "etc/passwd")
	if err != nil {
		return a, err
	}
	for _, f := range users { // name:password:uid:gid:comment:home:shell
		if len(f) < 6 || byNumber && f[2] != strconv.FormatUint(number, 10) || !byNumber && f[0] != name {
			continue
		}
		uid, uidErr := strconv.ParseUint(f[2], 10, 32)
		gid, gidErr := strconv.ParseUint(f[3], 10, 32)
		if uidErr == nil && gidErr == nil {
			a.uid, a.gid, a.home, name, found = uint32(uid), uint32(gid), f[5], f[0], true
			break
		}
	}
	if !found && !byNumber {
		return a, noAccount("user", name)
	}
	groups, err := readLines(root, "etc/group")
	if err != nil {
		return a, err
	}
	if grouped {
		if a.gid, err = findGroup(groups, group); err != nil {
			return a, err
		}
	} else {
		a.groups = groupsWith(groups, name, a.gid)
	}
	if a.uid > maxUserID || a.gid > maxUserID {
		return a, errs.New(errs.FailedPrecondition, errs.Unsupported, "the image wants to be run as %d:%d; ids up to %d are offered", a.uid, a.gid, maxUserID)
	}
	return a, nil
}

func noAccount(what, name string) error {
	return errs.New(errs.FailedPrecondition, errs.StartFailed, "the image wants to be run as %s %.80q, which it does not have", what, name)
}

func findGroup(groups [][]string, text string) (uint32, error) {
	if gid, err := strconv.ParseUint(text, 10, 32); err == nil {
		return uint32(gid), nil
	}
	for _, f := range groups { // name:password:gid:members
		if len(f) > 2 && f[0] == text {
			if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil {
				return uint32(gid), nil
			}
		}
	}
	return 0, noAccount("group", text)
}

// groupsWith are the groups that have a member, besides its own.
func groupsWith(groups [][]string, member string, own uint32) (with []uint32) {
	for _, f := range groups {
		if len(f) < 4 || !slices.Contains(strings.Split(f[3], ","), member) || len(with) == maxGroups {
			continue
		}
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil && uint32(gid) != own && gid <= maxUserID {
			with = append(with, uint32(gid))
		}
	}
	return with
}

// readLines reads a file of fields; none if there is no such file, or it leads out of the image.
func readLines(root *os.Root, name string) (lines [][]string, err error) {
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil //nolint:nilerr // Many images have none.
	}
	defer func() { _ = file.Close() }() // only read from
	if info, err := file.Stat(); err != nil || info.Mode().Type() != 0 {
		return nil, nil //nolint:nilerr // A pipe or device is no such file.
	}
	text, err := io.ReadAll(io.LimitReader(file, maxUserFileBytes))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s of the image: %w", name, err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.Split(strings.TrimSpace(line), ":"))
	}
	return lines, nil
}

// withAccount runs the runtime as an account.
func withAccount(a account) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Process.User.UID, s.Process.User.GID, s.Process.User.AdditionalGids = a.uid, a.gid, a.groups
		if a.home != "" && !slices.ContainsFunc(s.Process.Env, func(v string) bool { return strings.HasPrefix(v, "HOME=") }) {
			s.Process.Env = append(s.Process.Env, "HOME="+a.home)
			slices.Sort(s.Process.Env)
		}
		return nil
	}
}
