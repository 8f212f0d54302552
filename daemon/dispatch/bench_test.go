package dispatch

import (
	"sync/atomic"
	"testing"
)

// BenchmarkRemote is one warm call through store, journal, link, runtime and worker.
func BenchmarkRemote(b *testing.B) {
	box := newBox(b)
	r := Request{Callable: "app::typed", Args: "[1]"}
	box.value(r)
	for b.Loop() {
		box.value(r)
	}
}

// BenchmarkRemote64 has 64 calls in flight.
func BenchmarkRemote64(b *testing.B) {
	box := newBox(b)
	r := Request{Callable: "app::typed", Args: "[1]"}
	box.value(r)
	b.SetParallelism(32)
	var failed atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if o, err := box.remote(b.Context(), r); err != nil || o.Error != nil {
				failed.Add(1)
			}
		}
	})
	if failed.Load() > 0 {
		b.Errorf("%d calls failed", failed.Load())
	}
}
