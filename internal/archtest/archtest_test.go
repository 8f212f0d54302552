package archtest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestArchitecture fails on an arrow that the table does not have.
func TestArchitecture(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files were found below %s", len(files), root)
	}
	for _, wrong := range check(files) {
		t.Error(wrong)
	}
}

// TestWrongArrowsAreFound plants what must be found.
func TestWrongArrowsAreFound(t *testing.T) {
	var sound []file
	for _, a := range arrows {
		sound = append(sound, file{path: a.from + "/x.go", pkg: a.from, project: a.to[:len(a.to):len(a.to)]})
	}
	sound = slices.DeleteFunc(sound, func(f file) bool { return f.pkg == "runtime/calltable" })
	sound = append(sound, file{path: "runtime/calltable/x.go", pkg: "runtime/calltable"})
	for i := range sound { // patterns are no packages
		sound[i].project = slices.DeleteFunc(slices.Clone(sound[i].project), func(p string) bool { return strings.HasSuffix(p, "/...") })
	}
	if wrong := check(sound); len(wrong) > 0 {
		t.Fatalf("the table itself: %v", wrong)
	}
	for name, c := range map[string]struct {
		file file
		want string
	}{
		"runtime to daemon":       {file{pkg: "runtime", project: []string{"daemon/link"}}, "runtime must not import daemon/link"},
		"wire to errs":            {file{pkg: "runtime/wire", project: []string{"internal/errs"}}, "runtime/wire must not import internal/errs"},
		"provider to provider":    {file{pkg: "providers/process", project: []string{"providers/containerd"}}, "must not import providers/containerd"},
		"events to gen":           {file{pkg: "daemon/events", project: []string{"gen/go/agentix/v1"}}, "must not import gen/go/agentix/v1"},
		"pickle elsewhere":        {file{pkg: "daemon/link", project: []string{"runtime/pickle"}}, "must not import runtime/pickle"},
		"test helper in code":     {file{pkg: "daemon/api", project: []string{"internal/await"}}, "must not import internal/await"},
		"daemon in a test":        {file{pkg: "runtime", test: true, project: []string{"daemon"}}, "must not import daemon"},
		"gRPC in the domain":      {file{pkg: "daemon/sandboxes", foreign: []string{"google.golang.org/grpc/codes"}}, "may import google.golang.org/grpc/codes"},
		"a database elsewhere":    {file{pkg: "daemon/events", foreign: []string{"database/sql"}}, "only daemon/store may import database/sql"},
		"input in a pure package": {file{pkg: "daemon/calls", foreign: []string{"os"}}, "does no input or output"},
		"a new package":           {file{pkg: "daemon/extra"}, "package daemon/extra is not in the table"},
	} {
		wrong := check(append(slices.Clone(sound), c.file))
		if len(wrong) != 1 || !strings.Contains(wrong[0], c.want) {
			t.Errorf("%s: got %q, want %q", name, wrong, c.want)
		}
	}
	if wrong := check(sound[1:]); len(wrong) != 1 || !strings.Contains(wrong[0], "does not exist") {
		t.Errorf("a row without package: got %q", wrong)
	}
}
