package bundlebuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// python is what an interpreter tells of itself.
type python struct {
	Implementation string
	Version        [2]int
	Executable     string // the program itself, not a link of a virtual environment
	BasePrefix     string
	Prefix         string   // another than BasePrefix for a virtual environment
	Stdlib         []string // directories of the standard library
	Packages       []string // directories of the virtual environment's packages
}

const askScript = `
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps({
    "Implementation": sys.implementation.name,
    "Version": list(sys.version_info[:2]),
    "Executable": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "BasePrefix": os.path.realpath(sys.base_prefix),
    "Prefix": os.path.realpath(sys.prefix),
    "Stdlib": sorted({os.path.realpath(paths["stdlib"]), os.path.realpath(paths["platstdlib"]), os.path.realpath(os.path.dirname(os.__file__))}),
    "Packages": sorted({os.path.realpath(paths["purelib"]), os.path.realpath(paths["platlib"])}) if sys.prefix != sys.base_prefix else [],
}))
`

// ask runs the interpreter.
func ask(ctx context.Context, path string) (python, error) {
	var p python
	cmd := exec.CommandContext(ctx, path, "-I", "-c", askScript)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return p, fmt.Errorf("ask %s: %w: %s", path, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return p, fmt.Errorf("ask %s: it is no Python 3: %w", path, err)
	}
	if p.Implementation != "cpython" || p.Version[0] != 3 || p.Version[1] < 9 {
		return p, fmt.Errorf("%s is %s %d.%d; bundles are made of CPython 3.9 and later", path, p.Implementation, p.Version[0], p.Version[1])
	}
	var kept []string
	for _, dir := range p.Stdlib { // in a virtual environment platstdlib is the environment's own
		if rel, err := filepath.Rel(p.BasePrefix, dir); err == nil && !strings.HasPrefix(rel, "..") && !within(dir, p.Prefix, p.BasePrefix) {
			kept = append(kept, dir)
		}
	}
	if p.Stdlib = kept; len(kept) == 0 {
		return p, fmt.Errorf("%s: its standard library is not below its prefix %s", path, p.BasePrefix)
	}
	return p, nil
}

// within tells whether dir lies in a virtual environment that is not the base itself.
func within(dir, prefix, base string) bool {
	return prefix != base && (dir == prefix || strings.HasPrefix(dir, prefix+"/"))
}

func (p python) version() string { return fmt.Sprintf("%d.%d", p.Version[0], p.Version[1]) }

// unwanted are names in the standard library that no sandbox needs.
var unwanted = map[string]bool{
	"__pycache__": true, "site-packages": true, "dist-packages": true, "test": true, "tests": true, "idlelib": true,
	"turtledemo": true, "tkinter": true, "turtle.py": true, "lib2to3": true, "idle_test": true,
}

