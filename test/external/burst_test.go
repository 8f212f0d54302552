package external

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
)

// TestR5_RecordsWhileTheLinkIsDown: 30 000 records are made while nobody listens for three
// seconds: all arrive in their order, or one gap tells how many did not.
func TestR5_RecordsWhileTheLinkIsDown(t *testing.T) {
	const n = 30000
	eachNeighbour(t, func(t *testing.T, s *server) {
		e := start(t)
		p := newProxy(t, s)
		box := join(t, e, p.url())
		begin := filepath.Join(t.TempDir(), "begin")
		done := make(chan *agentixv1.RemoteResponse, 1)
		go func() { // ends with the call
			r, _ := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: box, CallId: "burst", Callable: "app::burst", Args: quoted(begin, n)})
			done <- r
		}()
		await.True(t, func() bool { // so that it surely is there
			return call(t, e, box, "echo", "[]") != ""
		}, "a call behind it")
		p.cut(true)
		timer := time.AfterFunc(3*time.Second, func() { p.cut(false) })
		defer timer.Stop()
		if err := os.WriteFile(begin, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := <-done; r.GetValue() != strconv.Itoa(n) {
			t.Fatalf("got %v", r)
		}
		var got, lost, gaps, last int
		await.True(t, func() bool {
			got, lost, gaps, last = 0, 0, 0, -1
			for _, ev := range read(t, e, &agentixv1.StreamEventsRequest{Sandbox: box}) {
				switch {
				case ev.GetLog().GetLogger() == "app.burst":
					k, err := strconv.Atoi(ev.GetLog().GetMessage())
					if err != nil || k <= last {
						t.Fatalf("record %q after %d", ev.GetLog().GetMessage(), last)
					}
					got, last = got+1, k
				case ev.GetGap() != nil:
					gaps, lost = gaps+1, lost+int(ev.GetGap().GetDropped())
				}
			}
			return last == n-1
		}, "the last record")
		t.Logf("%d records, %d lost in %d gaps", got, lost, gaps)
		if got+lost < n || gaps > 1 || gaps == 0 && got != n {
			t.Errorf("%d records of %d, %d lost in %d gaps", got, n, lost, gaps)
		}
	})
}
