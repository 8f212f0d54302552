package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

const writer = `
import os, sys
def pad(n, size):
    for i in range(n):
        sys.stdout.write(("%d " % i).ljust(size, ".") + "\n")
    return n
`

func TestR6_OverflowWithoutDaemonIsOneCountedGap(t *testing.T) {
	s := start(t, map[string]string{"writer": writer}, nil)
	d := s.connect(nil, nil)
	d.run("warm", "writer::pad", `[[10, 20], {}]`)
	d.client.Close()
	status, _ := s.post(t, map[string]any{"call_id": "flood", "callable": "writer::pad", "arguments": pickled(2000, 60_000)}, "wait=60") // 120 MB
	if status != 200 {
		t.Fatalf("status %d", status)
	}
	next := s.connect(d, nil)
	next.run("after", "writer::pad", `[[1, 20], {}]`)
	next.check()
	next.mu.Lock()
	defer next.mu.Unlock()
	if len(next.gaps) != 1 || next.gaps[0] == 0 {
		t.Errorf("gaps: %v, want one", next.gaps)
	}
	bytes := 0
	for _, r := range next.records {
		bytes += len(r.Bytes)
	}
	if bytes > wire.MaxStreamBytes+1<<20 || bytes < wire.MaxStreamBytes/2 {
		t.Errorf("%d bytes were kept, the limit is %d", bytes, wire.MaxStreamBytes)
	}
}

func TestR6_ReconnectLeavesNoHoleAndNothingTwice(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, nil)
	const n = 50_000
	d.call("c1", "app::flood", fmt.Sprintf(`[[%d], {}]`, n))
	for range 10 { // the connection is cut again and again while it prints
		seen := func() int { d.mu.Lock(); defer d.mu.Unlock(); return len(d.records) }
		before := seen()
		await.True(t, func() bool { return seen() > before || d.hasOutcome("c1") }, "more records")
		d.client.Close()
		d = s.connect(d, nil)
		d.client.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"c1"}, Fence: true, Epoch: 1})
	}
	if got := d.value("c1"); got != fmt.Sprint(n) {
		t.Errorf("got %s", got)
	}
	d.check()
	lines := strings.Split(strings.TrimSuffix(d.output("stdout", d.place("c1")), "\n"), "\n")
	if len(lines) != n || len(d.gaps) > 0 {
		t.Fatalf("got %d lines, want %d; gaps %v", len(lines), n, d.gaps)
	}
	for i, line := range lines {
		if line != fmt.Sprint(i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}

func TestWindowHoldsTheSandboxBack(t *testing.T) {
	s := start(t, map[string]string{"writer": writer}, nil)
	d := s.connect(nil, func(d *daemon, _ *wire.Auth) { d.noAck = true })
	d.call("c1", "writer::pad", `[[1000, 60000], {}]`) // 60 MB, nothing is acked
	sent := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		n := 0
		for _, r := range d.records {
			n += len(r.Bytes)
		}
		return n
	}
	await.True(t, func() bool { return sent() > wire.StreamWindowBytes-wire.MaxBatchBytes }, "the window to fill")
	if n := sent(); n > wire.StreamWindowBytes+wire.MaxBatchBytes {
		t.Errorf("%d bytes were sent unacked", n)
	}
	if d.hasOutcome("c1") {
		t.Error("the sandbox was not held back")
	}
	d.client.Close() // and goes on once nobody is there
	next := s.connect(d, nil)
	next.client.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"c1"}, Fence: true, Epoch: 1})
	if got := next.value("c1"); got != "1000" {
		t.Errorf("got %s", got)
	}
	next.check()
}

func TestNewerDaemonTakesOver(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	old := s.connect(nil, nil)
	old.run("c1", "app::run", `[["a"], {}]`)
	next := s.connect(old, func(_ *daemon, a *wire.Auth) { a.Epoch = 2 })
	next.client.Emit(wire.NamespaceRPC, wire.EventResume, wire.Resume{CallIDs: []string{"late"}, Fence: true, Epoch: 2})
	if _, e := next.outcome("late"); e == nil || e.Type != wire.ErrResultUnavailable {
		t.Errorf("got %+v", e)
	}
	await.True(t, func() bool { return old.client.Err() != nil }, "the older session to be closed")
	next.call("late", "app::run", `[["a"], {}]`)
	await.True(t, func() bool {
		next.mu.Lock()
		defer next.mu.Unlock()
		return next.failures["late"].Type == wire.ErrFenced
	}, "the late call to be refused")
	if got := next.run("c2", "app::run", `[["b"], {}]`); got != `{"output":"B"}` {
		t.Errorf("got %s", got)
	}
}

func TestR2_CallSentTwiceRunsOnce(t *testing.T) {
	s := start(t, map[string]string{"count": "n = 0\ndef up():\n    global n\n    n += 1\n    return n\n"}, nil)
	d := s.connect(nil, nil)
	for range 3 {
		d.call("c1", "count::up", `[[], {}]`)
	}
	if got := d.value("c1"); got != "1" {
		t.Errorf("got %s", got)
	}
	for range 3 { // its result may be acked by now
		d.call("c1", "count::up", `[[], {}]`)
	}
	if got := d.run("c2", "count::up", `[[], {}]`); got != "2" {
		t.Errorf("after one call sent six times and another, the count is %s", got)
	}
}

func (d *daemon) hasOutcome(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outcomes[id] > 0
}

const forger = `
import gc, os
def forge():
    writers = [o for o in gc.get_objects() if type(o).__name__ == "TaggedWriter"]
    found = {v for o in writers for v in vars(o).values() if isinstance(v, bytes) and len(v) == 16}
    for m in found:
        for call_id in (b"\xff\xfe", b"A\x00\n", b"i" * 255, b"other"):
            os.write(1, m + bytes([len(call_id)]) + call_id + (6).to_bytes(2, "little") + b"forged")
    return len(found)
`

func TestR10_ForgedCallIDsCostNoRecord(t *testing.T) {
	s := start(t, map[string]string{"forger": forger}, nil)
	d := s.connect(nil, nil)
	if got := d.run("c1", "forger::forge", `[[], {}]`); got != "1" {
		t.Fatalf("%s markers were found, want 1", got)
	}
	d.check()
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for _, r := range d.records {
		if r.Kind == wire.RecordOutput {
			ids = append(ids, r.CallID+strings.ReplaceAll(string(r.Bytes), "forged", ":"))
		}
	}
	// What is no id of a daemon is output without one.
	if got, want := strings.Join(ids, ""), ":::other:"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
