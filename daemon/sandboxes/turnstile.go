package sandboxes

import (
	"context"
	"slices"
	"sync"
)

// maxQueuedStarts is how many creates may wait for their turn.
const maxQueuedStarts = 10000

// turnstile lets so many starts go on at once. The others wait in the order in which they
// came; those of nobody, that fill pools, wait for all that somebody waits for.
type turnstile struct {
	mu     sync.Mutex
	free   int
	spare  int // of the places, those that the background may take now: never more than half
	queue  []*turn
	behind []*turn // in the background
}

// turn is a place in the queue.
type turn struct {
	of     *turnstile
	begun  chan struct{} // closed once it may go on
	passed bool          // guarded by of.mu, as the next
	over   bool

	background bool
}

func newTurnstile(n int) *turnstile { return &turnstile{free: n, spare: max(1, n/2)} }

// waiting is how many wait, those in the background not counted.
func (t *turnstile) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// enter takes the next place in the queue; the turn has to end in every case.
func (t *turnstile) enter(background bool) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &turn{of: t, begun: make(chan struct{}), background: background}
	if background {
		t.behind = append(t.behind, p)
	} else {
		t.queue = append(t.queue, p)
	}
	t.move()
	return p
}

// move lets in as many as there is room for; t.mu is held.
func (t *turnstile) move() {
	for t.free > 0 {
		from := &t.queue
		if len(*from) == 0 {
			from = &t.behind
			if len(*from) == 0 || t.spare == 0 {
				return
			}
			t.spare--
		}
		p := (*from)[0]
		*from = (*from)[1:]
		t.free--
		p.passed = true
		close(p.begun)
	}
}

// wait waits for the turn until ctx ends, whose cause it returns then.
func (p *turn) wait(ctx context.Context) error {
	select {
	case <-p.begun:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end leaves the queue, or makes room for the next one. A second time it does nothing.
func (p *turn) end() {
	t := p.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.over {
		return
	}
	p.over = true
	if !p.passed {
		t.queue = slices.DeleteFunc(t.queue, func(q *turn) bool { return q == p })
		t.behind = slices.DeleteFunc(t.behind, func(q *turn) bool { return q == p })
		return
	}
	t.free++
	if p.background {
		t.spare++
	}
	t.move()
}
