package link

import "context"

// Hold tells that the runtime is about to be frozen: from now on its silence means nothing,
// and nobody connects. Held twice is held once.
func (l *Link) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		return
	}
	l.held = make(chan struct{})
	if l.session != nil {
		l.session.held.Store(true)
	}
}

// Release tells that it runs again. A connection that outlived the time goes on as if that
// had not been; one that did not is made anew.
func (l *Link) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return
	}
	close(l.held)
	l.held = nil
	if s := l.session; s != nil {
		s.forgiveTime()
		s.held.Store(false)
	}
}

// waitReleased waits until the runtime is not held; false means that ctx ended.
func (l *Link) waitReleased(ctx context.Context) bool {
	for {
		l.mu.Lock()
		held := l.held
		l.mu.Unlock()
		if held == nil {
			return ctx.Err() == nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return false
		}
	}
}

// forgiveTime makes the watchdog count from now on.
func (s *session) forgiveTime() {
	now := s.clock.Now().UnixNano()
	s.conn.lastRead.Store(now)
	s.conn.lastWrite.Store(now)
	if start := s.messageStart.Load(); start != 0 {
		s.messageStart.CompareAndSwap(start, now)
	}
}
