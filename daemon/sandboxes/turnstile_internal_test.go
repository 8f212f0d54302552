package sandboxes

import (
	"context"
	"errors"
	"testing"
)

func passed(p *turn) bool {
	select {
	case <-p.begun:
		return true
	default:
		return false
	}
}

// TestTurnsComeInOrder: who came first goes first, who leaves makes no hole, and pools come last.
func TestTurnsComeInOrder(t *testing.T) {
	s := newTurnstile(1)
	first, pool := s.enter(false), s.enter(true)
	second, third, fourth := s.enter(false), s.enter(false), s.enter(false)
	if !passed(first) || passed(second) || s.waiting() != 3 {
		t.Fatal("one at a time")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCallersLeft)
	if err := third.wait(ctx); !errors.Is(err, errCallersLeft) {
		t.Errorf("wait = %v", err)
	}
	third.end()
	third.end()
	for _, next := range []*turn{second, fourth, pool} {
		if passed(next) {
			t.Fatal("too early")
		}
		first.end()
		first.end() // twice is once
		if !passed(next) {
			t.Fatal("its turn had come")
		}
		first = next
	}
	first.end()
	if s.free != 1 || s.waiting() != 0 {
		t.Errorf("free = %d, waiting = %d", s.free, s.waiting())
	}
}
