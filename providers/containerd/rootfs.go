package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

// lowerName is where the layers of an image are mounted anew with other owners.
const lowerName = "lower"

// layers are the directories of an overlay; the topmost of lower comes first.
type layers struct {
	lower       []string
	upper, work string
}

// ownRootFS tells whether a sandbox needs another root file system than the snapshotter's.
func ownRootFS(spec providers.Spec) bool {
	return spec.Limits.DiskBytes > 0 || spec.Security.UserNamespace
}

// makeRootFS makes the root file system of such a sandbox from its image: with a disk limit the
// image is looked at through a read-only snapshot and the upper layer lies on the
// sandbox's own file system; with a user namespace the layers are mounted anew, so that
// what belongs to root there belongs to the sandbox's root.
func (p *Provider) makeRootFS(ctx context.Context, spec providers.Spec, image client.Image) ([]mount.Mount, error) {
	cid, dir := p.containerID(spec.ID), p.hostDir(spec.ID)
	diffs, err := image.RootFS(ctx)
	if err != nil {
		return nil, fmt.Errorf("read layers of image: %w", err)
	}
	service, parent := p.client.SnapshotService(snapshotter), identity.ChainID(diffs).String()
	snapshot := service.Prepare
	if spec.Limits.DiskBytes > 0 {
		snapshot = service.View
	}
	mounts, err := snapshot(ctx, cid, parent, snapshots.WithLabels(p.labels(spec.ID)))
	if err != nil {
		return nil, fmt.Errorf("make snapshot: %w", err)
	}
	l, err := layersOf(mounts)
	if err != nil {
		return nil, err
	}
	owner := 0
	if spec.Security.UserNamespace {
		owner = hostUID(cid)
		if err := dir.shiftLayers(&l, owner); err != nil {
			return nil, err
		}
	}
	if spec.Limits.DiskBytes > 0 {
		if err := dir.makeDisk(ctx, diskBytes(spec.Limits), owner); err != nil {
			return nil, err
		}
		l.upper, l.work = filepath.Join(dir.path(diskName), upperName), filepath.Join(dir.path(diskName), workName)
	} else if err := os.Chown(l.upper, owner, owner); err != nil {
		return nil, fmt.Errorf("give the upper layer to the sandbox: %w", err)
	}
	return []mount.Mount{{Type: "overlay", Source: "overlay", Options: []string{
		"index=off", "lowerdir=" + strings.Join(l.lower, ":"), "upperdir=" + l.upper, "workdir=" + l.work,
	}}}, nil
}

// layersOf reads the mounts of a snapshot: an overlay, or a bind mount of a single layer.
func layersOf(mounts []mount.Mount) (layers, error) {
	var l layers
	if len(mounts) != 1 {
		return l, fmt.Errorf("snapshot has %d mounts, want 1", len(mounts))
	}
	m := mounts[0]
	if m.Type == "bind" {
		l.lower = []string{m.Source}
		return l, nil
	}
	for _, option := range m.Options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "lowerdir":
			l.lower = strings.Split(value, ":")
		case "upperdir":
			l.upper = value
		case "workdir":
			l.work = value
		}
	}
	if m.Type != "overlay" || len(l.lower) == 0 {
		return l, fmt.Errorf("snapshot is mounted as %s, want overlay", m.Type)
	}
	return l, nil
}

// shiftLayers mounts each layer anew with the owners of the sandbox.
func (d hostDir) shiftLayers(l *layers, owner int) error {
	userns, err := usernsOf(owner)
	if err != nil {
		return err
	}
	defer userns.Close()
	if err := os.Mkdir(d.path(lowerName), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	for i, layer := range l.lower {
		target := filepath.Join(d.path(lowerName), strconv.Itoa(i))
		if err := os.Mkdir(target, 0o700); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		if err := mount.IDMapMountWithAttrs(layer, target, int(userns.Fd()), unix.MOUNT_ATTR_RDONLY, 0); err != nil {
			return idmapRefused(err)
		}
		l.lower[i] = target
	}
	return nil
}

// idmapRefused explains what the kernel refused.
func idmapRefused(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unsupported("sandbox.security.user_namespace: this kernel cannot mount the file system of the images with other owners "+
			"(idmapped mounts under overlayfs: Linux 5.19 or later, on ext4, xfs or btrfs): %s", err)
	}
	return fmt.Errorf("mount layer: %w", err)
}

// removeLower unmounts the layers.
func (d hostDir) removeLower() error {
	entries, err := os.ReadDir(d.path(lowerName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove layers: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(d.path(lowerName), e.Name())
		if err := providers.UnmountAll(path); err != nil {
			return err
		}
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove layers: %w", err)
		}
	}
	return nil
}
