package workerproc

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Frame is one frame of a worker, its fields still raw. A field that is absent or of
// another type has its zero value: the worker is hostile.
type Frame struct {
	Type         string
	CallID       string
	Value        []byte // result
	Encoding     string // result
	Error        []byte // error, boot_error: raw msgpack
	Record       []byte // log: raw msgpack
	Event        string // span, sio_emit
	Data         []byte // span, sio_emit: raw msgpack
	Namespace    string // sio_open, sio_emit
	Worker       string // ready
	Python       string // ready
	Capabilities []byte // ready: raw msgpack
	OutputMarker []byte // ready
	Running      bool   // error: code of the call still runs, and stopped will follow

	// Payload is, for a result that holds nothing else, {call_id, value, encoding?} as the
	// worker wrote it; nil otherwise.
	Payload []byte
}

// parseFrame reads the fields of a frame; they are parts of body.
func parseFrame(body []byte) (Frame, error) {
	var f Frame
	keys, bin := 0, false
	err := wire.Fields(body, func(key string, raw []byte) {
		keys++
		switch key {
		case "type":
			f.Type, _ = wire.Text(raw)
		case "call_id":
			f.CallID, _ = wire.Text(raw)
		case "value":
			f.Value, _ = wire.Blob(raw)
			bin = wire.IsBin(raw)
		case "encoding":
			f.Encoding, _ = wire.Text(raw)
		case "error":
			f.Error = raw
		case "record":
			f.Record = raw
		case "event":
			f.Event, _ = wire.Text(raw)
		case "data":
			f.Data = raw
		case "namespace":
			f.Namespace, _ = wire.Text(raw)
		case "worker":
			f.Worker, _ = wire.Text(raw)
		case "python":
			f.Python, _ = wire.Text(raw)
		case "running":
			f.Running = len(raw) == 1 && raw[0] == 0xc3
		case "capabilities":
			f.Capabilities = raw
		case "output_marker":
			f.OutputMarker, _ = wire.Blob(raw)
		}
	})
	if plain := keys == 3 || keys == 4 && f.Encoding != ""; err == nil && f.Type == wire.FrameResult && f.CallID != "" && bin && plain {
		f.Payload, _ = wire.WithoutType(body)
	}
	return f, err
}

// source reads the frame pipe of a worker. After Finish it yields what is in the pipe and
// then ends, although a forked child of the worker may still hold the other end.
type source struct {
	file      *os.File
	finishing atomic.Bool
}

// Read waits for data until Finish.
func (s *source) Read(b []byte) (int, error) {
	if !s.finishing.Load() {
		n, err := s.file.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	raw, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, readErr := 0, error(nil)
	if err := raw.Control(func(fd uintptr) {
		n, readErr = syscall.Read(int(fd), b)
	}); err != nil {
		return 0, err
	}
	if errors.Is(readErr, syscall.EINTR) {
		return 0, nil
	}
	if errors.Is(readErr, syscall.EAGAIN) || readErr == nil && n == 0 {
		return 0, io.EOF
	}
	return max(n, 0), readErr
}

// finish makes Read end once the pipe is empty.
func (s *source) finish() {
	s.finishing.Store(true)
	_ = s.file.SetReadDeadline(pastDeadline) // a pipe has deadlines; it only wakes Read
}
