package process

import (
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	tail := "S 17 200 17 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 0 0"
	for name, text := range map[string]string{
		"plain": "200 (python3) " + tail, "hostile name": "200 (a) R 1 (b)) " + tail, "empty name": "200 () " + tail,
	} {
		got, err := parseStat(text)
		if want := (procStat{state: 'S', ppid: 17, session: 17, startTime: 987654}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	own, err := readStat(os.Getpid())
	if err != nil || own.ppid != os.Getppid() || own.startTime == 0 {
		t.Errorf("own = %+v, %v", own, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("1 (init) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 0 0")
	f.Add("")
	f.Add(")")
	f.Fuzz(func(t *testing.T, text string) {
		if st, err := parseStat(text); err == nil && st.state == 0 {
			t.Errorf("%q: accepted without a state", text)
		}
	})
}

// TestMembersSparesOthers: a record of a runtime that ended long ago names nobody.
func TestMembersSparesOthers(t *testing.T) {
	for name, rec := range map[string]record{
		"none": {}, "other start": {PID: os.Getppid(), StartTime: 1, Boot: bootID()}, "other boot": {PID: os.Getppid(), Boot: "x"},
	} {
		if pids := members(rec, t.TempDir()); len(pids) != 0 {
			t.Errorf("%s: %v", name, pids)
		}
	}
}
