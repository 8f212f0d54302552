package runtime

import (
	"runtime/debug"
	"sync"
	"time"
)

// largePayload is what makes it worth giving memory back.
const largePayload = 1 << 20

// trimDelay is how long after the last large payload memory is given back.
const trimDelay = time.Second

// trimmer gives memory back to the system once large payloads are through: an idle program
// would keep their garbage for minutes, and a sandbox has a memory limit.
type trimmer struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// saw notes a payload of n bytes.
func (t *trimmer) saw(n int) {
	if n < largePayload {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.stopped:
	case t.timer == nil:
		t.timer = time.AfterFunc(trimDelay, debug.FreeOSMemory)
	default:
		t.timer.Reset(trimDelay)
	}
}

// stop forgets a trim that is to come.
func (t *trimmer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
}
