package dispatch

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

// doubt is a call that was sent while nobody can know whether it arrived.
func (b *box) doubt(path string) <-chan answer {
	done := make(chan answer, 1)
	go func() { // ends with the call, which the test ends
		o, err := b.remote(b.t.Context(), Request{CallID: "doubt", Callable: "app::tick", Args: text([]any{path, 3})})
		done <- answer{o, err}
	}()
	return done
}

func (b *box) awaitHeld(f *forwarded) {
	await.True(b.t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.held) > 100 }, "the call to be held back")
}

// The call left the daemon and did not reach the runtime: after the reconnect the runtime
// says so and gets it once more, and when the first one does arrive after all, it does not run.
func TestR2_LateCallNeverRunsTwice(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(t.TempDir(), "ran")
	f := b.cutter.newest()
	f.mu.Lock()
	f.holdUp = true
	f.mu.Unlock()
	done := b.doubt(path)
	b.awaitHeld(f)
	_ = f.in.Close() // the daemon's side breaks; the runtime's stays open
	a := <-done
	if a.err != nil || a.outcome.Error != nil || string(a.outcome.Value) != "3" {
		t.Fatalf("got %+v, %+v, %v", a.outcome, a.outcome.Error, a.err)
	}
	b.arriveLate(f)
	if ran, err := os.ReadFile(path); err != nil || string(ran) != "ran\n" {
		t.Errorf("ran %q, %v", ran, err)
	}
	expectLines(t, "doubt", b.printed(filepath.Dir(path))[path], 3)
}

// The same over a restart of the daemon, which has no call any more that it could send: its
// outcome says that it did not run, and the late one is refused.
func TestR2_LateCallOfADeadDaemonNeverRuns(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(t.TempDir(), "ran")
	f := b.cutter.newest()
	f.mu.Lock()
	f.holdUp = true
	f.mu.Unlock()
	done := b.doubt(path)
	b.awaitHeld(f)
	b.stop()
	if a := <-done; a.err == nil {
		t.Fatalf("got %+v", a.outcome)
	}
	b.open()
	a := <-b.doubt(path)
	if a.err != nil || a.outcome.Error == nil || a.outcome.Error.Type != wire.ErrResultUnavailable {
		t.Fatalf("got %+v, %v", a.outcome, a.err)
	}
	b.arriveLate(f)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the late call ran: %v", err)
	}
}

// arriveLate lets through what was held back.
func (b *box) arriveLate(f *forwarded) {
	t := b.t
	f.mu.Lock()
	_, err := f.out.Write(f.held)
	f.mu.Unlock()
	if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "broken pipe") {
		t.Fatalf("late bytes: %v", err)
	}
	for n := range 20 { // other calls show that time has passed in the runtime
		if got := b.value(Request{Callable: "app::typed", Args: text([]int{n})}); got != text(n) {
			t.Errorf("got %s, want %d", got, n)
		}
	}
	_ = f.out.Close()
}

// The call ran and its result was lost on the way: after the reconnect it is told.
func TestR1_LostResultIsToldAgain(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(t.TempDir(), "ran")
	f := b.cutter.newest()
	f.mu.Lock()
	f.loseDown = true
	f.mu.Unlock()
	done := b.doubt(path)
	await.True(t, func() bool { _, err := os.Stat(path); return err == nil }, "the call to run")
	timer := time.AfterFunc(100*time.Millisecond, func() { _ = f.in.Close() }) // the result is lost by then, or is not made yet
	defer timer.Stop()
	a := <-done
	if a.err != nil || a.outcome.Error != nil || string(a.outcome.Value) != "3" {
		t.Fatalf("got %+v, %+v, %v", a.outcome, a.outcome.Error, a.err)
	}
	if ran, err := os.ReadFile(path); err != nil || string(ran) != "ran\n" {
		t.Errorf("ran %q, %v", ran, err)
	}
	expectLines(t, "doubt", b.printed(filepath.Dir(path))[path], 3)
}

// The runtime is killed under a call: whoever watches the sandbox tells, and all waiters
// hear the same.
func TestR3_RuntimeKilled(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(t.TempDir(), "seen")
	done := make(chan answer, 1)
	go func() { // ends with the call
		o, err := b.remote(t.Context(), Request{CallID: "c", Callable: "app::until_cancelled", Args: text([]string{path})})
		done <- answer{o, err}
	}()
	await.True(t, func() bool { _, err := os.Stat(path + ".began"); return err == nil }, "the call to run")
	if err := b.process.Kill(); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return !b.link.Connected() }, "the link to end")
	b.d.SandboxLost("box", "EXITED", "the runtime was killed")
	a := <-done
	if a.err != nil || a.outcome.Error == nil || a.outcome.Error.Type != wire.ErrSandboxLost || a.outcome.Error.Cause != "EXITED" {
		t.Errorf("got %+v, %v", a.outcome, a.err)
	}
	var ends int
	for _, e := range b.events(events.Query{CallID: "c", Kinds: []events.Kind{events.KindCall}}) {
		if body, ok := e.Body.(*events.Call); ok && body.Phase == events.CallFinished {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d terminal events", ends)
	}
}
