// Package mutant plants faults in builds with the tag mutant, so that the fault tests can
// show that they would catch them. In every other build Is is constant and costs nothing.
package mutant

// EnvVar names the fault of a process in a build with the tag mutant.
const EnvVar = "AGENTIX_MUTANT"

// The faults.
const (
	DoubleSend       = "double-send"       // the runtime gives each call to its worker twice, a moment apart
	SkippedTombstone = "skipped-tombstone" // the runtime answers a resume for unknown ids and still runs their calls later
	DroppedTail      = "dropped-tail"      // the journal tells that events are committed and writes them with the next ones
	SkippedDedupe    = "skipped-dedupe"    // the daemon sends a call by an id that an earlier daemon finished
)

// Names lists them.
var Names = []string{DoubleSend, SkippedTombstone, DroppedTail, SkippedDedupe}
