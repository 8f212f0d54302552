package faulttest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Run is one run of a function, as it told itself.
type Run struct {
	N       int
	Began   int64
	Printed bool // its first lines were written
	Ended   int64
	PID     int
}

// Runs reads the file in which functions tell that they run.
type Runs struct {
	mu   sync.Mutex
	file *os.File
	rest []byte
	byID map[string][]Run
	bad  []string
}

// OpenRuns makes the file, if it does not exist.
func OpenRuns(path string) (*Runs, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the file of runs: %w", err)
	}
	return &Runs{file: f, byID: map[string][]Run{}}, nil
}

// Close closes the file.
func (r *Runs) Close() error { return r.file.Close() }

// read takes what was written since; r.mu is held.
func (r *Runs) read() {
	data, err := io.ReadAll(r.file)
	if err != nil {
		r.bad = append(r.bad, err.Error())
	}
	r.rest = append(r.rest, data...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return
		}
		r.rest = rest
		r.take(string(line))
	}
}

func (r *Runs) take(line string) {
	f := strings.Fields(line)
	if len(f) != 5 {
		r.bad = append(r.bad, line)
		return
	}
	n, _ := strconv.Atoi(f[2])
	at, _ := strconv.ParseInt(f[3], 10, 64)
	pid, _ := strconv.Atoi(f[4])
	runs := r.byID[f[1]]
	if f[0] == "S" {
		r.byID[f[1]] = append(runs, Run{N: n, Began: at, PID: pid})
		return
	}
	for i := range runs {
		if runs[i].PID == pid && runs[i].Ended == 0 {
			if f[0] == "P" {
				runs[i].Printed = true
			} else {
				runs[i].Ended = at
			}
			return
		}
	}
	r.bad = append(r.bad, line)
}

// InFlight counts those of the calls that run now: begun and not ended.
func (r *Runs) InFlight(calls []Call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	n := 0
	for _, c := range calls {
		for _, run := range r.byID[c.ID] {
			if run.Ended == 0 {
				n++
				break
			}
		}
	}
	return n
}

// Of returns the runs of a call.
func (r *Runs) Of(id string) []Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	return append([]Run(nil), r.byID[id]...)
}

// All returns all runs by call, and lines that make no sense.
func (r *Runs) All() (byID map[string][]Run, bad []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	byID = map[string][]Run{}
	for id, runs := range r.byID {
		byID[id] = append([]Run(nil), runs...)
	}
	return byID, r.bad
}
