//go:build faults

package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// eraRounds is how many rounds one sandbox lives at most.
const eraRounds = 25

// TestR1_R2_RandomKills: 50 calls a round, at least 40 of them proved to run when daemon,
// worker or runtime are killed. Each has one outcome for all who look, and ran at most once;
// when only the daemon was killed more than 90 % have their results.
func TestR1_R2_RandomKills(t *testing.T) {
	rounds := 20
	if long() {
		rounds = 1000
	}
	if n, err := strconv.Atoi(os.Getenv("AGENTIX_FAULTS_ROUNDS")); err == nil {
		rounds = n
	}
	d, rnd := start(t), random(t)
	total := &era{kills: map[string]int{}, mixes: map[string]map[string]int{}}
	began, calls := time.Now(), 0
	var e *era
	for round, inEra := 0, 0; round < rounds; round++ {
		if e == nil {
			e, inEra = newEra(t, d, rnd, fmt.Sprint("e", round)), 0
		}
		e.round(round, draw(rnd))
		if inEra++; e.dead || inEra == eraRounds || round == rounds-1 || t.Failed() {
			report := e.end()
			calls += e.counted
			total.add(e)
			assertClean(t, report)
			if t.Failed() {
				break
			}
			t.Logf("%d rounds, %d calls, %.0f s: %s", round+1, calls, time.Since(began).Seconds(), report.Text())
			e = nil
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(total.kills)) {
		t.Logf("killed %s in %d rounds: %v", kind, total.kills[kind], total.mixes[kind])
	}
	slices.Sort(total.restart)
	if n := len(total.restart); n > 0 {
		t.Logf("restart of the daemon: median %s, longest %s", total.restart[n/2].Round(time.Millisecond), total.restart[n-1].Round(time.Millisecond))
	}
	if calls != rounds*(gatedCalls+racingCalls) {
		t.Errorf("%d calls in %d rounds", calls, rounds)
	}
	sum := 0
	for _, n := range total.mixes["daemon"] {
		sum += n
	}
	if values := total.mixes["daemon"]["value"]; sum > 0 && values*10 <= sum*9 {
		t.Errorf("only the daemon was killed, and of %d calls only %d have their results", sum, values)
	}
}

// draw says what a round kills: mostly the daemon alone.
func draw(rnd *rand.Rand) kill {
	if only := os.Getenv("AGENTIX_FAULTS_KILL"); only != "" { // as a round tells it: daemon+runtime
		return kill{daemon: strings.Contains(only, "daemon"), worker: strings.Contains(only, "worker"), runtime: strings.Contains(only, "runtime")}
	}
	switch n := rnd.IntN(20); {
	case n < 11:
		return kill{daemon: true}
	case n < 14:
		return kill{worker: true}
	case n < 17:
		return kill{daemon: true, worker: true}
	case n < 18:
		return kill{runtime: true}
	default:
		return kill{daemon: true, runtime: true}
	}
}

func (e *era) add(other *era) {
	for kind, n := range other.kills {
		e.kills[kind] += n
		if e.mixes[kind] == nil {
			e.mixes[kind] = map[string]int{}
		}
		for outcome, n := range other.mixes[kind] {
			e.mixes[kind][outcome] += n
		}
	}
	e.restart = append(e.restart, other.restart...)
}
