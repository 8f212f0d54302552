package store

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCall is what the store costs a call: accepted and finished, one after the other,
// or many at once.
func BenchmarkCall(b *testing.B) {
	call := func(b *testing.B, s *Store, id string) {
		if err := s.AcceptCall(b.Context(), CallRow{ID: id, Sandbox: "a", Callable: "app::run", Encoding: "json", Accepted: time.Now()}); err != nil {
			b.Fatal(err)
		}
		if err := s.FinishCall(b.Context(), id, CallEnd{State: CallSucceeded, Finished: time.Now()}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("serial", func(b *testing.B) {
		s := open(b, b.TempDir())
		for i := range b.N {
			call(b, s, fmt.Sprintf("c%d", i))
		}
	})
	b.Run("64", func(b *testing.B) {
		s := open(b, b.TempDir())
		ids := make(chan int)
		done := make(chan struct{})
		for range 64 {
			go func() {
				for i := range ids {
					call(b, s, fmt.Sprintf("c%d", i))
				}
				done <- struct{}{}
			}()
		}
		for i := range b.N {
			ids <- i
		}
		close(ids)
		for range 64 {
			<-done
		}
	})
}
