package bundlebuild

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// item is one path of the tree.
type item struct {
	name, target string // relative to nix/; what a link says
	kind         byte   // D, F or L
	mode         int64
	size         int64
}

// stamp is the time of everything in a bundle, so that the same tree gives the same tar.
var stamp = time.Unix(315532800, 0).UTC() // 1980, the first year that zip files know

// list reads the tree in the order of its names.
func list(nix string) ([]item, error) {
	var items []item
	err := filepath.WalkDir(nix, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == nix {
			return err
		}
		rel, err := filepath.Rel(nix, path)
		if err != nil {
			return err
		}
		i := item{name: filepath.ToSlash(rel), mode: 0o755}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			i.kind = 'D'
		case d.Type() == fs.ModeSymlink:
			i.kind, i.mode = 'L', 0o777
			i.target, err = os.Readlink(path)
		case d.Type().IsRegular():
			i.kind, i.size = 'F', info.Size()
			if info.Mode()&0o111 == 0 {
				i.mode = 0o644
			}
		default:
			err = fmt.Errorf("%s is no file, directory or link", path)
		}
		items = append(items, i)
		return err
	})
	slices.SortFunc(items, func(a, b item) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return items, err
}

// digest is that of the public protocol.
func digest(nix string, items []item) (string, error) {
	sum := sha256.New()
	for _, i := range items {
		_, _ = fmt.Fprintf(sum, "%s\x00%d\x00", i.name, i.mode)
		switch i.kind {
		case 'L':
			_, _ = fmt.Fprintf(sum, "L\x00%s\x00", i.target)
		case 'D':
			_, _ = io.WriteString(sum, "D\x00")
		default:
			_, _ = fmt.Fprintf(sum, "F\x00%d\x00", i.size)
			if err := copyInto(sum, nix, i); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func copyInto(w io.Writer, nix string, i item) (err error) {
	f, err := os.Open(filepath.Join(nix, filepath.FromSlash(i.name)))
	if err != nil {
		return err
	}
	n, err := io.Copy(w, f)
	if err == nil && n != i.size {
		err = fmt.Errorf("%s changed while it was read", i.name)
	}
	return errors.Join(err, f.Close())
}

// writeTar writes the manifest and the tree.
func writeTar(w io.Writer, nix, name, tag string) error {
	items, err := list(nix)
	if err != nil {
		return err
	}
	sum, err := digest(nix, items)
	if err != nil {
		return err
	}
	system := map[string]string{"amd64": "x86_64-linux", "arm64": "aarch64-linux"}[runtime.GOARCH]
	manifest, err := json.MarshalIndent(map[string]any{ // keys come sorted
		"schema_version": 1, "format": "agentix-bundle", "name": name, "tag": tag, "platform": "linux/" + runtime.GOARCH,
		"nix_system": system, "digest": "sha256:" + sum, "entrypoint": "",
		"runtime_env":       map[string]string{"PATH": "/nix/runtime/venv/bin:/nix/runtime/bin"},
		"agentix_added_env": map[string]string{"AGENTIX_ADDED_PATH": "/nix/runtime/venv/bin:/nix/runtime/bin"},
	}, "", "  ")
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	header := &tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(manifest)), ModTime: stamp}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	if _, err := out.Write(manifest); err != nil {
		return err
	}
	for _, i := range items {
		h := &tar.Header{Name: "nix/" + i.name, Mode: i.mode, Size: i.size, Linkname: i.target, ModTime: stamp}
		h.Typeflag = map[byte]byte{'D': tar.TypeDir, 'L': tar.TypeSymlink, 'F': tar.TypeReg}[i.kind]
		if i.kind == 'D' {
			h.Name += "/"
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if i.kind == 'F' {
			if err := copyInto(out, nix, i); err != nil {
				return err
			}
		}
	}
	return out.Close()
}
