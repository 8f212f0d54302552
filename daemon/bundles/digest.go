package bundles

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// digest is that of the public protocol: over all paths in their order, each with its mode,
// its kind and what it holds. Directories that the tar did not name count with the mode that
// they were made with.
func (t *tree) digest(root string) (_ string, err error) {
	sum := sha256.New()
	opened, err := os.OpenRoot(root)
	if err != nil {
		return "", err
	}
	defer func() { _ = opened.Close() }() // only read from
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		mode := e.mode
		switch {
		case e.kind == link:
			mode = fileModes // what every system says of a link
		case mode < 0:
			mode = int64(dirMode)
		}
		fmt.Fprintf(sum, "%s\x00%d\x00", name, mode)
		switch e.kind {
		case link:
			fmt.Fprintf(sum, "L\x00%s\x00", e.target)
		case dir:
			fmt.Fprint(sum, "D\x00")
		default:
			fmt.Fprintf(sum, "F\x00%d\x00", e.size)
			if err := copyFile(sum, opened, name); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func copyFile(w io.Writer, root *os.Root, name string) error {
	f, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return err //nolint:wrapcheck // It names the path.
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err //nolint:wrapcheck // It names the path.
}
