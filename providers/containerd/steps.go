package containerd

import (
	"context"
	"log/slog"
	"time"
)

// steps tells in the debug log where the time of a create went.
type steps struct {
	last  time.Time
	attrs []slog.Attr
}

type stepsKey struct{}

// withSteps starts the clock of one create.
func withSteps(ctx context.Context) (context.Context, *steps) {
	s := &steps{last: time.Now()}
	return context.WithValue(ctx, stepsKey{}, s), s
}

// done notes the end of a step.
func done(ctx context.Context, name string) {
	if s, ok := ctx.Value(stepsKey{}).(*steps); ok {
		now := time.Now()
		s.attrs = append(s.attrs, slog.Duration(name, now.Sub(s.last)))
		s.last = now
	}
}
