package worker

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every source file of the worker is carried, and nothing else.
func TestFSHoldsTheSources(t *testing.T) {
	got := map[string]bool{}
	err := fs.WalkDir(FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".py" {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "src/")
		if !got[name] {
			t.Errorf("%s is not carried", name)
		}
		delete(got, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(got, "agentix/py.typed")
	for name := range got {
		t.Errorf("%s is carried but is no source file", name)
	}
}

func TestBootstrapRunsTheWorker(t *testing.T) {
	onDisk, err := os.ReadFile("bootstrap.py")
	if err != nil {
		t.Fatal(err)
	}
	if Bootstrap != string(onDisk) || !strings.Contains(Bootstrap, "_agentix_worker.main()") {
		t.Errorf("Bootstrap is not the text that starts the worker: %q", Bootstrap)
	}
}
