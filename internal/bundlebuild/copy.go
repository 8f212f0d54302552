package bundlebuild

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// copyFile copies what a path leads to; it may be run if the original may.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("copy %s: it is no file", from)
	}
	mode := os.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

// copyTree copies a directory without what skip says. Links are replaced by what they lead to,
// if that is a file; other links, and special files, are left out.
func copyTree(from, to string, skip func(rel string, d fs.DirEntry) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case rel != "." && skip(filepath.ToSlash(rel), d):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o755) //nolint:gosec // Everybody in a sandbox reads it.
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // A link to nowhere or to a directory, or something special.
		}
		return copyFile(path, target)
	})
}
