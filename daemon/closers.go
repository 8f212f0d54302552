package daemon

import (
	"errors"
	"fmt"
	"sync"
)

// closers close what was opened, in reverse, once.
type closers struct {
	mu  sync.Mutex
	all []closer
}

type closer struct {
	what  string
	close func() error
}

func (c *closers) add(what string, f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, closer{what, f})
}

func (c *closers) close() error {
	c.mu.Lock()
	all := c.all
	c.all = nil
	c.mu.Unlock()
	var failed []error
	for i := len(all) - 1; i >= 0; i-- {
		if err := all[i].close(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", all[i].what, err))
		}
	}
	return errors.Join(failed...)
}
