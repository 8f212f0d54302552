package providertest

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// testBundle: the open directory is what the sandbox has at /nix, read-only, also when its name
// is swapped, and the runtime is told what to do with it. An engine that cannot do that says so.
func testBundle(t *testing.T, s *suite) {
	root := t.TempDir()
	tree := filepath.Join(root, "nix")
	if err := os.MkdirAll(filepath.Join(tree, "runtime"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "runtime", "who"), []byte("bundle"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := s.spec("bundled")
	spec.Bundle = &providers.Bundle{Dir: *openDir(t, tree), Python: "/nix/runtime/venv/bin/python"}
	if !s.Bundles {
		if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.FailedPrecondition) {
			t.Errorf("create with a bundle: %v, want FailedPrecondition", err)
		}
		return
	}
	if err := os.Rename(tree, filepath.Join(root, "moved")); err != nil {
		t.Fatal(err)
	}
	h := s.create(t, spec)
	waitReady(t, h)
	if got := mustGet(t, h, "/read", url.Values{"path": {"/nix/runtime/who"}}); got != "bundle" {
		t.Errorf("/nix/runtime/who holds %q, want bundle", got)
	}
	for _, path := range []string{"/nix/new", "/nix/runtime/who"} {
		if _, err := get(t.Context(), h, "/write", url.Values{"path": {path}, "size": {"1"}}); err == nil {
			t.Errorf("%s could be written", path)
		}
	}
	for line := range strings.Lines(mustGet(t, h, "/read", url.Values{"path": {"/proc/self/mounts"}})) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != "/nix" {
			continue
		}
		for _, want := range []string{"ro", "nosuid", "nodev"} {
			if !slices.Contains(strings.Split(fields[3], ","), want) {
				t.Errorf("/nix is mounted with %s, without %s", fields[3], want)
			}
		}
	}
	if args := strings.Join(getInfo(t, h).Args, " "); !strings.Contains(args, "--python /nix/runtime/venv/bin/python") || strings.Contains(args, "--front") {
		t.Errorf("arguments %q", args)
	}
	served := s.spec("served")
	served.Bundle = &providers.Bundle{Dir: spec.Bundle.Dir, Server: true, Python: spec.Bundle.Python}
	if args := strings.Join(getInfo(t, s.create(t, served)).Args, " "); !strings.Contains(args, "--front") || strings.Contains(args, "--python") {
		t.Errorf("arguments with a server in the bundle: %q", args)
	}
	served = s.spec("served-with-project")
	served.Project, served.Bundle = &spec.Bundle.Dir, &providers.Bundle{Dir: spec.Bundle.Dir, Server: true}
	if _, err := s.p.Create(t.Context(), served); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("a server in the bundle and a project: %v, want FailedPrecondition", err)
	}
}
