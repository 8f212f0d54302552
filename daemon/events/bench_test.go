package events

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/agentixd/agentixd/runtime/wire"
)

func logRecords(t testing.TB, from, n int) []wire.Record {
	t.Helper()
	var all []wire.Record
	for i := range n {
		data, err := wire.Marshal(map[string]any{
			"name": "app.module", "level": "INFO", "levelno": 20, "message": fmt.Sprintf("record number %d", from+i),
			"created": 1.7e9, "pathname": "/srv/app/module.py", "funcName": "run", "module": "module", "lineno": 42,
			"exc_text": nil, "stack_info": nil, "agentix_context": "sandbox-a-worker-1", "extras": map[string]any{"step": i},
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, wire.Record{Kind: wire.RecordLog, Time: 1.7e9, CallID: "c1", Data: data})
	}
	return all
}

// BenchmarkLogRecords is one log record from a runtime's batch to a follower.
func BenchmarkLogRecords(b *testing.B) {
	for _, followers := range []int{0, 1, 100} {
		for _, text := range []bool{false, true} {
			b.Run(fmt.Sprintf("followers=%d/textlog=%v", followers, text), func(b *testing.B) { benchmarkLog(b, followers, text) })
		}
	}
}

func benchmarkLog(b *testing.B, followers int, text bool) {
	dir, opts := b.TempDir(), Options{}
	if text {
		opts.LogDir = filepath.Join(dir, "logs")
	}
	j := open(b, dir, opts)
	records := logRecords(b, 0, 500)
	j.Append("a", Event{Body: &Lifecycle{State: "READY"}})
	flush(b, j, "a")
	done := make(chan error, followers)
	for range followers {
		go func() {
			seen := 0
			done <- j.Read(b.Context(), Query{Sandbox: "a", Kinds: []Kind{KindLog}, Follow: true}, func(evs []Event, _ string) error {
				if seen += len(evs); seen >= b.N {
					return errEnough
				}
				return nil
			})
		}()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; sent += len(records) {
		batch := append([]wire.Record(nil), records[:min(len(records), b.N-sent)]...)
		j.AppendBatch("a", wire.Batch{Sid: "s", Seq: uint64(sent + 1), Records: batch}, nil)
	}
	flush(b, j, "a")
	for range followers {
		if err := <-done; !errors.Is(err, errEnough) {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

var errEnough = fmt.Errorf("seen enough")

// BenchmarkCallEvents is what the journal costs a call: two events and a flush.
func BenchmarkCallEvents(b *testing.B) {
	j := open(b, b.TempDir(), Options{})
	for range b.N {
		j.Append("a", Event{CallID: "c", Body: &Call{Phase: CallAccepted, Callable: "app::run"}})
		j.Append("a", Event{CallID: "c", Body: &Call{Phase: CallFinished, Callable: "app::run"}})
		flush(b, j, "a")
	}
}
