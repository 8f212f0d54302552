package workerproc

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/runtime/wire"
)

// watchInterval is how often workers with calls are looked at, where there is a choice.
const watchInterval = 100 * time.Millisecond

// spinning is the share of a processor from which on a worker counts as busy computing, and
// spinMemory how long that is remembered: on a host with much to do it may get less for a while.
const (
	spinning   = 0.2
	spinMemory = time.Second
)

// choose is the worker for the next call: one that answers rather than one that does not, one
// that waits rather than one that computes, then the one with the fewest calls, then the one
// that got its last call first. nil: none is ready, or not all were started. p.mu is held.
func (p *Pool) choose() *worker {
	if p.tried < len(p.slots) {
		return nil
	}
	var best *worker
	for _, w := range p.slots {
		if w != nil && (best == nil || w.before(best)) {
			best = w
		}
	}
	return best
}

func (w *worker) before(other *worker) bool {
	for _, c := range [][2]int{
		{truth(w.stuck), truth(other.stuck)},
		{truth(w.busy || w.stopping > 0), truth(other.busy || other.stopping > 0)},
		{len(w.flights), len(other.flights)},
	} {
		if c[0] != c[1] {
			return c[0] < c[1]
		}
	}
	return w.turn < other.turn
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// dispatch gives away what waits; p.mu is held.
func (p *Pool) dispatch() {
	for len(p.waiting) > 0 {
		w := p.choose()
		if w == nil {
			return
		}
		q := p.waiting[0]
		p.waiting[0] = queued{}
		p.waiting = p.waiting[1:]
		p.give(w, q)
	}
	p.waiting = nil
}

// watch has the workers looked at while they have calls; p.mu is held.
func (p *Pool) watch() {
	if p.watched || len(p.slots) == 1 {
		return
	}
	p.watched = true
	for _, w := range p.slots {
		if w != nil {
			w.sampleCPU(time.Now())
		}
	}
	time.AfterFunc(watchInterval, p.look)
}

// look notes which workers compute, and which do not answer.
func (p *Pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched = false
	now, calls := time.Now(), false
	for _, w := range p.slots {
		if w == nil {
			continue
		}
		if w.sampleCPU(now) >= spinning {
			w.spun = now
		}
		w.busy = now.Sub(w.spun) < spinMemory && w.hasCallSince(now.Add(-watchInterval))
		if len(w.flights) == 0 {
			w.stuck = false
			continue
		}
		calls = true
		w.stuck = w.pinged
		if !w.pinged && w.tellsStopped {
			if q, err := newQueued([][]byte{pingFrame}); err == nil {
				w.pinged = true
				p.queued += q.size
				w.push(q)
			}
		}
	}
	if calls && p.ctx != nil {
		p.watched = true
		time.AfterFunc(watchInterval, p.look)
	}
}

var pingFrame = []byte("\x81\xa4type\xa4" + wire.FramePing)

func (w *worker) hasCallSince(t time.Time) bool {
	for _, f := range w.flights {
		if f.began.Before(t) {
			return true
		}
	}
	return false
}

// sampleCPU is the share of a processor that the worker used since the last sample.
func (w *worker) sampleCPU(now time.Time) float64 {
	used := cpuTime(w.proc.Pid)
	passed := now.Sub(w.sampled)
	share := 0.0
	if passed > 0 && passed < 10*watchInterval {
		share = float64(used-w.used) / float64(passed)
	}
	w.used, w.sampled = used, now
	return share
}

// cpuTime is the processor time that a process used; 0 if it is gone.
func cpuTime(pid int) time.Duration {
	var t unix.Timespec
	clock := int32(^pid)<<3 | 2 // as clock_getcpuclockid makes it
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
