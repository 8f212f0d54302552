//go:build !mutant

package mutant

// Is is false in this build.
func Is(string) bool { return false }
