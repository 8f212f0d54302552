package containerd

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/archive"
	continuity "github.com/containerd/continuity/fs"
	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
)

// Limits of what a sandbox has changed, if it is to become an image. Sizes are apparent ones:
// a sparse file is as large as it says, since a layer knows no holes.
const (
	maxUpperBytes   = 16 << 30 // 16 GiB
	maxUpperEntries = 1000000
	ownMounts       = ".agentix" // what the runtime brings is none of the sandbox's
	userIDs         = 65536      // of a user namespace
)

// writeUpper writes the upper directory of an overlay as a layer: additions as they are,
// whiteouts and opaque directories in the form that layers have. The directory is hostile;
// nothing in it is followed, and nothing changes it meanwhile. Owners are lowered by shift.
func writeUpper(ctx context.Context, w io.Writer, upper string, shift int) error {
	if err := checkUpper(ctx, upper); err != nil {
		return err
	}
	if shift == 0 {
		return walkUpper(ctx, w, upper)
	}
	reader, writer := io.Pipe()
	walked := make(chan struct{})
	go func() { // ends with the walk, or when the reader is closed
		defer close(walked)
		writer.CloseWithError(walkUpper(ctx, writer, upper))
	}()
	err := lowerOwners(w, reader, shift)
	_ = reader.CloseWithError(errors.New("the layer is not written any more"))
	<-walked
	return err
}

// checkUpper refuses what does not fit into a layer before anything is written.
func checkUpper(ctx context.Context, upper string) error {
	var size, entries int64
	return filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if entries++; entries > maxUpperEntries {
			return errs.OverLimit("snapshot_entries", maxUpperEntries, entries)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if size += info.Size(); size > maxUpperBytes {
			return errs.OverLimit("snapshot_bytes", maxUpperBytes, size)
		}
		return nil
	})
}

func walkUpper(ctx context.Context, w io.Writer, upper string) error {
	changes := archive.NewChangeWriter(w, upper)
	err := filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		rel, err := filepath.Rel(upper, path)
		if err != nil || rel == "." {
			return err
		}
		if rel == ownMounts {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return change(changes, upper, filepath.Join("/", rel), info)
	})
	return errors.Join(err, changes.Close())
}

// change writes one path of an upper directory.
func change(changes *archive.ChangeWriter, upper, name string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("no status of %s", name)
	}
	if info.Mode()&os.ModeCharDevice != 0 && st.Rdev == 0 { // a whiteout
		return changes.HandleChange(continuity.ChangeKindDelete, name, nil, nil)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return changes.HandleChange(continuity.ChangeKindAdd, name, info, nil)
	}
	path := filepath.Join(upper, name)
	for _, feature := range []string{"redirect", "metacopy"} {
		if _, found, err := overlayAttr(path, feature); found || err != nil {
			return errors.Join(err, errs.New(errs.FailedPrecondition, errs.Unsupported,
				"this kernel's overlayfs keeps changes in a form that no layer has (overlay.%s); load it with redirect_dir=off and metacopy=off", feature))
		}
	}
	if err := changes.HandleChange(continuity.ChangeKindAdd, name, info, nil); err != nil || !info.IsDir() {
		return err
	}
	if value, found, err := overlayAttr(path, "opaque"); err != nil || !found || value != "y" {
		return err
	}
	// With the prefix of whiteouts that is the mark of an opaque directory.
	return changes.HandleChange(continuity.ChangeKindDelete, filepath.Join(name, ".wh..opq"), nil, nil)
}

// overlayAttr is an attribute that overlayfs keeps at a path of an upper directory.
func overlayAttr(path, name string) (value string, found bool, err error) {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "trusted.overlay."+name, buf)
	switch {
	case err == nil:
		return string(buf[:n]), true, nil
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return "", false, nil
	case errors.Is(err, unix.ERANGE):
		return "", true, nil
	}
	return "", false, fmt.Errorf("read attributes of %s: %w", strings.TrimPrefix(path, "/"), err)
}

// lowerOwners copies a tar with lower owners.
func lowerOwners(w io.Writer, r io.Reader, shift int) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		for _, id := range []*int{&h.Uid, &h.Gid} {
			if *id >= shift && *id < shift+userIDs {
				*id -= shift
			}
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil { //nolint:gosec // Nothing is unpacked, and checkUpper bounds it.
			return err
		}
	}
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
