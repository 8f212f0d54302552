//go:build race

package pickle

// peakMiB is what the hostile corpus may take, and the race detector's own memory.
const peakMiB = 768

// slowdown is how much smaller the hostile corpus's bounds are: the race detector makes this
// package, which starts no goroutine, ten times slower.
const slowdown = 8
