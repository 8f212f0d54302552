package sandboxes

import "context"

// oneAtATime is a mutex that a caller with a context can stop waiting for.
type oneAtATime chan struct{}

func newOneAtATime() oneAtATime { return make(oneAtATime, 1) }

// Lock waits for its turn.
func (l oneAtATime) Lock() { l <- struct{}{} }

// Unlock lets the next one in.
func (l oneAtATime) Unlock() { <-l }

// LockFor waits for its turn until ctx ends, whose cause it returns then.
func (l oneAtATime) LockFor(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TryLock reports whether it was free.
func (l oneAtATime) TryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}
