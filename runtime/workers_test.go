package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/runtime"
)

// TestR6_WorkersThatPrintTogether has three workers print at once: each call's output is whole,
// in order, and before its end.
func TestR6_WorkersThatPrintTogether(t *testing.T) {
	s := start(t, map[string]string{"app": app}, func(c *runtime.Config) { c.Workers = 3 })
	d := s.connect(nil, nil)
	const calls, lines = 12, 2000
	for i := range calls {
		d.call(fmt.Sprint("c", i), "app::flood", fmt.Sprintf(`[[%d, null, 40], {}]`, lines))
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "%s\n", (fmt.Sprint(i) + strings.Repeat(".", 40))[:40])
	}
	for i := range calls {
		id := fmt.Sprint("c", i)
		d.value(id)
		if got := d.outputOf(id, d.place(id)); got != want.String() {
			t.Errorf("%s: %d bytes of output came before its end, want %d in order", id, len(got), want.Len())
		}
	}
	pids := map[string]bool{}
	for i := 0; i < 1000 && len(pids) < 3; i++ { // one that has just computed is spared for a moment
		pids[d.run(fmt.Sprint("p", i), "app::pid", `[[],{}]`)] = true
	}
	if len(pids) != 3 {
		t.Errorf("calls run in %v", pids)
	}
	d.check()
}
