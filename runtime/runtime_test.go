package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

const app = `
import asyncio, logging, os, signal, subprocess, sys
def run(input): return {"output": input.upper()}
def pid(): return os.getpid()
def last_words(text, how):
    sys.stdout.write(text + "\n")
    if how == "exit": os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL)
def everything(n):
    for i in range(n):
        print("printed", i)
        subprocess.run([sys.executable, "-S", "-c", f"print('child {i}')"])
        logging.getLogger("app").warning("logged %d", i)
        print("error", i, file=sys.stderr)
    return n
def flood(n, path=None, pad=0):
    for i in range(n):
        print(str(i).ljust(pad, "."))
        if path and i % 1000 == 0:
            with open(path, "w") as f: f.write(str(i))
    return n
async def forever(path):
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        open(path, "w").write("cancelled")
        raise
def fail(): raise ValueError("no good")
`

func TestCallReturns(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, nil)
	if got := d.run("c1", "app::run", `[[], {"input": "hello"}]`); got != `{"output":"HELLO"}` {
		t.Errorf("got %s", got)
	}
	d.call("c2", "app::fail", `[[], {}]`)
	if _, e := d.outcome("c2"); e == nil || e.Type != "ValueError" || e.Message != "no good" || e.Traceback == nil || !strings.Contains(*e.Traceback, "in fail") {
		t.Errorf("got %+v", e)
	}
	d.check()
}

func TestR6_EverythingWrittenComesOnceInOrderBeforeTheResult(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, nil)
	const n = 20
	d.run("c1", "app::everything", fmt.Sprintf(`[[%d], {}]`, n))
	var want, wantErr, logged strings.Builder
	for i := range n {
		fmt.Fprintf(&want, "printed %d\nchild %d\n", i, i)
		fmt.Fprintf(&wantErr, "error %d\n", i)
	}
	at := d.place("c1")
	if got := d.output("stdout", at); got != want.String() {
		t.Errorf("stdout before the result: got %q", got)
	}
	if got := d.output("stderr", at); got != wantErr.String() {
		t.Errorf("stderr before the result: got %q", got)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.records[:at] {
		var data struct {
			Message string `msgpack:"message"`
		}
		switch r.Kind {
		case wire.RecordLog:
			if err := wire.Unmarshal(r.Data, &data); err != nil {
				t.Fatal(err)
			}
			if r.CallID != "c1" {
				t.Errorf("log record of call %q", r.CallID)
			}
			fmt.Fprintln(&logged, data.Message)
		case wire.RecordOutput:
			text := string(r.Bytes) // what is left of a child's line may be its newline alone
			if mine := strings.Contains(text, "printed") || strings.Contains(text, "error"); mine != (r.CallID == "c1") {
				t.Errorf("output %q of call %q", text, r.CallID)
			}
		}
	}
	for i := range n {
		if strings.Count(logged.String(), fmt.Sprintf("logged %d\n", i)) != 1 {
			t.Errorf("log record %d came not once:\n%s", i, logged.String())
		}
	}
}

func TestR6_LastWordsArrive200Of200(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, nil)
	for i := range 200 {
		how := []string{"exit", "kill"}[i%2]
		id, text := fmt.Sprintf("c%d", i), fmt.Sprintf("the last words of %d", i)
		d.call(id, "app::last_words", fmt.Sprintf(`[[%q, %q], {}]`, text, how))
		_, e := d.outcome(id)
		code, cause := 1, wire.CauseExit
		if how == "kill" {
			code, cause = -9, wire.CauseSignal
		}
		if e == nil || e.Type != wire.ErrWorkerDied || e.Returncode == nil || *e.Returncode != code || e.Cause != cause {
			t.Fatalf("call %d: got %+v", i, e)
		}
		if out := d.output("stdout", d.place(id)); !strings.HasSuffix(out, text+"\n") {
			t.Fatalf("call %d (%s): its last line did not come before its end; got %q", i, how, out[max(0, len(out)-80):])
		}
	}
	d.check()
}

