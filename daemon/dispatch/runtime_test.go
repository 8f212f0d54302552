package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/events"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

func TestRuntimeValues(t *testing.T) {
	b := newBox(t)
	if got := b.value(Request{Callable: "app::run", Kwargs: `{"input": "hello"}`}); got != `{"output":"HELLO"}` && got != `{"output": "HELLO"}` {
		t.Errorf("got %s", got)
	}
	got := strings.ReplaceAll(b.value(Request{Callable: "app::exact"}), " ", "")
	want := `[9007199254740993,1180591620717411303424,1,1.0,-0.0,1e+22,` + strings.Repeat("[", 199) + strings.Repeat("]", 199) + `]`
	if got != want {
		t.Errorf("got %s", got)
	}
	if got := b.value(Request{Callable: "app::long", Args: "[20000000]"}); len(got) != 20000002 {
		t.Errorf("long result has %d bytes", len(got))
	}
	packed, err := wire.Marshal([]any{[]any{}, map[string]any{"input": "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.remote(t.Context(), Request{Callable: "app::run", Encoding: wire.EncodingMsgpack, Arguments: packed})
	if err != nil || o.Error != nil || o.Encoding != wire.EncodingMsgpack || !bytes.Contains(o.Value, []byte("HELLO")) {
		t.Errorf("msgpack: %+v, %+v, %v", o, o.Error, err)
	}
}

func TestRuntimeOutcomes(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		callable, args, want string
		check                func(*wire.Error) bool
	}{
		{"app::fail", "", "ValueError", func(e *wire.Error) bool {
			return e.Message == "no such thing" && strings.Contains(*e.Traceback, "app.py")
		}},
		{"app::missing", "", "AttributeError", nil},
		{"nowhere::f", "", "ModuleNotFoundError", nil},
		{"app::unencodable", "", "ResultEncodeError", nil},
		{"app::leave", `["left"]`, "WorkerDied", func(e *wire.Error) bool { return *e.Returncode == 3 && e.Cause == wire.CauseExit }},
		{"app::die", `["died"]`, "WorkerDied", func(e *wire.Error) bool { return *e.Returncode == -9 && e.Cause == wire.CauseSignal }},
	} {
		o, err := b.remote(t.Context(), Request{Callable: c.callable, Args: c.args})
		if err != nil || o.Error == nil || o.Error.Type != c.want || (c.check != nil && !c.check(o.Error)) {
			t.Errorf("%s: %+v, %+v, %v", c.callable, o, o.Error, err)
		}
	}
	if got := b.value(Request{Callable: "app::typed", Args: "[1]"}); got != "1" {
		t.Errorf("the next call: %s", got)
	}
	_, err := b.remote(t.Context(), Request{Callable: "app::typed", Args: `["x"]`})
	if !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("wrong argument: %v", err)
	}
	var printed []string
	for _, e := range b.events(events.Query{Kinds: []events.Kind{events.KindOutput, events.KindCall}}) {
		switch body := e.Body.(type) {
		case *events.Output:
			printed = append(printed, strings.TrimSpace(string(body.Data)))
		case *events.Call:
			if body.ErrorType == wire.ErrWorkerDied {
				printed = append(printed, "end")
			}
		}
	}
	if !slices.Equal(printed, []string{"left", "end", "died", "end"}) {
		t.Errorf("last lines and their calls' ends: %q", printed)
	}
}

func TestRuntimeCancel(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		name string
		call func(path string) (Outcome, error)
	}{
		{"deadline of the caller", func(path string) (Outcome, error) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(errors.New("test over"))
			stop := b.cancelOnce(path+".began", func() { cancel(errors.New("caller left")) })
			defer stop()
			return b.remote(ctx, Request{Callable: "app::until_cancelled", Args: text([]string{path})})
		}},
		{"timeout", func(path string) (Outcome, error) {
			return b.remote(t.Context(), Request{Callable: "app::until_cancelled", Args: text([]string{path}), Timeout: 300 * time.Millisecond})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "seen")
			o, err := c.call(path)
			if err == nil && (o.Error == nil || o.Error.Type != wire.ErrDeadlineExceeded) || err != nil && !errs.Is(err, errs.Cancelled) {
				t.Errorf("got %+v, %v", o, err)
			}
			await.True(t, func() bool { data, err := os.ReadFile(path); return err == nil && string(data) == "cancelled" }, "the function to see its cancellation")
		})
	}
}

// cancelOnce calls f when path exists.
func (b *box) cancelOnce(path string, f func()) (stop func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		await.True(b.t, func() bool { _, err := os.Stat(path); return err == nil }, "the function to begin")
		f()
	})
	return wg.Wait
}

