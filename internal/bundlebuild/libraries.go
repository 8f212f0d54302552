package bundlebuild

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// extraLibraries are not named by what needs them: glibc loads them by itself.
var extraLibraries = []string{"libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2"}

// object is a program or library of the bundle.
type object struct {
	path, interp string
	needed       []string
	rpath        []string
}

// readObject reads an ELF file; nil if it is none of this host's kind.
func readObject(path string, machine elf.Machine) (_ *object, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != elf.ELFMAG {
		return nil, nil //nolint:nilerr // Too short for one.
	}
	e, err := elf.NewFile(f)
	if err != nil || machine != elf.EM_NONE && e.Machine != machine || e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
		return nil, nil //nolint:nilerr // Data of a test, for another processor, or an object file.
	}
	o := &object{path: path}
	if o.needed, err = e.DynString(elf.DT_NEEDED); err != nil {
		return nil, nil //nolint:nilerr // Static.
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		paths, err := e.DynString(tag)
		if err != nil {
			continue
		}
		for _, p := range paths {
			o.rpath = append(o.rpath, strings.Split(p, ":")...)
		}
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, err)
			}
			o.interp = string(bytes.TrimRight(text, "\x00"))
		}
	}
	return o, nil
}

// copyLibraries brings all libraries that the programs and libraries of the bundle need and
// makes the programs use the bundle's loader. It may run again after more was copied.
func (b *builder) copyLibraries(ctx context.Context) error {
	program, err := readObject(b.python.Executable, elf.EM_NONE)
	if err != nil || program == nil || program.interp == "" {
		return fmt.Errorf("%s is no program with a dynamic loader: %w", b.python.Executable, err)
	}
	host, err := elf.Open(b.python.Executable)
	if err != nil {
		return err
	}
	machine := host.Machine
	if err := host.Close(); err != nil {
		return err
	}
	if err := b.copyLoader(program.interp); err != nil {
		return err
	}
	search := hostLibraries(ctx, b.python)
	var queue []*object
	err = filepath.WalkDir(b.nix, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == b.path(loaderName) {
			return err
		}
		o, err := readObject(path, machine)
		if o != nil {
			queue = append(queue, o)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range extraLibraries {
		if path := search(name, nil); path != "" {
			queue = append(queue, &object{path: program.path, needed: []string{name}})
		}
	}
	for len(queue) > 0 {
		o := queue[0]
		queue = queue[1:]
		if o.interp == program.interp && strings.HasPrefix(o.path, b.nix) {
			if err := setInterp(o.path, "/nix/"+loaderName); err != nil {
				return err
			}
		}
		more, err := b.bring(o, search, machine)
		if err != nil {
			return err
		}
		queue = append(queue, more...)
	}
	return nil
}

// bring copies what one object needs and returns what was copied.
func (b *builder) bring(o *object, search func(string, []string) string, machine elf.Machine) (copied []*object, err error) {
	for _, name := range o.needed {
		target := b.path(libDir + "/" + name)
		if strings.HasPrefix(name, "ld-linux") || strings.Contains(name, "/") || b.besides(o, name) {
			continue
		}
		if _, err := os.Lstat(target); err == nil {
			continue
		}
		from := search(name, o.rpath)
		if from == "" {
			b.Warn("%s needs %s, which this host does not have", strings.TrimPrefix(o.path, b.nix), name)
			continue
		}
		if err := copyFile(from, target); err != nil {
			return nil, err
		}
		made, err := readObject(target, machine)
		if err != nil {
			return nil, err
		}
		if made != nil {
			copied = append(copied, made)
		}
	}
	return copied, nil
}

// besides tells whether a library lies where an object of the bundle itself looks for it.
func (b *builder) besides(o *object, name string) bool {
	for _, dir := range o.rpath {
		if !strings.HasPrefix(dir, "$ORIGIN") && !strings.HasPrefix(dir, "${ORIGIN}") {
			continue
		}
		dir = strings.NewReplacer("${ORIGIN}", filepath.Dir(o.path), "$ORIGIN", filepath.Dir(o.path)).Replace(dir)
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// hostLibraries finds libraries as the host's loader does.
func hostLibraries(ctx context.Context, p python) func(name string, rpath []string) string {
	known := map[string]string{}
	for _, ldconfig := range []string{"/sbin/ldconfig", "/usr/sbin/ldconfig"} {
		out, err := exec.CommandContext(ctx, ldconfig, "-p").Output()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(out)) { // 	libc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6
			name, rest, ok := strings.Cut(strings.TrimSpace(line), " (")
			_, path, arrow := strings.Cut(rest, " => ")
			if ok && arrow && known[name] == "" {
				known[name] = path
			}
		}
		break
	}
	dirs := []string{filepath.Join(p.BasePrefix, "lib"), "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	for _, pattern := range []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu"} {
		if found, err := filepath.Glob(pattern); err == nil {
			dirs = append(dirs, found...)
		}
	}
	return func(name string, rpath []string) string {
		for _, dir := range rpath {
			if !filepath.IsAbs(dir) {
				continue
			}
			if path := filepath.Join(dir, name); isFile(path) {
				return path
			}
		}
		if path := filepath.Join(dirs[0], name); isFile(path) {
			return path
		}
		if path := known[name]; isFile(path) {
			return path
		}
		for _, dir := range dirs {
			if path := filepath.Join(dir, name); isFile(path) {
				return path
			}
		}
		return ""
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
