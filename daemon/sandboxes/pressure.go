package sandboxes

import (
	"context"
	"fmt"
	"time"

	"github.com/agentixd/agentixd/providers"
)

const (
	defaultPressureInterval = 2 * time.Second  // between looks at how sandboxes fare with their limits
	pressurePause           = 10 * time.Second // between two events of one sandbox about one limit
)

// fare is what was seen and told of one sandbox.
type fare struct {
	told providers.Pressure   // counts up to which was told
	next map[string]time.Time // by limit, when it may be told again
}

// watchPressure looks at how the READY sandboxes fare with their limits and journals what
// they ran into, until ctx ends. What sandboxes made before began had run into by then was told.
func (m *Manager) watchPressure(ctx context.Context, began time.Time) {
	tick := time.NewTicker(m.opts.PressureInterval)
	defer tick.Stop()
	seen := map[*entry]*fare{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ready := m.readyHandles()
		for e := range seen {
			if _, still := ready[e]; !still {
				delete(seen, e)
			}
		}
		for e, box := range ready {
			now, err := box.Pressure(ctx)
			if err != nil {
				continue
			}
			f, known := seen[e]
			if !known {
				f = &fare{next: map[string]time.Time{}}
				seen[e] = f
				if box.made.Before(began) { // the daemon before has told
					f.told = now
				}
			}
			m.tellPressure(e, f, now)
		}
	}
}

// pressedBox is a READY sandbox that can tell its pressure.
type pressedBox struct {
	providers.Presser
	made time.Time
}

func (m *Manager) readyHandles() map[*entry]pressedBox {
	m.mu.Lock()
	defer m.mu.Unlock()
	ready := map[*entry]pressedBox{}
	for _, e := range m.entries {
		if p, ok := e.handle.(providers.Presser); ok && e.rec.Sandbox.State == Ready {
			ready[e] = pressedBox{p, e.rec.Sandbox.CreateTime}
		}
	}
	return ready
}

// tellPressure journals what has changed, each limit at most once in pressurePause.
func (m *Manager) tellPressure(e *entry, f *fare, now providers.Pressure) {
	m.mu.Lock()
	id, limits := e.rec.Sandbox.ID, e.rec.Sandbox.Resources
	m.mu.Unlock()
	at := m.opts.Clock.Now()
	tell := func(limit string, changed bool, format string, args ...any) bool {
		if !changed || at.Before(f.next[limit]) {
			return false
		}
		f.next[limit] = at.Add(pressurePause)
		message := fmt.Sprintf(format, args...)
		m.journal(id, Ready, LimitReached, message)
		m.log.Info("sandbox reached a limit", "sandbox", id, "limit", limit, "message", message)
		return true
	}
	if tell("memory_bytes", now.OOMKills > f.told.OOMKills, "memory: the limit of %d bytes was reached; %d processes were killed",
		limits.MemoryBytes, now.OOMKills-f.told.OOMKills) {
		f.told.OOMKills = now.OOMKills
	}
	if tell("pids", now.PIDsRefused > f.told.PIDsRefused, "processes: the limit of %d was reached; %d more were refused",
		limits.PIDs, now.PIDsRefused-f.told.PIDsRefused) {
		f.told.PIDsRefused = now.PIDsRefused
	}
	if tell("disk_bytes", now.DiskFull && !f.told.DiskFull, "disk: the limit of %d bytes was reached", limits.DiskBytes) || !now.DiskFull {
		f.told.DiskFull = now.DiskFull
	}
	if tell("socket", now.SocketFull && !f.told.SocketFull, "socket directory: it is full") || !now.SocketFull {
		f.told.SocketFull = now.SocketFull
	}
}
