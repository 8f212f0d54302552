//go:build failpoint

package clock

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestShift: the wall clock moves, the monotonic one does not.
func TestShift(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shift")
	t.Setenv(ShiftEnv, file)
	before := System{}.Now()
	for _, hours := range []string{"3600", "-3600"} {
		if err := os.WriteFile(file, []byte(hours), 0o600); err != nil {
			t.Fatal(err)
		}
		want, _ := time.ParseDuration(hours + "s")
		deadline := time.Now().Add(time.Minute)
		for now := (System{}).Now(); ; now = (System{}).Now() {
			if off := time.Until(now.Round(0)); off > want-time.Minute && off < want+time.Minute {
				if now.Sub(before) > time.Minute || now.Sub(before) < 0 {
					t.Errorf("the monotonic clock moved by %s", now.Sub(before))
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the wall clock is not off by %s", want)
			}
		}
	}
}
