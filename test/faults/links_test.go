//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/faulttest"
)

// interposed restarts the daemon so that it meets the sandbox's runtime through a proxy.
func (e *era) interposed() *faulttest.Proxy {
	e.t.Helper()
	p := e.box.Interpose()
	e.d.Kill()
	e.d.Start()
	e.await(func() bool { return p.Made() > 0 }, "a connection through the proxy")
	o := &ops{}
	o.ask(e.client("first"), e.call(0, 0, ""))
	o.wg.Wait()
	return p
}

// accepted waits until the journal tells that calls are accepted.
func (e *era) accepted(calls []faulttest.Call) {
	e.t.Helper()
	e.await(func() bool {
		n := 0
		for _, ev := range e.follow.Events() {
			if ev.Kind == "accepted" && slices.ContainsFunc(calls, func(c faulttest.Call) bool { return c.ID == ev.CallID }) {
				n++
			}
		}
		return n >= len(calls)
	}, "calls to be accepted")
}

// TestR2_LateCalls: calls are on their way to the runtime when their connection stands still
// and the daemon dies, or only the connection. They come when all is over, and run no more.
func TestR2_LateCalls(t *testing.T) {
	for name, dies := range map[string]bool{"the daemon dies": true, "the link is cut": false} {
		t.Run(name, func(t *testing.T) {
			e := newEra(t, start(t), random(t), "late")
			lateCalls(e, dies)
			report := e.end()
			t.Log(report.Text())
			assertClean(t, report)
			if dies && report.Mix["ResultUnavailable"] < 8 || !dies && report.Mix["value"] != len(e.calls) {
				t.Errorf("%d calls: %v", len(e.calls), report.Mix)
			}
		})
	}
}

func lateCalls(e *era, dies bool) {
	p, o := e.interposed(), &ops{}
	p.Hold(false)
	var late []faulttest.Call
	for n := range 8 {
		late = append(late, e.call(1, n, ""))
		o.ask(e.client("first"), late[n])
	}
	e.accepted(late)
	<-time.After(100 * time.Millisecond) // each is on its way to the proxy by now, or it will not be late
	if dies {
		e.d.Kill()
		e.d.Start()
	} else {
		p.CutNear()
	}
	o.wg.Wait()
	p.Release()
	e.call(2, 0, "")
	e.client("first").Do(e.t.Context(), e.calls[len(e.calls)-1])
	<-time.After(200 * time.Millisecond) // what came late would have begun by now
}

// TestR1_R6_Links: calls go on while the link to the runtime is cut at any byte, stands
// still and is slow, and a client's connection is cut, too.
func TestR1_R6_Links(t *testing.T) {
	rnd := random(t)
	e := newEra(t, start(t), rnd, "links")
	p := e.interposed()
	rounds := 12
	if long() {
		rounds = 150
	}
	for round := 1; round <= rounds; round++ {
		o := &ops{}
		gate := fmt.Sprintf("gate-%d", round)
		for n := range 20 {
			call := e.call(round, n, gate)
			if n%2 == 0 {
				call.Gate = ""
				e.calls[len(e.calls)-1] = call
			}
			o.ask(e.client("first"), call)
			if n == 10 {
				disturb(p, rnd, round)
			}
		}
		e.box.Open(gate)
		<-time.After(time.Duration(rnd.IntN(300)) * time.Millisecond)
		p.Release()
		p.Slow(0)
		o.wg.Wait()
	}
	report := e.end()
	t.Logf("%d connections: %s", p.Made(), report.Text())
	assertClean(t, report)
	if report.Mix["value"] != len(e.calls) {
		t.Errorf("of %d calls only %d have results", len(e.calls), report.Mix["value"])
	}
}

func disturb(p *faulttest.Proxy, rnd *rand.Rand, round int) {
	switch round % 4 {
	case 0:
		p.Cut()
	case 1:
		p.CutAfter(1 + rnd.IntN(3000))
	case 2:
		p.Hold(rnd.IntN(2) == 0)
	default:
		p.Slow(8192)
	}
}

// TestR6_CutFollower: 30 000 numbered lines, while the link and the follower's connection are
// cut every 2 s, and then again with the daemon killed 5 times. The follower sees 1…N.
func TestR6_CutFollower(t *testing.T) {
	const lines = 30000
	for name, kills := range map[string]int{"cuts": 0, "kills": 5} {
		t.Run(name, func(t *testing.T) {
			e := newEra(t, start(t), random(t), "lines")
			link := e.interposed()
			client := faulttest.NewProxy(t, filepath.Join(e.d.Dir, "client.sock"), e.d.Socket())
			conn := faulttest.Dial(t, filepath.Join(e.d.Dir, "client.sock"))
			cut := e.box.FollowBy(agentixv1.NewEventServiceClient(conn))
			o, n := &ops{}, 0
			write := func() <-chan struct{} {
				call := e.call(1, n, "")
				n++
				call.Callable, call.N = faulttest.Count, lines
				e.calls[len(e.calls)-1] = call
				o.ask(e.client("first"), call)
				over := make(chan struct{})
				go func() { defer close(over); o.wg.Wait() }() // ends with the op
				return over
			}
			began := time.Now()
			over := write()
			tick := time.NewTicker(2 * time.Second)
			defer tick.Stop()
			for running := true; running; {
				select {
				case <-over:
					if kills > 0 { // the machine was faster than the kills
						over = write()
						continue
					}
					running = false
				case <-tick.C:
					link.Cut()
					client.Cut()
					if kills--; kills >= 0 {
						e.d.Kill()
						e.d.Start()
					}
				}
			}
			journal := e.box.ReadJournal()
			seen, err := cut.Stop(journal[len(journal)-1].Seq)
			if err != nil {
				t.Error(err)
			}
			if len(seen) != len(journal) {
				t.Errorf("the follower that was cut saw %d events, the journal has %d", len(seen), len(journal))
			}
			for i, ev := range seen {
				if i < len(journal) && ev.Hash != journal[i].Hash {
					t.Fatalf("event %d differs: %+v, %+v", ev.Seq, ev, journal[i])
				}
			}
			report := e.end()
			t.Logf("%d lines in %.1f s, %d connections to the runtime, %d of the follower: %s", n*lines, time.Since(began).Seconds(), link.Made(), cut.Reconnects(), report.Text())
			assertClean(t, report)
			if report.Mix["value"] != len(e.calls) || kills > 0 {
				t.Errorf("%v, %d kills to come", report.Mix, kills)
			}
		})
	}
}
