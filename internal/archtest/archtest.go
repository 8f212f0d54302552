// Package archtest holds the project to its architecture: which package may import which,
// and who alone may use a foreign module. It reads imports from the source, so that files
// behind build tags count, too.
package archtest

import (
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path that all packages of the project share.
const Module = "github.com/agentixd/agentixd"

type arrow struct {
	from  string
	to    []string
	tests []string
}

type owner struct {
	module string
	by     []string
}

// file is one Go file: its package and what it imports, project packages without Module.
type file struct {
	path    string
	pkg     string
	test    bool
	project []string
	foreign []string
}

// skipped folders hold no Go of the project's own; gen is generated.
var skipped = []string{"bin", "gen", "testdata", "third_party", "node_modules", "tools"}

// read returns the Go files below root.
func read(root string) ([]file, error) {
	var all []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); name != root && (strings.HasPrefix(base, ".") || slices.Contains(skipped, base)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parse(root, name)
		all = append(all, f)
		return err
	})
	return all, err
}

func parse(root, name string) (file, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		return file{}, fmt.Errorf("read imports: %w", err)
	}
	relative, err := filepath.Rel(root, name)
	if err != nil {
		return file{}, fmt.Errorf("read imports: %w", err)
	}
	f := file{path: filepath.ToSlash(relative), test: strings.HasSuffix(name, "_test.go")}
	f.pkg = path.Dir(f.path)
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, fmt.Errorf("read imports of %s: %w", f.path, err)
		}
		if own, found := strings.CutPrefix(imported, Module+"/"); found {
			f.project = append(f.project, own)
		} else {
			f.foreign = append(f.foreign, imported)
		}
	}
	return f, nil
}

// check returns what is wrong with the files, one sentence each.
func check(files []file) []string {
	table := map[string]arrow{}
	for _, a := range arrows {
		table[a.from] = a
	}
	var wrong []string
	found := map[string]bool{}
	for _, f := range files {
		a, known := table[f.pkg]
		if !known {
			if !found[f.pkg] {
				wrong = append(wrong, fmt.Sprintf("package %s is not in the table of arrows", f.pkg))
			}
			found[f.pkg] = true
			continue
		}
		found[f.pkg] = true
		wrong = append(wrong, checkFile(f, a)...)
	}
	for _, a := range arrows {
		if !found[a.from] {
			wrong = append(wrong, fmt.Sprintf("package %s is in the table of arrows and does not exist", a.from))
		}
	}
	slices.SortFunc(wrong, cmp.Compare[string])
	return wrong
}

func checkFile(f file, a arrow) []string {
	var wrong []string
	for _, imported := range f.project {
		if !allowed(f, a, imported) {
			wrong = append(wrong, fmt.Sprintf("%s: package %s must not import %s", f.path, f.pkg, imported))
		}
	}
	if f.test {
		return wrong
	}
	for _, imported := range f.foreign {
		for _, o := range outside {
			if below(imported, o.module) && !slices.Contains(o.by, f.pkg) {
				wrong = append(wrong, fmt.Sprintf("%s: only %s may import %s", f.path, strings.Join(o.by, ", "), imported))
			}
		}
		if slices.Contains(pure, f.pkg) && slices.Contains(inputOutput, imported) {
			wrong = append(wrong, fmt.Sprintf("%s: package %s does no input or output, and must not import %s", f.path, f.pkg, imported))
		}
	}
	return wrong
}

func allowed(f file, a arrow, imported string) bool {
	if imported == f.pkg || matches(a.to, imported) {
		return true
	}
	if f.test {
		return matches(a.tests, imported) || below(imported, "internal")
	}
	return slices.Contains(common, imported) && !slices.Contains(bare, f.pkg)
}

// matches reports whether one of the patterns names the package.
func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		folder, all := strings.CutSuffix(pattern, "/...")
		return pattern == pkg || all && below(pkg, folder)
	})
}

func below(pkg, folder string) bool {
	return pkg == folder || strings.HasPrefix(pkg, folder+"/")
}
