package link

import (
	"fmt"
	"sync"
	"time"
)

// watch looks at the connection every timing.watch until close.
func (s *session) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.stopWatch = s.clock.AfterFunc(s.timing.watch, func() {
		if err := s.lifeless(); err != nil {
			s.fail(err)
			return
		}
		s.watch()
	})
}

// lifeless tells why the connection has to be given up, if it has.
func (s *session) lifeless() error {
	if s.held.Load() {
		return nil
	}
	if stuck := s.conn.stuckFor(); stuck > s.timing.write {
		return fmt.Errorf("the runtime took no bytes for %s", stuck.Round(time.Millisecond))
	}
	if s.paused.Load() {
		return nil
	}
	silent := s.conn.silentFor()
	if limit := time.Duration(s.idleLimit.Load()); silent > limit {
		return fmt.Errorf("the runtime was silent for %s, longer than its heartbeat allows (%s)", silent.Round(time.Millisecond), limit)
	}
	start := s.messageStart.Load()
	if start == 0 {
		return nil
	}
	if silent > s.timing.stall {
		return violation("no progress within a message for %s", silent.Round(time.Millisecond))
	}
	lasted := s.clock.Now().Sub(time.Unix(0, start))
	if allowed := s.timing.message + time.Duration(s.messageBytes.Load()>>20)*time.Second; lasted > allowed {
		return violation("a message took longer than %s", allowed)
	}
	return nil
}

// charge counts one packet that means nothing to us; too many are a violation.
func (s *session) charge() error {
	s.ignored.Add(1)
	if s.nuisance.take(s.clock.Now()) {
		return nil
	}
	return violation("over %d meaningless packets", nuisanceBurst)
}

// chargeControl charges for a WebSocket control frame. It runs inside a read, so it cannot
// call fail, which waits for reads.
func (s *session) chargeControl() bool {
	err := s.charge()
	if err != nil {
		s.controlErr = err
		_ = s.conn.Close()
	}
	return err == nil
}

// nuisance is a token bucket.
type nuisance struct {
	mu   sync.Mutex
	left float64
	at   time.Time
}

func (n *nuisance) take(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.at.IsZero() {
		n.left = min(nuisanceBurst, n.left+now.Sub(n.at).Seconds()*nuisanceRate)
	}
	n.at = now
	if n.left < 1 {
		return false
	}
	n.left--
	return true
}
