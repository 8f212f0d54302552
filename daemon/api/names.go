package api

import (
	"regexp"
	"strings"

	"github.com/agentixd/agentixd/internal/errs"
)

const (
	sandboxPrefix = "sandboxes/"
	bundlePrefix  = "bundles/"
)

var sandboxID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

var callID = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

const templatePrefix = "templates/"

// parseTemplate returns the id in the resource name of a template.
func parseTemplate(field, name string) (string, error) {
	id, ok := strings.CutPrefix(name, templatePrefix)
	if !ok || !sandboxID.MatchString(id) {
		return "", errs.Invalid(field, "must be templates/{id} with an id that matches [a-z0-9]([a-z0-9-]{0,62})")
	}
	return id, nil
}

// sandboxName is the resource name of a sandbox.
func sandboxName(id string) string { return sandboxPrefix + id }

var bundleID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// parseBundle returns the digest in a resource name that came in a field.
func parseBundle(field, name string) (string, error) {
	digest, ok := strings.CutPrefix(name, bundlePrefix)
	if !ok || !bundleID.MatchString(digest) {
		return "", errs.Invalid(field, "must be bundles/{sha256} with 64 hexadecimal digits")
	}
	return digest, nil
}

// parseSandbox returns the id in a resource name that came in a field.
func parseSandbox(field, name string) (string, error) {
	id, ok := strings.CutPrefix(name, sandboxPrefix)
	if !ok || !sandboxID.MatchString(id) {
		return "", errs.Invalid(field, "must be sandboxes/{id} with an id that matches [a-z0-9]([a-z0-9-]{0,62})")
	}
	return id, nil
}
