package api

import (
	"slices"

	"github.com/agentixd/agentixd/internal/errs"
)

// maxChunkBytes bounds one chunk of an archive: 1 MiB.
const maxChunkBytes = 1048576

// chunkReader is the archive in the messages after the header.
type chunkReader struct {
	recv func() (*[]byte, error) // nil for a message without a chunk
	rest []byte
	err  error
}

// Read returns the next bytes of the archive.
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		chunk, err := r.recv()
		switch {
		case err != nil:
			r.err = err
		case chunk == nil:
			r.err = errs.Invalid("chunk", "every message after the first must have one")
		case len(*chunk) > maxChunkBytes:
			r.err = errs.OverLimit("chunk_bytes", maxChunkBytes, int64(len(*chunk)))
		default:
			r.rest = *chunk
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// chunkWriter sends what is written in messages of at most maxChunkBytes.
type chunkWriter func(chunk []byte) error

// Write sends all of b.
func (send chunkWriter) Write(b []byte) (int, error) {
	sent := 0
	for chunk := range slices.Chunk(b, maxChunkBytes) {
		if err := send(chunk); err != nil {
			return sent, err
		}
		sent += len(chunk)
	}
	return sent, nil
}
