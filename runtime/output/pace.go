package output

import "time"

// Who prints line by line would wake the reader for each: a read costs ten times what a line
// does. So small reads that follow each other closely are made to wait a little, and find
// many lines. The first of them never waits, nor does Drain.
const (
	paceBytes = 16 << 10 // reads below are small
	paceClose = 3 * time.Millisecond
	pacePause = 500 * time.Microsecond
)

// pace tells how long to wait before the next read.
type pace struct{ last time.Time }

// after is told of a read of n bytes.
func (p *pace) after(n int, now time.Time) time.Duration {
	since := now.Sub(p.last)
	p.last = now
	if n >= paceBytes || since > paceClose {
		return 0
	}
	return pacePause
}
