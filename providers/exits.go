package providers

import (
	"context"
	"sync"
)

// Exits hands exits to every watcher. The zero value is ready; Close ends all watchers.
type Exits struct {
	mu       sync.Mutex
	watchers map[*exitWatcher]struct{}
	closed   bool
	wg       sync.WaitGroup
}

// exitWatcher queues what its channel's reader has not taken yet; the queue is bounded by
// the number of sandboxes that can end.
type exitWatcher struct {
	queue []Exit
	wake  chan struct{}
	done  chan struct{}
}

// Publish tells every watcher. It never blocks.
func (e *Exits) Publish(exit Exit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watchers {
		w.queue = append(w.queue, exit)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Watch returns a channel that gets each later exit, until ctx ends or Close is called;
// it is then closed.
func (e *Exits) Watch(ctx context.Context) <-chan Exit {
	out := make(chan Exit)
	w := &exitWatcher{wake: make(chan struct{}, 1), done: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		close(out)
		return out
	}
	if e.watchers == nil {
		e.watchers = map[*exitWatcher]struct{}{}
	}
	e.watchers[w] = struct{}{}
	e.wg.Go(func() { // ends with ctx or Close
		defer close(out)
		e.pump(ctx, w, out)
	})
	return out
}

func (e *Exits) pump(ctx context.Context, w *exitWatcher, out chan<- Exit) {
	defer func() {
		e.mu.Lock()
		delete(e.watchers, w)
		e.mu.Unlock()
	}()
	for {
		e.mu.Lock()
		queue := w.queue
		w.queue = nil
		e.mu.Unlock()
		for _, exit := range queue {
			select {
			case out <- exit:
			case <-ctx.Done():
				return
			case <-w.done:
				return
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		case <-w.done:
			return
		}
	}
}

// Close ends all watchers and waits for them.
func (e *Exits) Close() {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		for w := range e.watchers {
			close(w.done)
		}
	}
	e.mu.Unlock()
	e.wg.Wait()
}
