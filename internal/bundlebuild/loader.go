package bundlebuild

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// copyLoader copies the host's dynamic loader and makes it look below /nix only.
func (b *builder) copyLoader(host string) error {
	target := b.path(loaderName)
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	if strings.Contains(filepath.Base(host), "musl") {
		return fmt.Errorf("the interpreter is linked against musl (%s); bundles are made of one for glibc", host)
	}
	if err := copyFile(host, target); err != nil {
		return err
	}
	data, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	if err := redirect(data); err != nil {
		return fmt.Errorf("%s: %w", host, err)
	}
	return os.WriteFile(target, data, 0o755) //nolint:gosec // A program.
}

// redirect replaces, in place and with the same lengths, what glibc's loader has built in: the
// files of its cache and of what to preload, and each list of directories that it searches.
func redirect(loader []byte) error {
	for _, name := range []string{"/ld.so.cache\x00", "/ld.so.preload\x00"} {
		if !replaceAll(loader, "/etc"+name, "/nix"+name) {
			return fmt.Errorf("it is no loader of glibc that is known: it has no /etc%s", strings.TrimRight(name, "\x00"))
		}
	}
	found := false
	for start := 0; ; {
		i := bytes.Index(loader[start:], []byte("/lib"))
		if i < 0 {
			break
		}
		start += i
		if start > 0 && loader[start-1] != 0 { // not the beginning of a string
			start++
			continue
		}
		length, dirs := listOfDirs(loader[start:])
		if dirs < 2 {
			start++
			continue
		}
		for _, dir := range bytes.SplitAfter(loader[start:start+length], []byte{0}) {
			if len(dir) > 0 {
				copy(dir, padded(len(dir)-1))
			}
		}
		found = true
		start += length
	}
	if !found {
		return errors.New("it is no loader of glibc that is known: it has no list of directories")
	}
	return nil
}

// listOfDirs is the length of strings, each with a NUL, that name directories of libraries.
func listOfDirs(data []byte) (length, dirs int) {
	for {
		end := bytes.IndexByte(data[length:], 0)
		if end < 1 {
			return length, dirs
		}
		dir := string(data[length : length+end])
		if !strings.HasPrefix(dir, "/lib") && !strings.HasPrefix(dir, "/usr/lib") || !strings.HasSuffix(dir, "/") {
			return length, dirs
		}
		length += end + 1
		dirs++
	}
}

// padded is a directory below /nix in exactly so many bytes.
func padded(n int) []byte {
	dir := "/nix/" + libDir
	if n < len(dir)+1 {
		dir = "/nix" // has no libraries
	}
	return append([]byte(dir), bytes.Repeat([]byte("/"), n-len(dir))...)
}

func replaceAll(data []byte, old, with string) bool {
	found := false
	for start := 0; ; {
		i := bytes.Index(data[start:], []byte(old))
		if i < 0 {
			return found
		}
		copy(data[start+i:], with)
		found, start = true, start+i+len(old)
	}
}

// setInterp makes a program name another loader, whose path must not be longer.
func setInterp(path, loader string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	var offset, size uint64
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			offset, size = p.Off, p.Filesz
		}
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if uint64(len(loader))+1 > size {
		return fmt.Errorf("%s: no room for the loader %s in its %d bytes", path, loader, size)
	}
	out, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = out.WriteAt(append([]byte(loader), make([]byte, size-uint64(len(loader)))...), int64(offset)) //nolint:gosec // Within the file.
	return errors.Join(err, out.Close())
}
