package store

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkCall is what the store costs a call without a name: accepted and finished, one
// after the other, or many at once. Its ids are those of package dispatch.
func BenchmarkCall(b *testing.B) {
	call := func(b *testing.B, s *Store) {
		var random [10]byte
		_, _ = rand.Read(random[:])
		id := fmt.Sprintf("%012x", time.Now().UnixMilli()) + hex.EncodeToString(random[:])
		if err := s.AcceptCall(b.Context(), CallRow{ID: id, Sandbox: "a", Callable: "app::run", Encoding: "json", Accepted: time.Now()}); err != nil {
			b.Error(err)
		}
		if err := s.FinishCall(b.Context(), id, CallEnd{State: CallSucceeded, Finished: time.Now()}); err != nil {
			b.Error(err)
		}
	}
	b.Run("serial", func(b *testing.B) {
		s := open(b, b.TempDir())
		written(b)
		for range b.N {
			call(b, s)
		}
	})
	b.Run("64", func(b *testing.B) {
		s := open(b, b.TempDir())
		written(b)
		calls := make(chan struct{})
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range calls {
					call(b, s)
				}
			})
		}
		for range b.N {
			calls <- struct{}{}
		}
		close(calls)
		wg.Wait()
	})
}

// written reports the bytes that the benchmark passes to write(2), checkpoints included.
func written(b *testing.B) {
	b.Helper()
	count := func() (n float64) {
		text, err := os.ReadFile("/proc/self/io")
		if err != nil {
			b.Skip(err)
		}
		_, rest, _ := strings.Cut(string(text), "wchar: ")
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	before := count()
	b.Cleanup(func() { b.ReportMetric((count()-before)/float64(b.N), "written-B/op") })
}
