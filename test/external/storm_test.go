package external

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// full asks for the long form of the tests: `make interop-full`.
var full = os.Getenv("AGENTIX_INTEROP_FULL") == "1"

// storm is many calls while the link is cut again and again.
type storm struct {
	t        *testing.T
	e        *daemontest.Env
	box      string
	file     string // gets a line for each execution
	results  atomic.Int64
	unknown  atomic.Int64 // ended as ResultUnavailable
	refused  atomic.Int64 // tries that were not accepted
	finished sync.WaitGroup
}

// run makes n calls, with the link cut cuts times meanwhile, and returns which of them have
// a value.
func (s *storm) run(p *proxy, n, cuts int) (values map[string]bool) {
	const callers = 32
	values = map[string]bool{}
	var mu sync.Mutex
	next := atomic.Int64{}
	due := make(chan struct{}, n)
	at := map[int]bool{} // the calls at whose beginning a cut is due
	for len(at) < cuts {
		at[rand.IntN(n)] = true
	}
	var cutter sync.WaitGroup
	cutter.Go(func() { // ends once due is closed
		for range due {
			time.Sleep(time.Duration(rand.IntN(20000)) * time.Microsecond) //nolint:forbidigo // the randomness is the subject
			p.cut(false)
		}
	})
	for range callers {
		s.finished.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= n {
					return
				}
				if at[k] {
					due <- struct{}{}
				}
				id := fmt.Sprintf("storm-%d", k)
				if s.call(id) {
					mu.Lock()
					values[id] = true
					mu.Unlock()
				}
			}
		})
	}
	s.finished.Wait()
	close(due)
	cutter.Wait()
	s.t.Logf("%d calls, %d cuts: %d values, %d unknown, %d tries refused", n, cuts, s.results.Load(), s.unknown.Load(), s.refused.Load())
	return values
}

// call makes one call and reports whether it has a value. What was surely not accepted is
// tried again.
func (s *storm) call(id string) bool {
	for {
		ctx, cancel := context.WithTimeoutCause(s.t.Context(), 2*time.Minute, errors.New("the call hangs"))
		r, err := s.e.Remote.Remote(ctx, &agentixv1.RemoteRequest{Sandbox: s.box, CallId: id, Callable: "app::note", Args: quoted(s.file, id)})
		cancel()
		switch {
		case status.Code(err) == codes.Unavailable:
			s.refused.Add(1)
			continue
		case err != nil:
			s.t.Errorf("%s: %v", id, err)
		case r.GetError().GetType() == "ResultUnavailable":
			s.unknown.Add(1)
		case r.GetError() != nil || r.GetValue() != `"`+id+`"`:
			s.t.Errorf("%s: got %v", id, r)
		default:
			s.results.Add(1)
			return true
		}
		return false
	}
}

// check holds each call to its promise: it ran at most once, and once if it has a value, and
// all that it told is in the journal once.
func (s *storm) check(values map[string]bool) {
	s.t.Helper()
	runs := map[string]int{}
	for _, id := range lines(s.t, s.file) {
		runs[id]++
	}
	var printed, logged map[string]int
	await.True(s.t, func() bool { // what a neighbour tells may come after the result
		printed, logged = s.told()
		return len(printed) >= len(runs) && len(logged) >= len(runs)
	}, "the records")
	for id, n := range runs {
		if n > 1 {
			s.t.Errorf("%s ran %d times", id, n)
		}
		if printed[id] != 1 || logged[id] != 1 {
			s.t.Errorf("%s: %d lines and %d records in the journal", id, printed[id], logged[id])
		}
	}
	for id := range values {
		if runs[id] != 1 {
			s.t.Errorf("%s has a value and ran %d times", id, runs[id])
		}
	}
	if len(printed) != len(runs) || len(logged) != len(runs) {
		s.t.Errorf("%d ran, %d printed, %d logged", len(runs), len(printed), len(logged))
	}
}

// told counts the lines and the records in the journal, by call.
func (s *storm) told() (printed, logged map[string]int) {
	printed, logged = map[string]int{}, map[string]int{}
	var text strings.Builder
	for _, ev := range read(s.t, s.e, &agentixv1.StreamEventsRequest{Sandbox: s.box}) {
		switch {
		case ev.GetOutput() != nil:
			text.Write(ev.GetOutput().GetData())
		case ev.GetLog().GetLogger() == "app.note":
			logged[strings.TrimPrefix(ev.GetLog().GetMessage(), "log ")]++
		case ev.GetGap() != nil:
			s.t.Errorf("gap: %v", ev.GetGap())
		}
	}
	for line := range strings.Lines(text.String()) {
		printed[strings.TrimSpace(strings.TrimPrefix(line, "out "))]++
	}
	return printed, logged
}

func newStorm(t *testing.T, s *server) (*storm, *proxy) {
	t.Helper()
	e := start(t)
	p := newProxy(t, s)
	return &storm{t: t, e: e, box: join(t, e, p.url()), file: filepath.Join(t.TempDir(), "runs")}, p
}

// TestR1_R2_R5_OursUnderCuts: our runtime, our wire: every call has its value, ran once, and
// nothing of what it told is lost or doubled. The full form makes 10 000 calls and 200 cuts.
func TestR1_R2_R5_OursUnderCuts(t *testing.T) {
	n, cuts := 1500, 10
	if full {
		n, cuts = 10000, 200
	}
	s, p := newStorm(t, ourOpen(t))
	values := s.run(p, n, cuts)
	if len(values) != n {
		t.Errorf("%d values, want %d", len(values), n)
	}
	s.check(values)
}

// TestR1_R2_R5_NeighboursUnderCuts: the public protocol has no fence, so a call whose sending
// is in doubt may end as ResultUnavailable; none runs twice and nothing is lost or doubled.
func TestR1_R2_R5_NeighboursUnderCuts(t *testing.T) {
	n, cuts := 500, 6
	if full {
		n, cuts = 4000, 80
	}
	eachNeighbour(t, func(t *testing.T, neighbour *server) {
		s, p := newStorm(t, neighbour)
		values := s.run(p, n, cuts)
		if len(values) < n/2 {
			t.Errorf("%d values of %d calls", len(values), n)
		}
		s.check(values)
	})
}
