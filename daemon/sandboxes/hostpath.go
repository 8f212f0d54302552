package sandboxes

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"os/user"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Permission bits as in the lowest three of a file mode.
const (
	mayRead   = 4
	maySearch = 1
)

func refusedPath(format string, args ...any) error {
	return errs.New(errs.PermissionDenied, errs.HostPathRefused, format, args...)
}

// openProject opens a host directory for the caller: only for callers on the Unix socket,
// only below an allowed prefix, without following a symlink below it, and only if the
// caller's own user could read it. nil without a path. The caller closes the descriptor.
func (m *Manager) openProject(path string, peer *Peer) (*providers.Dir, error) {
	if path == "" {
		return nil, nil
	}
	if peer == nil {
		return nil, refusedPath("project: host paths are only for callers on the Unix socket")
	}
	if len(path) > maxPathBytes || strings.ContainsRune(path, 0) || !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, errs.Invalid("sandbox.project", "must be an absolute path without . or .. of at most %d bytes", maxPathBytes)
	}
	prefix, rest, ok := m.allowedPrefix(path)
	if !ok {
		return nil, refusedPath("project: %s is not below a prefix that agentixd's --allow-host-path names", path)
	}
	groups := groupsOf(peer)
	fd, err := unix.Open(prefix, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if outOfDescriptors(err) {
		return nil, noDescriptors()
	}
	if err != nil {
		return nil, refusedPath("project: the allowed prefix %s cannot be opened", prefix)
	}
	for _, name := range rest {
		if !permitted(fd, peer, groups, maySearch) {
			_ = unix.Close(fd)
			return nil, refusedPath("project: the caller's user may not read %s", path)
		}
		next, err := unix.Openat2(fd, name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH,
		})
		_ = unix.Close(fd)
		if err != nil {
			return nil, openError(path, name, err)
		}
		fd = next
	}
	if !permitted(fd, peer, groups, mayRead|maySearch) {
		_ = unix.Close(fd)
		return nil, refusedPath("project: the caller's user may not read %s", path)
	}
	return &providers.Dir{Path: path, FD: fd}, nil
}

func outOfDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

func noDescriptors() error {
	return errs.New(errs.ResourceExhausted, errs.LimitExceeded, "the daemon has no free file descriptor").WithMeta("limit", "file_descriptors").WithRetry(time.Second)
}

func openError(path, name string, err error) error {
	switch {
	case outOfDescriptors(err):
		return noDescriptors()
	case errors.Is(err, unix.ENOENT):
		return errs.Invalid("sandbox.project", "%s does not exist", path)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		// O_DIRECTORY on a symlink answers ENOTDIR: which of both it is, is the caller's to find out.
		return refusedPath("project: %q in %s is a symlink or no directory", name, path)
	}
	return refusedPath("project: %s cannot be opened", path)
}

// allowedPrefix splits path into the longest allowed prefix and the names below it.
func (m *Manager) allowedPrefix(path string) (prefix string, rest []string, ok bool) {
	for _, p := range m.opts.AllowHostPath {
		p = filepath.Clean(p)
		if !filepath.IsAbs(p) || len(p) < len(prefix) {
			continue
		}
		if path == p {
			prefix, rest, ok = p, nil, true
		} else if below, is := strings.CutPrefix(path, strings.TrimSuffix(p, "/")+"/"); is {
			prefix, rest, ok = p, strings.Split(below, "/"), true
		}
	}
	return prefix, rest, ok
}

// permitted tells whether the mode bits of an open file give the peer all of want.
func permitted(fd int, peer *Peer, groups []uint32, want uint32) bool {
	if peer.UID == 0 {
		return true
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	bits := st.Mode
	switch {
	case st.Uid == peer.UID:
		bits >>= 6
	case slices.Contains(groups, st.Gid):
		bits >>= 3
	}
	return bits&want == want
}

// groupsOf is the peer's group and those that the user database gives its user. The
// groups of the process itself are not asked for: its pid may be another's by now.
func groupsOf(peer *Peer) []uint32 {
	groups := []uint32{peer.GID}
	u, err := user.LookupId(strconv.FormatUint(uint64(peer.UID), 10))
	if err != nil {
		return groups
	}
	ids, err := u.GroupIds()
	if err != nil {
		return groups
	}
	for _, id := range ids {
		if gid, err := strconv.ParseUint(id, 10, 32); err == nil {
			groups = append(groups, uint32(gid))
		}
	}
	return groups
}
