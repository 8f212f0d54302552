package providers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/agentixd/agentixd/internal/errs"
)

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidID reports whether id may be that of a sandbox.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// InvalidID is the error for an id that is not valid.
func InvalidID() error { return errs.Invalid("sandbox_id", "must match %s", idPattern) }

// EngineName is the name of a sandbox on an engine that wants other names than ours and is
// shared with other daemons: a readable part and a hash of instance and id.
func EngineName(instance, id string) string {
	sum := sha256.Sum256([]byte(instance + "/" + id))
	readable := strings.Join(strings.FieldsFunc(id, func(r rune) bool { return r == '-' }), "-")
	if len(readable) > 32 {
		readable = strings.TrimRight(readable[:32], "-")
	}
	return "agx-" + readable + "-" + hex.EncodeToString(sum[:8])
}

// IDLocks serialises what is done to each sandbox. The zero value is ready.
type IDLocks struct {
	mu    sync.Mutex
	locks map[string]*idLock
}

type idLock struct {
	held  chan struct{} // holds one token while locked
	users int
}

// Lock waits for the id; unlock frees it.
func (s *IDLocks) Lock(ctx context.Context, id string) (unlock func(), err error) {
	s.mu.Lock()
	if s.locks == nil {
		s.locks = map[string]*idLock{}
	}
	l, ok := s.locks[id]
	if !ok {
		l = &idLock{held: make(chan struct{}, 1)}
		s.locks[id] = l
	}
	l.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.locks, id)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("wait for another operation on sandbox %s: %w", id, context.Cause(ctx))
	}
}
