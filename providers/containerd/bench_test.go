//go:build containerd

package containerd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/containerdtest"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/providers/providertest"
)

// BenchmarkLife reports create → socket accepts, and delete, in ms.
func BenchmarkLife(b *testing.B) {
	d := containerdtest.Start(b)
	p := open(b, d, testInstance, b.TempDir(), providertest.Stub(b))
	defer p.Close() //nolint:errcheck // checked by goleak
	importEmpty(b, p)
	var create, answer, remove time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		h, err := p.Create(b.Context(), providers.Spec{ID: fmt.Sprint("b", i), Image: "empty"})
		if err != nil {
			b.Fatal(err)
		}
		create += time.Since(began)
		waitRunning(b, h)
		answer += time.Since(began)
		began = time.Now()
		if err := p.Delete(b.Context(), h.ID()); err != nil {
			b.Fatal(err)
		}
		remove += time.Since(began)
	}
	for name, total := range map[string]time.Duration{"create-ms": create, "answer-ms": answer, "delete-ms": remove} {
		b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), name)
	}
	b.ReportMetric(0, "ns/op")
}
