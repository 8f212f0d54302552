package providertest

import (
	"net/url"
	"testing"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// testSnapshot: an image of a sandbox has what it wrote, as often as wanted; the sandbox goes on,
// and neither changes the other afterwards.
func testSnapshot(t *testing.T, s *suite) {
	snapshotter, ok := s.p.(providers.Snapshotter)
	if !ok {
		if _, images := s.p.(providers.Imager); images {
			t.Error("a provider with images makes none of sandboxes")
		}
		return
	}
	imager, ok := s.p.(providers.Imager)
	if !ok {
		t.Fatal("a provider that makes images of sandboxes has none")
	}
	h := s.create(t, s.spec("origin"))
	waitReady(t, h)
	write := func(h providers.Handle, path string) {
		t.Helper()
		mustGet(t, h, "/write", url.Values{"path": {path}, "size": {"5"}})
	}
	write(h, "/etc/before")
	if _, err := snapshotter.Snapshot(t.Context(), "origin", "fork"); err != nil {
		t.Fatal(err)
	}
	write(h, "/etc/after") // it goes on
	for _, id := range []string{"fork-a", "fork-b"} {
		spec := s.spec(id)
		spec.Image = "fork"
		fork := s.create(t, spec)
		waitReady(t, fork)
		mustGet(t, fork, "/read", url.Values{"path": {"/etc/before"}})
		for _, path := range []string{"/etc/after", "/etc/of-fork-a"} {
			if _, err := get(t.Context(), fork, "/read", url.Values{"path": {path}}); err == nil {
				t.Errorf("%s has %s", id, path)
			}
		}
		write(fork, "/etc/of-"+id)
	}
	if _, err := get(t.Context(), h, "/read", url.Values{"path": {"/etc/of-fork-a"}}); err == nil {
		t.Error("what a fork wrote is in the origin")
	}
	// An image of a fork, under the same name: that of before is replaced.
	if _, err := snapshotter.Snapshot(t.Context(), "fork-a", "fork"); err != nil {
		t.Fatal(err)
	}
	spec := s.spec("fork-of-fork")
	spec.Image = "fork"
	again := s.create(t, spec)
	waitReady(t, again)
	for _, path := range []string{"/etc/before", "/etc/of-fork-a"} {
		mustGet(t, again, "/read", url.Values{"path": {path}})
	}
	for _, id := range []string{"none", "../etc"} {
		if _, err := snapshotter.Snapshot(t.Context(), id, "x"); !errs.Is(err, errs.NotFound) {
			t.Errorf("of sandbox %s: %v, want NotFound", id, err)
		}
	}
	s.deleteAll(t)
	if err := imager.DeleteImage(t.Context(), "fork"); err != nil {
		t.Error(err)
	}
}
