//go:build !race

package pickle

const (
	slowdown = 1
	peakMiB  = 256 // of which the corpus itself and the test take about 50
)
