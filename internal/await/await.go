// Package await lets tests wait for conditions instead of sleeping.
package await

import (
	"testing"
	"time"
)

// Timeout is how long True waits: long enough for a loaded machine, so that it tells
// "never" from "slow".
const Timeout = 90 * time.Second

// True waits until cond is true, and fails the test after Timeout, naming what it waited for.
func True(t testing.TB, cond func() bool, what string) {
	t.Helper()
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %s in vain for %s", Timeout, what)
		case <-tick.C:
		}
	}
}
