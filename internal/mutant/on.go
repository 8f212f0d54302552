//go:build mutant

package mutant

import "os"

var planted = os.Getenv(EnvVar)

// Is tells whether the process has this fault.
func Is(name string) bool { return planted == name }
