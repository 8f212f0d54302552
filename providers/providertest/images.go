package providertest

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// testImages: images are found by name, kept while a sandbox uses them, and come back from
// their archive. An engine without images refuses to make a sandbox of one.
func testImages(t *testing.T, s *suite) {
	imager, ok := s.p.(providers.Imager)
	if !ok {
		spec := s.spec("imaged")
		spec.Image = "debian"
		if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.FailedPrecondition) {
			t.Errorf("create from an image: %v, want FailedPrecondition", err)
		}
		return
	}
	image, err := imager.GetImage(t.Context(), s.Image)
	if err != nil || image.Name != s.Image || !strings.HasPrefix(image.Digest, "sha256:") {
		t.Fatalf("get %s: %+v, %v", s.Image, image, err)
	}
	if _, err := imager.GetImage(t.Context(), "no-such-image"); !errs.Is(err, errs.NotFound) {
		t.Errorf("get a missing image: %v, want NotFound", err)
	}
	if _, err := imager.PullImage(t.Context(), providers.Pull{Reference: "not a reference"}, func(providers.PullProgress) {}); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("pull nonsense: %v, want InvalidArgument", err)
	}
	var archive bytes.Buffer
	if err := imager.ExportImage(t.Context(), s.Image, &archive); err != nil {
		t.Fatal(err)
	}
	if err := imager.ExportImage(t.Context(), "no-such-image", io.Discard); !errs.Is(err, errs.NotFound) {
		t.Errorf("export a missing image: %v, want NotFound", err)
	}
	if _, err := imager.ImportArchive(t.Context(), "copy", &archive); err != nil {
		t.Fatal(err)
	}
	spec := s.spec("copied")
	spec.Image = "copy"
	h := s.create(t, spec)
	waitReady(t, h)
	if err := imager.DeleteImage(t.Context(), "copy"); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("delete an image in use: %v, want FailedPrecondition", err)
	}
	waitReady(t, h)
	if err := s.p.Delete(t.Context(), "copied"); err != nil {
		t.Fatal(err)
	}
	if err := imager.DeleteImage(t.Context(), "copy"); err != nil {
		t.Errorf("delete an image: %v", err)
	}
	if err := imager.DeleteImage(t.Context(), "copy"); !errs.Is(err, errs.NotFound) {
		t.Errorf("delete a missing image: %v, want NotFound", err)
	}
	list, err := imager.ListImages(t.Context())
	if err != nil || !slices.ContainsFunc(list, func(i providers.Image) bool { return i.Name == s.Image }) {
		t.Errorf("list = %+v, %v", list, err)
	}
}