func TestR3_KilledWorkerEndsItsCallsAndTheNextOneWorks(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, nil)
	d.call("waits", "app::forever", `[["/dev/null"], {}]`)
	d.call("dies", "app::last_words", `[["bye", "kill"], {}]`)
	for _, id := range []string{"waits", "dies"} {
		_, e := d.outcome(id)
		if e == nil || e.Type != wire.ErrWorkerDied || *e.Returncode != -9 ||
			e.Message != "runtime worker exited: killed by signal 9 (likely OOM-killed)" {
			t.Errorf("%s: got %+v", id, e)
		}
	}
	if got := d.run("next", "app::run", `[["a"], {}]`); got != `{"output":"A"}` {
		t.Errorf("got %s", got)
	}
	d.check()
}

func TestR3_CancelAndDeadlineReachTheFunction(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, nil)
	d.run("warm", "app::run", `[["a"], {}]`)
	dir := t.TempDir()
	d.call("c", "app::forever", fmt.Sprintf(`[["%s/c"], {}]`, dir))
	d.client.Emit(wire.NamespaceRPC, wire.EventCancel, wire.CallRef{CallID: "c"})
	if _, e := d.outcome("c"); e == nil || e.Type != wire.ErrCancelled || !e.Cancelled {
		t.Errorf("got %+v", e)
	}
	d.send(wire.Call{CallID: "d", Callable: "app::forever", Arguments: fmt.Appendf(nil, `[["%s/d"], {}]`, dir), Encoding: wire.EncodingJSON, TimeoutMS: 50})
	began := time.Now()
	if _, e := d.outcome("d"); e == nil || e.Type != wire.ErrDeadlineExceeded {
		t.Errorf("got %+v", e)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the deadline took %s", took)
	}
	await.True(t, func() bool { return fileExists(dir + "/d") }, "the function to see its cancellation")
	d.run("after", "app::run", `[["a"], {}]`)
	d.check()
}

// TestR6_FloodWithSlowDaemonLosesNothing acks nothing until the sandbox stands still, with
// all buffers full, and then goes on slowly.
func TestR6_FloodWithSlowDaemonLosesNothing(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	d := s.connect(nil, func(d *daemon, _ *wire.Auth) { d.noAck = true })
	const n, pad = 200_000, 400 // 80 MB
	progress := filepath.Join(t.TempDir(), "progress")
	d.call("c1", "app::flood", fmt.Sprintf(`[[%d, %q, %d], {}]`, n, progress, pad))
	last, since := "", time.Now()
	await.True(t, func() bool {
		b, err := os.ReadFile(progress)
		if err != nil || string(b) != last || string(b) == "" {
			last, since = string(b), time.Now()
		}
		return time.Since(since) > time.Second
	}, "the sandbox to be held back")
	if d.hasOutcome("c1") {
		t.Fatal("the sandbox was not held back")
	}
	acked := uint64(0)
	await.True(t, func() bool { // acks late: one step each time it is asked
		d.mu.Lock()
		cursor, sid := d.cursor, d.sid
		_, ok := d.results["c1"]
		d.mu.Unlock()
		if cursor > acked {
			acked = cursor
			d.client.Emit(wire.NamespaceLog, wire.EventStreamAck, wire.StreamAck{Sid: sid, Seq: acked})
		}
		return ok
	}, "the flood to end")
	lines := strings.Split(strings.TrimSuffix(d.output("stdout", d.place("c1")), "\n"), "\n")
	if len(lines) != n || len(d.gaps) > 0 {
		t.Fatalf("got %d lines, want %d; gaps %v", len(lines), n, d.gaps)
	}
	for i, line := range lines {
		if len(line) != pad || strings.TrimRight(line, ".") != fmt.Sprint(i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	d.check()
}
