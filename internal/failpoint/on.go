//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// Enabled tells whether this build has failpoints.
const Enabled = true

var (
	mu     sync.Mutex
	points = map[string]*point{}
	active atomic.Int32 // len(points), so that Inject costs nothing while none is set
)

func init() {
	for entry := range strings.SplitSeq(os.Getenv(EnvVar), ";") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, terms, _ := strings.Cut(entry, "=")
		if _, err := Enable(name, terms); err != nil {
			panic(err) // a fault test that sets no fault would pass for the wrong reason
		}
	}
}

// Enable sets a point; the returned function turns it off again.
func Enable(name, terms string) (disable func(), err error) {
	p, err := parse(terms)
	if err != nil {
		return nil, fmt.Errorf("failpoint %q: %w", name, err)
	}
	mu.Lock()
	defer mu.Unlock()
	points[name] = p
	active.Store(int32(len(points)))
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if points[name] == p {
			delete(points, name)
			active.Store(int32(len(points)))
		}
	}, nil
}

// Inject acts as the point's terms say; it returns an error only for action error.
func Inject(name string) error {
	if active.Load() == 0 {
		return nil
	}
	mu.Lock()
	p := points[name]
	var t term
	if p != nil {
		t = p.next()
	}
	mu.Unlock()
	return t.act(name)
}
