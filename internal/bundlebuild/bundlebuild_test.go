package bundlebuild

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain is also the program that enters a namespace.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "enter" {
		fmt.Fprintln(os.Stderr, Enter(os.Args[2], os.Args[3], os.Args[4:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestRedirect: every place in which a loader would look is below /nix afterwards, and nothing
// else has changed, lengths included.
func TestRedirect(t *testing.T) {
	for name, dirs := range map[string]string{
		"debian": "/lib/x86_64-linux-gnu/\x00/usr/lib/x86_64-linux-gnu/\x00/lib/\x00/usr/lib/\x00",
		"fedora": "/lib64/\x00/usr/lib64/\x00",
	} {
		loader := "ELF\x00" + dirs + "\x00/lib64/ld-linux-x86-64.so.2\x00say /etc/ld.so.cache or\x00/etc/ld.so.cache\x00x\x00" + dirs + "\x00/etc/ld.so.preload\x00end"
		data := []byte(loader)
		if err := redirect(data); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := string(data)
		if len(got) != len(loader) || strings.Count(got, "/nix/ld.so.cache\x00") != 1 || strings.Count(got, "/nix/ld.so.preload\x00") != 1 {
			t.Errorf("%s: %q", name, got)
		}
		for text := range strings.SplitSeq(got, "\x00") {
			if strings.HasPrefix(text, "/") && strings.HasSuffix(text, "/") && !strings.HasPrefix(text, "/nix") {
				t.Errorf("%s still looks in %s", name, text)
			}
		}
		if !strings.Contains(got, "\x00/lib64/ld-linux-x86-64.so.2\x00say /etc/ld.so.cache or\x00") || !strings.Contains(got, "/nix/lib/") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, bad := range []string{"", "/etc/ld.so.cache\x00", "/etc/ld.so.cache\x00/etc/ld.so.preload\x00/lib/\x00"} {
		if err := redirect([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a loader", bad)
		}
	}
}

// TestSetInterp: a program names the other loader, and is otherwise the same.
func TestSetInterp(t *testing.T) {
	from, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "true")
	if err := copyFile(from, path); err != nil {
		t.Fatal(err)
	}
	before, err := readObject(path, elf.EM_NONE)
	if err != nil || before == nil || before.interp == "" {
		t.Skipf("%s is static: %v", from, err)
	}
	if err := setInterp(path, "/nix/"+loaderName); err != nil {
		t.Fatal(err)
	}
	after, err := readObject(path, elf.EM_NONE)
	if err != nil || after.interp != "/nix/runtime/ld.so" || strings.Join(after.needed, " ") != strings.Join(before.needed, " ") {
		t.Errorf("%+v, %v", after, err)
	}
	if err := setInterp(path, "/nix/"+strings.Repeat("x", 100)); err == nil {
		t.Error("a loader without room was taken")
	}
}

// environment makes a virtual environment with one package and one command.
func environment(t *testing.T) (python, packages string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "env")
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Skipf("python3 -m venv: %v: %s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	put(t, found[0], map[string]string{
		"dep.py": "VALUE = 42\n", "dep-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: dep\nVersion: 1.0\n",
		"../../../bin/tool": "#!" + dir + "/bin/python3 -s\nimport sys, dep\nprint(dep.VALUE, sys.prefix)\n",
	})
	if err := os.Chmod(filepath.Join(dir, "bin", "tool"), 0o755); err != nil { //nolint:gosec // A program.
		t.Fatal(err)
	}
	return filepath.Join(dir, "bin", "python"), found[0]
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // As a package is.
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // As a package is.
			t.Fatal(err)
		}
	}
}

func build(t *testing.T, python, project string) (map[string]string, error) {
	t.Helper()
	var buf bytes.Buffer
	err := Build(t.Context(), Options{Python: python, Project: project, Name: "demo", Tag: "1", Enter: []string{os.Args[0], "enter"}}, &buf)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	r := tar.NewReader(&buf)
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = h.Linkname + string(text)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 315532800 || strings.Contains(h.Name, "/../") {
			t.Errorf("%+v", h)
		}
	}
	return files, nil
}

// TestBuild: packages and commands of an environment come along, the project is importable, and
// nothing names where it came from.
func TestBuild(t *testing.T) {
	python, packages := environment(t)
	project := t.TempDir()
	put(t, project, map[string]string{
		"app.py": "import dep\n", "src/lib.py": "", ".git/config": "secret", "env/pyvenv.cfg": "", "env/x.py": "",
		"pyproject.toml": "[project]\nname = \"app\"\nversion = \"1\"\ndependencies = [\"dep>=1\", \"windows-only; sys_platform == 'win32'\"]\n",
	})
	files, err := build(t, python, project)
	if err != nil {
		t.Fatal(err)
	}
	var manifest map[string]any
	if err := json.Unmarshal([]byte(files["manifest.json"]), &manifest); err != nil || manifest["name"] != "demo" || manifest["format"] != "agentix-bundle" {
		t.Errorf("manifest %s, %v", files["manifest.json"], err)
	}
	for _, want := range []string{"nix/runtime/ld.so", "nix/lib/libc.so.6", "nix/runtime/venv/bin/python", "nix/runtime/project/app.py", "nix/runtime/project/src/lib.py"} {
		if files[want] == "" && !strings.HasSuffix(want, "lib.py") {
			t.Errorf("no %s", want)
		}
	}
	for name, text := range files {
		if strings.Contains(name, ".git") || strings.Contains(name, "project/env") || strings.Contains(name, "/test/") && strings.Contains(name, "python3") {
			t.Errorf("%s came along", name)
		}
		if strings.Contains(text, packages) {
			t.Errorf("%s names %s", name, packages)
		}
	}
	if got := files["nix/runtime/venv/bin/tool"]; !strings.HasPrefix(got, "#!/nix/runtime/venv/bin/python -s\nimport sys") {
		t.Errorf("command = %q", got)
	}
}

// TestBuildRefuses: what cannot work in a sandbox is told when it is built.
func TestBuildRefuses(t *testing.T) {
	python, packages := environment(t)
	elsewhere := t.TempDir()
	put(t, packages, map[string]string{"__editable__.other.pth": elsewhere + "\n"})
	if _, err := build(t, python, ""); err == nil || !strings.Contains(err.Error(), elsewhere) {
		t.Errorf("an editable package: %v", err)
	}
	itself := &builder{Options: Options{Project: elsewhere}}
	if err := itself.checkEditable(packages); err != nil { // it comes along, and the file goes
		t.Errorf("the project itself: %v", err)
	}
	put(t, elsewhere, map[string]string{"pyproject.toml": "[project]\nname = \"app\"\nversion = \"1\"\ndependencies = [\"missing-thing\"]\n"})
	p, err := ask(t.Context(), python)
	if err != nil {
		t.Fatal(err)
	}
	if p.Version[1] >= 11 { // an older one cannot read the file
		if _, err := build(t, python, elsewhere); err == nil || !strings.Contains(err.Error(), "missing-thing") {
			t.Errorf("a package that is missing: %v", err)
		}
	}
	for _, path := range []string{"/nonexistent/python", "/bin/true"} {
		if _, err := build(t, path, ""); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
