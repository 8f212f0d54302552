package containerd

import (
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// insideBundle is where a bundle is inside a sandbox.
const insideBundle = "/nix"

// bundleArgs tell the runtime of a bundle: to front its server, or to run its interpreter.
func bundleArgs(b *providers.Bundle) []string {
	switch {
	case b == nil:
		return nil
	case b.Server:
		return []string{"--front"}
	}
	return []string{"--python", b.Python}
}

// checkBundle refuses what a bundle's own server does not do.
func checkBundle(spec providers.Spec) error {
	if spec.Bundle == nil || !spec.Bundle.Server {
		return nil
	}
	refused := func(field string) error {
		return errs.New(errs.FailedPrecondition, errs.Unsupported, "the bundle brings its own runtime server, which knows no %s; leave it unset", field)
	}
	switch {
	case spec.Project != nil:
		return refused("sandbox.project")
	case spec.Workers > 1:
		return refused("sandbox.workers")
	}
	return nil
}
