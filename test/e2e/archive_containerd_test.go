//go:build containerd

package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// readChunks joins the chunks of a stream.
func readChunks[M interface{ GetChunk() []byte }](recv func() (M, error)) io.Reader {
	return &chunks[M]{recv: recv}
}

type chunks[M interface{ GetChunk() []byte }] struct {
	recv func() (M, error)
	rest []byte
}

// Read returns the next bytes.
func (c *chunks[M]) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		message, err := c.recv()
		if err != nil {
			return 0, err
		}
		c.rest = message.GetChunk()
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// untar reads all files of a tar.
func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// decode reads JSON.
func decode(r io.Reader, v any) error { return json.NewDecoder(r).Decode(v) }
