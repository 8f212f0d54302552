// Package bundlebuild makes bundles: a CPython of this host with its libraries and loader, a
// virtual environment and a project, as a tree for /nix that runs in any image of the same
// processor. It works without a network. What it reads is the user's own.
//
// The dynamic loader is what makes the tree independent: a copy of the host's, in which the
// directories that it searches, and the cache that it reads, are replaced by ones below /nix.
// Programs of the bundle name that loader; programs of the image go on to use theirs, and no
// environment variable tells either where to look.
package bundlebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// Options say what to build.
type Options struct {
	// Python is the interpreter: one of the host, or that of a virtual environment, whose
	// packages come along.
	Python string
	// Project is a directory with code that comes along and can be imported; empty = none.
	Project string
	// Name and Tag are what the bundle calls itself.
	Name, Tag string
	// Enter is the command that calls Enter in another process, for example this program with
	// a hidden argument.
	Enter []string
	// Warn is told what is left out.
	Warn func(format string, args ...any)
}

// Paths below /nix.
const (
	pythonDir  = "runtime/python"
	venvDir    = "runtime/venv"
	projectDir = "runtime/project"
	loaderName = "runtime/ld.so"
	libDir     = "lib" // short: it must fit where the loader has /usr/lib/
)

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Build makes a bundle and writes it as a tar.
func Build(ctx context.Context, o Options, w io.Writer) (err error) {
	if !namePattern.MatchString(o.Name) || !namePattern.MatchString(o.Tag) {
		return fmt.Errorf("name %q and tag %q must match %s", o.Name, o.Tag, namePattern)
	}
	if o.Warn == nil {
		o.Warn = func(string, ...any) {}
	}
	python, err := ask(ctx, o.Python)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "agentix-bundle-")
	if err != nil {
		return fmt.Errorf("build bundle: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &builder{Options: o, python: python, nix: filepath.Join(work, "nix"), root: filepath.Join(work, "root")}
	if err := b.fill(ctx); err != nil {
		return fmt.Errorf("build bundle: %w", err)
	}
	if err := writeTar(w, b.nix, o.Name, o.Tag); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// builder is one build under way.
type builder struct {
	Options
	python python
	nix    string // the tree
	root   string // where Enter builds its view of the host
}

func (b *builder) path(name string) string { return filepath.Join(b.nix, filepath.FromSlash(name)) }

// fill makes the tree, step by step.
func (b *builder) fill(ctx context.Context) error {
	for _, dir := range []string{b.nix, b.root, b.path(libDir)} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Everybody in a sandbox reads it.
			return err
		}
	}
	for _, step := range []func(context.Context) error{
		b.copyPython, b.copyLibraries, b.makeVenv, b.copyPackages, b.copyProject, b.copyLibraries, b.check, b.compile,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compile writes byte code that does not depend on times.
func (b *builder) compile(ctx context.Context) error {
	args := []string{"-B", "-s", "-m", "compileall", "-f", "-q", "-q", "--invalidation-mode", "unchecked-hash", "/nix/" + pythonDir, "/nix/" + venvDir}
	if b.Project != "" {
		args = append(args, "/nix/"+projectDir)
	}
	if out, err := b.run(ctx, args...); err != nil { // files for other Pythons are among the packages
		b.Warn("not all modules could be compiled: %v %s", err, out)
	}
	return nil
}

// checkScript fails if the interpreter does not work in its place, or if the project names
// packages that are not there.
const checkScript = `
import ctypes, importlib.metadata as metadata, multiprocessing, os, re, subprocess, sys
assert sys.prefix == "/nix/runtime/venv", sys.prefix
subprocess.run([sys.executable, "-c", "pass"], check=True)
project = "/nix/runtime/project/pyproject.toml"
if os.path.exists(project) and sys.version_info >= (3, 11):
    import tomllib
    with open(project, "rb") as f:
        wanted = tomllib.load(f).get("project", {}).get("dependencies", [])
    missing = []
    for requirement in wanted:
        name = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
        if name is None or ";" in requirement:
            continue
        try:
            metadata.version(name.group())
        except metadata.PackageNotFoundError:
            missing.append(name.group())
    if missing:
        sys.exit("the project needs " + ", ".join(missing) + ", which the virtual environment of --python does not have; install it there")
`

func (b *builder) check(ctx context.Context) error {
	if out, err := b.run(ctx, "-I", "-B", "-c", checkScript); err != nil {
		return fmt.Errorf("try the bundle: %w: %s", err, out)
	}
	return nil
}
