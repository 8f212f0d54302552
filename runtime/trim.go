package runtime

import (
	"runtime"
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
	wait    time.Duration
	stopped bool
}

// saw notes a payload of n bytes.
func (t *trimmer) saw(n int) {
	if n < largePayload {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wait = trimDelay
	switch {
	case t.stopped:
	case t.timer == nil:
		t.timer = time.AfterFunc(t.wait, t.trim)
	default:
		t.timer.Reset(t.wait)
	}
}

// trim gives memory back, and comes again, less and less often, while much is still held: a
// large payload may wait for its ack, or for a host that reads slowly.
func (t *trimmer) trim() {
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wait *= 2; !t.stopped && stats.HeapAlloc > heldMuch && t.wait < trimLast {
		t.timer.Reset(t.wait)
	}
}

// heldMuch is what is not worth looking at again; trimLast is how long it is looked at.
const (
	heldMuch = 16 << 20
	trimLast = 10 * time.Minute
)

// stop forgets a trim that is to come.
func (t *trimmer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
}
