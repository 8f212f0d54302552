package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// pauseTimeout is how long processes may go on forking away from a pause.
const pauseTimeout = 5 * time.Second

// Pause stops every process of the sandbox, as killAll does before it kills; there is no
// freezer here. Processes that the sandbox itself had stopped go on with the others.
func (s *sandbox) Pause(ctx context.Context) error {
	s.destroyMu.Lock()
	defer s.destroyMu.Unlock()
	rec, err := s.runs()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pauseTimeout, fmt.Errorf("not all its processes stood still within %s", pauseTimeout))
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		moving := 0
		for _, pid := range members(rec, s.dir) {
			if st, err := readStat(pid); err != nil || st.state == 'T' || st.state == 't' {
				continue
			}
			moving++
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil && !errors.Is(err, unix.ESRCH) {
				return errors.Join(fmt.Errorf("stop process %d: %w", pid, err), s.goOn(rec))
			}
		}
		if moving == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("pause sandbox %s: %w", s.id, context.Cause(ctx)), s.goOn(rec))
		case <-time.After(pause):
		}
	}
}

// Resume lets every process go on.
func (s *sandbox) Resume(context.Context) error {
	s.destroyMu.Lock()
	defer s.destroyMu.Unlock()
	rec, err := s.runs()
	if err != nil {
		return err
	}
	return s.goOn(rec)
}

// runs is the record of a sandbox that has not ended.
func (s *sandbox) runs() (record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.destroyed || s.rec.PID == 0 || s.rec.Exit != nil {
		return record{}, fmt.Errorf("sandbox %s does not run", s.id)
	}
	return s.rec, nil
}

// goOn continues the runtime last: it is then seen as paused until all are continued.
func (s *sandbox) goOn(rec record) error {
	var failed error
	pids := members(rec, s.dir)
	for _, pid := range append(slices.DeleteFunc(pids, func(pid int) bool { return pid == rec.PID }), rec.PID) {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = errors.Join(failed, fmt.Errorf("continue process %d: %w", pid, err))
		}
	}
	return failed
}

// stopped tells whether the recorded process stands still.
func (r record) stopped() bool {
	st, err := readStat(r.PID)
	return err == nil && st.startTime == r.StartTime && (st.state == 'T' || st.state == 't')
}