// copyPython copies interpreter and standard library, in the places in which the interpreter
// looks for the latter.
func (b *builder) copyPython(context.Context) error {
	bin := b.path(pythonDir + "/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // Everybody in a sandbox reads it.
		return err
	}
	name := "python" + b.python.version()
	if err := copyFile(b.python.Executable, filepath.Join(bin, name)); err != nil {
		return err
	}
	for _, link := range []string{"python3", "python"} {
		if err := os.Symlink(name, filepath.Join(bin, link)); err != nil {
			return err
		}
	}
	for _, dir := range b.python.Stdlib {
		rel, err := filepath.Rel(b.python.BasePrefix, dir)
		if err != nil {
			return err
		}
		err = copyTree(dir, b.path(pythonDir+"/"+filepath.ToSlash(rel)), func(rel string, d os.DirEntry) bool {
			base := d.Name()
			return unwanted[base] || strings.HasSuffix(base, ".a") || strings.HasSuffix(base, ".pyc") || strings.HasPrefix(base, "_tkinter.") ||
				strings.HasPrefix(base, "config-") && d.IsDir() && !strings.Contains(rel, "/")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// makeVenv makes the virtual environment with the interpreter in its place.
func (b *builder) makeVenv(ctx context.Context) error {
	out, err := b.runProgram(ctx, "/nix/"+pythonDir+"/bin/python3", "-I", "-B", "-m", "venv", "--without-pip", "--symlinks", "/nix/"+venvDir)
	if err != nil {
		return fmt.Errorf("make the virtual environment: %w: %s", err, out)
	}
	return nil
}

// copyPackages copies what the virtual environment of --python has.
func (b *builder) copyPackages(context.Context) error {
	to := b.path(venvDir + "/lib/python" + b.python.version() + "/site-packages")
	for _, dir := range b.python.Packages {
		err := copyTree(dir, to, func(_ string, d os.DirEntry) bool {
			return d.Name() == "__pycache__" || strings.HasSuffix(d.Name(), ".pyc")
		})
		if err != nil {
			return err
		}
	}
	if len(b.python.Packages) == 0 {
		return nil
	}
	if err := b.checkEditable(to); err != nil {
		return err
	}
	return b.copyScripts()
}

// checkEditable refuses packages that are not in the environment but somewhere on the host.
// Those of the project itself come with it.
func (b *builder) checkEditable(packages string) error {
	files, err := filepath.Glob(filepath.Join(packages, "*.pth"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		outside := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if !filepath.IsAbs(line) {
				continue
			}
			outside = true
			if b.Project == "" || !isBelow(line, b.Project) {
				return fmt.Errorf("%s leads to %s: install that package without --editable, or make it the --project", filepath.Base(file), line)
			}
		}
		if outside {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

func isBelow(path, dir string) bool {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(abs, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// copyScripts copies the commands of the environment, run by the bundle's interpreter.
func (b *builder) copyScripts() error {
	from := filepath.Join(b.python.Prefix, "bin")
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	old := []byte(filepath.Join(from, "python"))
	for _, e := range entries {
		target := b.path(venvDir + "/bin/" + e.Name())
		if _, err := os.Lstat(target); err == nil || !e.Type().IsRegular() {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), target); err != nil {
			return err
		}
		text, err := os.ReadFile(target)
		if err != nil {
			return err
		}
		head, rest, found := bytes.Cut(text, old)
		if !found || !bytes.HasPrefix(text, []byte("#!")) || bytes.Count(head, []byte("\n")) > 2 {
			continue
		}
		_, tail, _ := bytes.Cut(rest, []byte("\n"))
		suffix := rest[:len(rest)-len(tail)]
		if i := bytes.IndexAny(suffix, " \"\n"); i >= 0 { // python3.11 → python
			suffix = suffix[i:]
		}
		text = bytes.Join([][]byte{head, []byte("/nix/" + venvDir + "/bin/python"), suffix, tail}, nil)
		if err := os.WriteFile(target, text, 0o755); err != nil { //nolint:gosec // A program.
			return err
		}
	}
	return nil
}

// copyProject copies the project and makes it importable.
func (b *builder) copyProject(context.Context) error {
	if b.Project == "" {
		return nil
	}
	info, err := os.Stat(b.Project)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New(b.Project + " is no directory")
	}
	err = copyTree(b.Project, b.path(projectDir), func(rel string, d os.DirEntry) bool {
		switch d.Name() {
		case "__pycache__", ".git", ".hg", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules":
			return true
		}
		if d.IsDir() { // a virtual environment
			_, err := os.Stat(filepath.Join(b.Project, rel, "pyvenv.cfg"))
			return err == nil
		}
		return strings.HasSuffix(d.Name(), ".pyc")
	})
	if err != nil {
		return err
	}
	lines := "/nix/" + projectDir + "\n"
	if info, err := os.Stat(b.path(projectDir + "/src")); err == nil && info.IsDir() {
		lines = "/nix/" + projectDir + "/src\n" + lines
	}
	pth := b.path(venvDir + "/lib/python" + b.python.version() + "/site-packages/agentix-project.pth")
	return os.WriteFile(pth, []byte(lines), 0o644) //nolint:gosec // Everybody in a sandbox reads it.
}
