package providers

import (
	"io"
	"os"
	"strings"
)

const (
	maxRuntimeLogBytes = 1 << 20 // 1 MiB: a runtime's own log; it starts again when longer
	logTailBytes       = 2048    // what a failed start quotes of it
)

// RuntimeLogger is a Handle that keeps what the runtime wrote to its standard error.
type RuntimeLogger interface {
	// RuntimeLog returns its end, at most 2 KiB of valid UTF-8.
	RuntimeLog() string
}

// LogTail returns the end of a runtime's own log; empty if there is none.
func LogTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(-logTailBytes, io.SeekEnd); err != nil {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, logTailBytes))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(data), "\uFFFD"))
}

// TrimLog empties a runtime's own log once it is over its limit. Writers append, so they
// go on at its start.
func TrimLog(path string) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxRuntimeLogBytes {
		_ = os.Truncate(path, 0) // tried again by the next round
	}
}
