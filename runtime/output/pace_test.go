package output

import (
	"testing"
	"time"
)

// Only small reads that follow each other closely wait: not the first one, no large one, and
// none after a rest.
func TestPace(t *testing.T) {
	at := time.Unix(1000, 0)
	var p pace
	for i, c := range []struct {
		later time.Duration
		n     int
		want  time.Duration
	}{
		{0, 10, 0}, {time.Millisecond, 10, pacePause}, {time.Millisecond, 16383, pacePause}, {time.Millisecond, 16384, 0},
		{time.Millisecond, 10, pacePause}, {time.Second, 10, 0}, {time.Microsecond, 10, pacePause},
	} {
		at = at.Add(c.later)
		if got := p.after(c.n, at); got != c.want {
			t.Errorf("read %d: got %s, want %s", i, got, c.want)
		}
	}
}
