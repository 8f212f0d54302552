package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFrameLimit says that a frame is larger than MaxFrameBytes.
var ErrFrameLimit = errors.New("frame over the limit of 268435456 bytes")

// FrameReader reads u32-LE length-prefixed frames.
type FrameReader struct {
	r *bufio.Reader
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// Next returns the body of the next frame. An empty body means an empty map and is
// returned as one. The error is io.EOF at a boundary or inside a length,
// io.ErrUnexpectedEOF inside a body, and ErrFrameLimit for a length over the limit, after
// which the stream cannot be used.
func (f *FrameReader) Next() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, io.EOF
		}
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	switch {
	case n > MaxFrameBytes:
		return nil, fmt.Errorf("%w: %d bytes", ErrFrameLimit, n)
	case n == 0:
		return []byte{0x80}, nil
	}
	return f.body(n)
}

// body reads n bytes. It grows with what arrives, so that a claimed length costs nothing.
func (f *FrameReader) body(n int) ([]byte, error) {
	const step = 1 << 20
	buf := make([]byte, min(n, step))
	for at := 0; ; {
		m, err := io.ReadFull(f.r, buf[at:])
		at += m
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case at == n:
			return buf, nil
		}
		grown := make([]byte, min(n, 2*len(buf)))
		copy(grown, buf)
		buf = grown
	}
}

// FrameWriter writes u32-LE length-prefixed frames, for one goroutine.
type FrameWriter struct {
	w   io.Writer
	buf []byte
}

// NewFrameWriter returns a writer of frames to w.
func NewFrameWriter(w io.Writer) *FrameWriter {
	return &FrameWriter{w: w}
}

// Write writes one frame, whose body is all parts together; ErrFrameLimit if it is too
// large, with nothing written.
func (f *FrameWriter) Write(body ...[]byte) error {
	size := 0
	for _, part := range body {
		size += len(part)
	}
	if size > MaxFrameBytes {
		return fmt.Errorf("%w: %d bytes", ErrFrameLimit, size)
	}
	f.buf = binary.LittleEndian.AppendUint32(f.buf[:0], uint32(size))
	const small = 64 << 10 // what is copied, to have one write
	for _, part := range body {
		if len(part) <= small && len(f.buf)+len(part) <= 2*small {
			f.buf = append(f.buf, part...)
			continue
		}
		if _, err := f.w.Write(f.buf); err != nil {
			return err
		}
		f.buf = f.buf[:0]
		if _, err := f.w.Write(part); err != nil {
			return err
		}
	}
	if len(f.buf) == 0 {
		return nil
	}
	_, err := f.w.Write(f.buf)
	return err
}
