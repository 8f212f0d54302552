package process

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

// record is what another daemon process must know to find a runtime again. A pid alone
// names another process after a while; with start time and boot it does not.
type record struct {
	PID       int         `json:"pid"` // 0 = never started
	StartTime uint64      `json:"start_time"`
	Boot      string      `json:"boot"`
	Exit      *exitRecord `json:"exit,omitempty"`
}

type exitRecord struct {
	Reason providers.ExitReason `json:"reason"`
	Code   int                  `json:"code"`
}

const recordFile = "record.json"

// readRecord returns the zero record for a sandbox that never got one.
func readRecord(dir string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if os.IsNotExist(err) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read record: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("read record in %s: %w", dir, err)
	}
	return r, nil
}

// write replaces the record in one step.
func (r record) write(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	path := filepath.Join(dir, recordFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// open returns a pidfd of the recorded process if it still is that process and runs.
func (r record) open() (pidfd int, ok bool) {
	if r.PID <= 0 || r.Exit != nil || r.Boot != bootID() {
		return -1, false
	}
	pidfd, err := unix.PidfdOpen(r.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return -1, false
	}
	// The pidfd pins the process, so what /proc says now is said of it or of nobody.
	st, err := readStat(r.PID)
	if err != nil || st.startTime != r.StartTime || st.state == 'Z' {
		_ = unix.Close(pidfd)
		return -1, false
	}
	return pidfd, true
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// procStat is the part of /proc/<pid>/stat that is used here.
type procStat struct {
	state     byte
	ppid      int
	session   int
	startTime uint64 // clock ticks since boot
}

func readStat(pid int) (procStat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return parseStat(string(data))
}

// parseStat reads from behind the command name, which may hold any byte, also ')'.
func parseStat(text string) (procStat, error) {
	_, rest, ok := strings.Cut(text[max(strings.LastIndexByte(text, ')'), 0):], " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 || len(fields[0]) != 1 {
		return procStat{}, fmt.Errorf("unknown form of process state: %q", text)
	}
	st := procStat{state: fields[0][0]}
	var err1, err2, err3 error
	st.ppid, err1 = strconv.Atoi(fields[1])
	st.session, err2 = strconv.Atoi(fields[3])
	st.startTime, err3 = strconv.ParseUint(fields[19], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return procStat{}, fmt.Errorf("unknown form of process state: %q", text)
	}
	return st, nil
}
