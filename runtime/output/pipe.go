package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readBytes is the size of one read: what a pipe usually holds at most.
const readBytes = 64 << 10

// Pipe reads one output stream of a worker and its children. The stream ends with the last
// of them.
type Pipe struct {
	read  *os.File
	inode uint64
	emit  func(callID string, b []byte) // may block; b is good until it returns

	mu     sync.Mutex // one reader at a time: the loop of Run, or Drain
	fd     int
	parser parser
	buf    []byte
}

// NewPipe makes the pipe; emit is called for each piece read, by one goroutine at a time. The
// write end is what a process gets as its fd 1 or 2; the caller then closes it.
func NewPipe(emit func(callID string, b []byte)) (*Pipe, *os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make an output pipe: %w", err)
	}
	var stat unix.Stat_t
	if err := errors.Join(unix.SetNonblock(fds[0], true), unix.Fstat(fds[0], &stat)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make an output pipe: %w", err), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return &Pipe{
		read: os.NewFile(uintptr(fds[0]), "output"), inode: stat.Ino, fd: fds[0], emit: emit, buf: make([]byte, readBytes),
	}, os.NewFile(uintptr(fds[1]), "output"), nil
}

// Inode is the number by which /proc names the pipe.
func (p *Pipe) Inode() uint64 { return p.inode }

// SetMarker tells the marker of the worker that writes from now on.
func (p *Pipe) SetMarker(marker []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parser.flush(p.emit)
	p.parser.marker = nil
	if len(marker) == MarkerBytes {
		p.parser.marker = bytes.Clone(marker)
	}
}

// Run reads until the last writer is gone, or until Close.
func (p *Pipe) Run() error {
	raw, err := p.read.SyscallConn()
	if err != nil {
		return fmt.Errorf("read output: %w", err)
	}
	var pace pace
	for {
		var n int
		var readErr error
		err := raw.Read(func(uintptr) bool {
			n, readErr = p.once()
			return !errors.Is(readErr, syscall.EAGAIN)
		})
		switch {
		case p.closed(), errors.Is(readErr, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read output: %w", err)
		case readErr != nil:
			return fmt.Errorf("read output: %w", readErr)
		case n == 0: // no writer is left
			p.mu.Lock()
			p.parser.flush(p.emit)
			p.mu.Unlock()
			return nil
		}
		if pause := pace.after(n, time.Now()); pause > 0 {
			<-time.After(pause)
		}
	}
}

func (p *Pipe) closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fd < 0
}

// once does one read.
func (p *Pipe) once() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.locked()
}

func (p *Pipe) locked() (int, error) {
	for p.fd >= 0 {
		n, err := syscall.Read(p.fd, p.buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if errors.Is(err, syscall.EAGAIN) {
			p.parser.flush(p.emit) // a piece is written at once: the rest would be there
		}
		if err != nil || n <= 0 {
			return 0, err
		}
		p.parser.feed(p.buf[:n], n == len(p.buf), p.emit)
		return n, nil
	}
	return 0, os.ErrClosed
}

// Drain reads everything that is in the pipe at this moment, and returns when it was emitted.
func (p *Pipe) Drain() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return nil
	}
	left, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	if err != nil {
		return fmt.Errorf("drain output: %w", err)
	}
	for left > 0 || len(p.parser.tail) > 0 {
		// Whole reads, though more may have come meanwhile, so that each ends at a full
		// buffer or at the end of a write.
		n, err := p.locked()
		if errors.Is(err, syscall.EAGAIN) || n == 0 && err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("drain output: %w", err)
		}
		left -= n
	}
	return nil
}

// Close ends Run and closes the pipe. emit must not block any more.
func (p *Pipe) Close() error {
	p.mu.Lock()
	p.fd = -1
	p.mu.Unlock()
	return p.read.Close()
}
