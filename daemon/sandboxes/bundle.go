package sandboxes

import (
	"regexp"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Bundles keeps bundles; *bundles.Store.
type Bundles interface {
	// Open opens one by its digest; the caller closes the descriptor. NotFound (BUNDLE_NOT_FOUND).
	Open(digest string) (*providers.Bundle, error)
}

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (r CreateRequest) validateBundle() error {
	if r.Bundle != "" && !digestPattern.MatchString(r.Bundle) {
		return errs.Invalid("sandbox.bundle", "must be bundles/{sha256} with 64 hexadecimal digits")
	}
	return nil
}

// openBundle opens the bundle of a sandbox that is being made; nil if it has none. The sandbox
// is among those that BundleUser knows already, so the bundle is not deleted from now on. The
// caller closes the descriptor.
func (m *Manager) openBundle(e *entry) (*providers.Bundle, error) {
	digest := e.rec.Sandbox.Bundle // only this operation changes it
	if digest == "" {
		return nil, nil
	}
	if m.opts.Bundles == nil {
		return nil, errs.New(errs.FailedPrecondition, errs.Unsupported, "this daemon keeps no bundles")
	}
	bundle, err := m.opts.Bundles.Open(digest)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.rec.Fronted = bundle.Server
	return bundle, nil
}

// BundleUser names what has the bundle, "sandbox" or "template", and which; empty if nothing has.
func (m *Manager) BundleUser(digest string) (kind, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, e := range m.entries {
		if e.rec.Sandbox.Bundle == digest {
			return "sandbox", id
		}
	}
	for id, p := range m.pools {
		if p.Sandbox.Bundle == digest {
			return "template", id
		}
	}
	return "", ""
}
