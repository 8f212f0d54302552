package sandboxes

// Stats is how it stands with all sandboxes.
type Stats struct {
	States map[State]int   // of clients' sandboxes; every state is there
	Queued int             // creates that wait for their turn
	Pools  map[string]Pool // by template
}

// Pool is how it stands with one pool.
type Pool struct {
	Ready, Starting, Size int
	Hits, Misses          uint64 // since the daemon started
	Failures              int    // starts in a row
}

// Stats counts.
func (m *Manager) Stats() Stats {
	s := Stats{States: map[State]int{}, Queued: m.starts.waiting(), Pools: map[string]Pool{}}
	for _, state := range states {
		if state != Stopped { // one of those is not there any more
			s.States[state] = 0
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if !e.hidden {
			s.States[e.rec.Sandbox.State]++
		}
	}
	for id, p := range m.pools {
		t := p.shown()
		s.Pools[id] = Pool{Ready: t.Ready, Starting: t.Starting, Size: t.Size, Hits: t.Hits, Misses: t.Misses, Failures: p.failures}
	}
	return s
}