// R1, R2, R5: the link is cut again and again; each call has one outcome and ran at most
// once, each value is of a call that ran, and every printed line is in the journal once.
func TestR2_CutLink(t *testing.T) {
	b := newBox(t)
	const callers, rounds, lines = 8, 6, 400
	ctx, cancel := context.WithCancelCause(t.Context())
	var cuts sync.WaitGroup
	cuts.Go(func() {
		tick := time.NewTicker(70 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.cutter.cut(false)
			case <-ctx.Done():
				return
			}
		}
	})
	dir := t.TempDir()
	var mu sync.Mutex
	outcomes := map[string]Outcome{}
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for round := range rounds {
				id := fmt.Sprintf("c-%d-%d", caller, round)
				r := Request{CallID: id, Callable: "app::tick", Args: text([]any{filepath.Join(dir, id), lines})}
				for {
					o, err := b.remote(t.Context(), r)
					if errs.Is(err, errs.Unavailable) { // not accepted: the link was down
						continue
					}
					if err != nil {
						t.Errorf("%s: %v", id, err)
					}
					mu.Lock()
					outcomes[id] = o
					mu.Unlock()
					break
				}
			}
		})
	}
	wg.Wait()
	cancel(errors.New("done"))
	cuts.Wait()
	printed := b.printed(dir)
	returned := 0
	for id, o := range outcomes {
		path := filepath.Join(dir, id)
		ran, _ := os.ReadFile(path)
		times := bytes.Count(ran, []byte("\n"))
		switch {
		case o.Error == nil:
			returned++
			if times != 1 || string(o.Value) != fmt.Sprint(lines) {
				t.Errorf("%s returned %s and ran %d times", id, o.Value, times)
			}
		case o.Error.Type != wire.ErrResultUnavailable || times > 1:
			t.Errorf("%s: %+v, ran %d times", id, o.Error, times)
		}
		if times == 1 {
			expectLines(t, id, printed[path], lines)
		}
	}
	if len(outcomes) != callers*rounds || returned == 0 {
		t.Errorf("%d outcomes, %d returned", len(outcomes), returned)
	}
	session, err := b.link.WaitSession(t.Context(), 0)
	if err != nil || session < 3 {
		t.Errorf("the link was cut %d times only, %v", session, err)
	}
	t.Logf("%d calls, %d returned, %d connections", len(outcomes), returned, session)
}

// printed returns the numbers that each path printed, in the order of the journal.
func (b *box) printed(dir string) map[string][]string {
	var out strings.Builder
	for _, e := range b.events(events.Query{}) {
		switch body := e.Body.(type) {
		case *events.Output:
			out.Write(body.Data)
		case *events.Gap:
			b.t.Errorf("gap %+v", body)
		}
	}
	printed := map[string][]string{}
	for line := range strings.Lines(out.String()) {
		path, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(path, dir) {
			printed[path] = append(printed[path], number)
		}
	}
	return printed
}

func expectLines(t *testing.T, id string, got []string, n int) {
	t.Helper()
	for k := range n {
		if k >= len(got) || got[k] != fmt.Sprint(k) {
			t.Errorf("%s: line %d of %d is missing or doubled (%d lines)", id, k, n, len(got))
			return
		}
	}
	if len(got) != n {
		t.Errorf("%s: %d lines, want %d", id, len(got), n)
	}
}

// R8: a daemon that restarts goes on with the calls that run.
func TestR8_RestartedDaemonResumes(t *testing.T) {
	b := newBox(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	r := Request{CallID: "long", Callable: "app::tick", Args: text([]any{path, 20000})}
	done := make(chan error, 1)
	go func() { // ends with the first daemon
		_, err := b.remote(t.Context(), r)
		done <- err
	}()
	await.True(t, func() bool { _, err := os.Stat(path); return err == nil }, "the call to run")
	b.stop()
	if err := <-done; !errs.Is(err, errs.Unavailable) {
		t.Errorf("the first daemon answered %v", err)
	}
	b.open()
	o, err := b.remote(t.Context(), r)
	if err != nil || o.Error != nil || string(o.Value) != "20000" {
		t.Fatalf("got %+v, %+v, %v", o, o.Error, err)
	}
	if ran, err := os.ReadFile(path); err != nil || string(ran) != "ran\n" {
		t.Errorf("ran %q, %v", ran, err)
	}
	expectLines(t, "long", b.printed(dir)[path], 20000)
}

func TestRuntimeDownAndTimeout(t *testing.T) {
	b := newBox(t)
	path := filepath.Join(t.TempDir(), "seen")
	done := make(chan answer, 1)
	var took time.Duration
	go func() { // ends with the timeout
		began := time.Now()
		o, err := b.remote(t.Context(), Request{Callable: "app::until_cancelled", Args: text([]string{path}), Timeout: 2 * time.Second})
		took = time.Since(began)
		done <- answer{o, err}
	}()
	await.True(t, func() bool { _, err := os.Stat(path + ".began"); return err == nil }, "the call to run")
	b.cutter.cut(true)
	await.True(t, func() bool { return !b.link.Connected() }, "the cut")
	if _, err := b.remote(t.Context(), Request{Callable: "app::exact"}); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a new call: %v", err)
	}
	a := <-done
	if a.err != nil || a.outcome.Error == nil || a.outcome.Error.Type != wire.ErrDeadlineExceeded || took < 2*time.Second {
		t.Errorf("got %+v, %v after %s", a.outcome, a.err, took)
	}
	b.cutter.cut(false)
	await.True(t, func() bool { _, err := os.Stat(path); return err == nil }, "the function to see its cancellation")
}
