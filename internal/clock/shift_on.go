//go:build failpoint

package clock

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// ShiftEnv names a file with a number of seconds by which the wall clock is wrong, in a build
// with the tag failpoint. The file may change at any time; the monotonic clock never does, as
// on a machine whose wall clock is set.
const ShiftEnv = "AGENTIX_CLOCK_SHIFT_FILE"

var shift struct {
	mu      sync.Mutex
	looked  time.Time
	seconds int64
}

func shifted(t time.Time) time.Time {
	file := os.Getenv(ShiftEnv)
	if file == "" {
		return t
	}
	shift.mu.Lock()
	defer shift.mu.Unlock()
	if shift.looked.IsZero() || t.Sub(shift.looked) > 5*time.Millisecond {
		shift.looked = t
		if text, err := os.ReadFile(file); err == nil {
			shift.seconds, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
	}
	// The first word of a time.Time with a monotonic reading has the wall seconds from bit 30 on.
	wall := (*uint64)(unsafe.Pointer(&t)) //nolint:gosec // of this very value; TestShift tells when its layout changes
	if *wall>>63 == 1 {
		*wall += uint64(shift.seconds) << 30
	}
	return t
}
