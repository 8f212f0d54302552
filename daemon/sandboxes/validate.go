package sandboxes

import (
	"crypto/rand"
	"encoding/base32"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Limits of a create request.
const (
	maxRequestIDBytes  = 128
	maxImageBytes      = 255
	maxLabels          = 64
	maxLabelValueBytes = 256
	maxEnv             = 256     // variables
	maxEnvBytes        = 65536   // 64 KiB: names and values together
	maxPathBytes       = 4096    // Linux's PATH_MAX
	maxCPUs            = 1024    // processors
	minMemoryBytes     = 1 << 24 // 16 MiB: less does not hold a runtime
	maxMemoryBytes     = 1 << 50 // 1 PiB
	minPIDs            = 16      // a runtime's and a worker's threads
	maxPIDs            = 1 << 22 // Linux's own maximum
	minOpenFiles       = 64      // a runtime's and a worker's
	maxOpenFiles       = 1 << 30 // Linux's own maximum
	minDiskBytes       = 1 << 24 // 16 MiB
	maxDiskBytes       = 1 << 44 // 16 TiB, ext4's own maximum
)

var (
	idPattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	labelPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._/-]{0,62}$`)
	envPattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)
	imagePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)
)

// runtimeHandlers are the values of security.runtime_handler.
var runtimeHandlers = []string{"runc", "runsc"}

// newID is a random id: 16 letters and digits, 80 bits.
func newID() string {
	b := make([]byte, 10)
	_, _ = rand.Read(b) // never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

func (r CreateRequest) validate() error {
	if r.ID != "" && !idPattern.MatchString(r.ID) {
		return errs.Invalid("sandbox_id", "must match %s", idPattern)
	}
	if len(r.RequestID) > maxRequestIDBytes || !utf8.ValidString(r.RequestID) {
		return errs.Invalid("request_id", "must be at most %d bytes of UTF-8", maxRequestIDBytes)
	}
	if r.Image != "" && (len(r.Image) > maxImageBytes || !imagePattern.MatchString(r.Image)) {
		return errs.Invalid("sandbox.image", "must be at most %d bytes and match %s", maxImageBytes, imagePattern)
	}
	if r.Workers < 0 || r.Workers > wire.MaxWorkers {
		return errs.Invalid("sandbox.workers", "must be 0 (default) or from 1 to %d", wire.MaxWorkers)
	}
	if err := r.validateBundle(); err != nil {
		return err
	}
	if err := validateLabels(r.Labels); err != nil {
		return err
	}
	if err := validateEnv(r.Env); err != nil {
		return err
	}
	if _, err := r.Network.Egress(); err != nil {
		return err //nolint:wrapcheck // Of package errs, for clients.
	}
	if r.Security.RuntimeHandler != "" && !slices.Contains(runtimeHandlers, r.Security.RuntimeHandler) {
		return errs.Invalid("sandbox.security.runtime_handler", "must be empty or one of %s", strings.Join(runtimeHandlers, ", "))
	}
	return validateResources(r.Resources)
}

func validateLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return errs.Invalid("sandbox.labels", "%d labels; at most %d are allowed", len(labels), maxLabels)
	}
	for k, v := range labels {
		if !labelPattern.MatchString(k) {
			return errs.Invalid("sandbox.labels", "key %.80q must match %s", k, labelPattern)
		}
		if len(v) > maxLabelValueBytes || !utf8.ValidString(v) {
			return errs.Invalid("sandbox.labels", "value of %s must be at most %d bytes of UTF-8", k, maxLabelValueBytes)
		}
	}
	return nil
}

func validateEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return errs.Invalid("sandbox.env", "%d variables; at most %d are allowed", len(env), maxEnv)
	}
	size := 0
	for k, v := range env {
		size += len(k) + len(v)
		switch {
		case !envPattern.MatchString(k):
			return errs.Invalid("sandbox.env", "name %.80q must match %s", k, envPattern)
		case strings.HasPrefix(k, "AGENTIX_"):
			return errs.Invalid("sandbox.env", "%s: names beginning with AGENTIX_ are reserved", k)
		case strings.ContainsRune(v, 0) || !utf8.ValidString(v):
			return errs.Invalid("sandbox.env", "value of %s must be UTF-8 without NUL", k)
		}
	}
	if size > maxEnvBytes {
		return errs.Invalid("sandbox.env", "%d bytes of names and values; at most %d are allowed", size, maxEnvBytes)
	}
	return nil
}

func validateResources(l providers.Limits) error {
	switch {
	case math.IsNaN(l.CPUs) || l.CPUs < 0 || l.CPUs > maxCPUs || l.CPUs != 0 && l.CPUs < 0.01:
		return errs.Invalid("sandbox.resources.cpus", "must be 0 (default) or from 0.01 to %d", maxCPUs)
	case l.MemoryBytes != 0 && (l.MemoryBytes < minMemoryBytes || l.MemoryBytes > maxMemoryBytes):
		return errs.Invalid("sandbox.resources.memory_bytes", "must be 0 (default) or from %d to %d", minMemoryBytes, int64(maxMemoryBytes))
	case l.PIDs != 0 && (l.PIDs < minPIDs || l.PIDs > maxPIDs):
		return errs.Invalid("sandbox.resources.pids", "must be 0 (default) or from %d to %d", minPIDs, maxPIDs)
	case l.OpenFiles != 0 && (l.OpenFiles < minOpenFiles || l.OpenFiles > maxOpenFiles):
		return errs.Invalid("sandbox.resources.open_files", "must be 0 (default) or from %d to %d", minOpenFiles, maxOpenFiles)
	case l.DiskBytes != 0 && (l.DiskBytes < minDiskBytes || l.DiskBytes > maxDiskBytes):
		return errs.Invalid("sandbox.resources.disk_bytes", "must be 0 (default) or from %d to %d", minDiskBytes, int64(maxDiskBytes))
	}
	return nil
}

// effective fills unset limits with the daemon's defaults, where the provider enforces limits.
func (m *Manager) effective(engine providers.Provider, l providers.Limits) providers.Limits {
	if _, enforces := engine.(providers.Limiter); !enforces {
		return l
	}
	if l.CPUs == 0 {
		l.CPUs = m.opts.Limits.CPUs
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = m.opts.Limits.MemoryBytes
	}
	if l.PIDs == 0 {
		l.PIDs = m.opts.Limits.PIDs
	}
	if l.OpenFiles == 0 {
		l.OpenFiles = m.opts.Limits.OpenFiles
	}
	if l.DiskBytes == 0 {
		l.DiskBytes = m.opts.Limits.DiskBytes
	}
	return l
}
