package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompare: an equal census is told with exit status 0, a planted leak by name with 1.
func TestCompare(t *testing.T) {
	// Other things may come and go on this host meanwhile: only the planted one is asserted.
	before := filepath.Join(t.TempDir(), "before.json")
	none := "--containerd=" + before + ".none"
	var out, errOut bytes.Buffer
	if err := run(t.Context(), []string{none}, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"counts"`) {
		t.Errorf("output = %s", out.String())
	}
	if err := os.WriteFile(before, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	leak, err := os.MkdirTemp("", "agentix-planted-leak")
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	err = run(t.Context(), []string{none, "--patience=0s", "--compare", before}, &out, &errOut)
	if !errors.Is(err, errDiffers) || !strings.Contains(out.String(), "+ directories "+leak) {
		t.Errorf("with a leak: %v\n%s", err, out.String())
	}
	if err := os.Remove(leak); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	err = run(t.Context(), []string{none, "--patience=0s", "--compare", before}, &out, &errOut)
	if err != nil && !errors.Is(err, errDiffers) || strings.Contains(out.String(), leak) {
		t.Errorf("without the leak: %v\n%s", err, out.String())
	}
}
