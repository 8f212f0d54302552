package providertest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

func testCreateDialDelete(t *testing.T, s *suite) {
	h := s.create(t, s.spec("one"))
	if h.ID() != "one" {
		t.Errorf("id = %q, want one", h.ID())
	}
	waitReady(t, h)
	if st, ok := s.status(t, "one"); !ok || !st.Running || st.Exit != nil {
		t.Errorf("status = %+v, %v; want running", st, ok)
	}
	again, err := s.p.Get(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	waitReady(t, again)
	if err := s.p.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.p.Get(t.Context(), "one"); !errs.Is(err, errs.NotFound) {
		t.Errorf("get after delete: %v, want NotFound", err)
	}
	if _, err := h.Dial(t.Context()); err == nil {
		t.Error("dial after delete worked")
	}
	if entries, err := os.ReadDir(s.stateDir); err != nil || containsName(entries, "one") {
		t.Errorf("state directory after delete: %v, %v", entries, err)
	}
}

func containsName(entries []os.DirEntry, name string) bool {
	for _, e := range entries {
		if strings.Contains(e.Name(), name) {
			return true
		}
	}
	return false
}

func testDuplicateID(t *testing.T, s *suite) {
	h := s.create(t, s.spec("twin"))
	if _, err := s.p.Create(t.Context(), s.spec("twin")); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("second create: %v, want AlreadyExists", err)
	}
	waitReady(t, h) // the first is unharmed
	if err := s.p.Delete(t.Context(), "twin"); err != nil {
		t.Fatal(err)
	}
	waitReady(t, s.create(t, s.spec("twin")))
}

func testDeleteTwice(t *testing.T, s *suite) {
	s.create(t, s.spec("gone"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := s.p.Delete(t.Context(), "gone"); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
	}
	wg.Wait()
	for _, id := range []string{"gone", "never-was"} {
		if err := s.p.Delete(t.Context(), id); err != nil {
			t.Errorf("delete of missing %s: %v", id, err)
		}
	}
}

func testDeleteDuringCreate(t *testing.T, s *suite) {
	for i := range 8 {
		id := fmt.Sprintf("racy-%d", i)
		var wg sync.WaitGroup
		wg.Go(func() {
			if h, err := s.p.Create(t.Context(), s.spec(id)); err == nil && h.ID() != id {
				t.Errorf("id = %q", h.ID())
			}
		})
		wg.Go(func() {
			timer := time.NewTimer(time.Duration(i) * 5 * time.Millisecond)
			defer timer.Stop()
			<-timer.C
			if err := s.p.Delete(t.Context(), id); err != nil {
				t.Errorf("delete during create: %v", err)
			}
		})
		wg.Wait()
		if err := s.p.Delete(t.Context(), id); err != nil {
			t.Errorf("delete afterwards: %v", err)
		}
		if st, ok := s.status(t, id); ok {
			t.Errorf("after delete: %+v", st)
		}
	}
}

// testDeleteKillsEverything: children in sessions of their own, without the sandbox's
// environment, do not survive.
func testDeleteKillsEverything(t *testing.T, s *suite) {
	h := s.create(t, s.spec("family"))
	waitReady(t, h)
	if got := strings.TrimSpace(mustGet(t, h, "/spawn", url.Values{"n": {"5"}})); got != "5" {
		t.Fatalf("spawned %s", got)
	}
	if got := strings.TrimSpace(mustGet(t, h, "/spawn", url.Values{"n": {"5"}, "noenv": {"1"}})); got != "5" {
		t.Fatalf("spawned %s", got)
	}
	await.True(t, func() bool { return countSleepers(t) >= 10 }, "children")
	if err := s.p.Delete(t.Context(), "family"); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return countSleepers(t) == 0 }, "end of all children")
}

// countSleepers counts the processes that the stub's /spawn started.
func countSleepers(t testing.TB) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.Contains(string(data), "\x00--sleep\x00") {
			n++
		}
	}
	return n
}

// nextExit reads the watch until it tells of id.
func nextExit(t testing.TB, exits <-chan providers.Exit, id string) providers.Exit {
	t.Helper()
	deadline := time.NewTimer(await.Timeout)
	defer deadline.Stop()
	for {
		select {
		case e, ok := <-exits:
			if !ok {
				t.Fatal("watch ended")
			}
			if e.ID == id {
				return e
			}
		case <-deadline.C:
			t.Fatalf("no exit of %s", id)
		}
	}
}

func (s *suite) watch(t testing.TB) <-chan providers.Exit {
	t.Helper()
	exits, err := s.p.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return exits
}

func testExitReasons(t *testing.T, s *suite) {
	exits := s.watch(t)
	tests := map[string]struct {
		query  url.Values
		reason providers.ExitReason
		code   int
	}{
		"exit-zero": {url.Values{"code": {"0"}}, providers.Exited, 0},
		"exit-nine": {url.Values{"code": {"9"}}, providers.Exited, 9},
	}
	for id, tt := range tests {
		h := s.create(t, s.spec(id))
		waitReady(t, h)
		if _, err := get(t.Context(), h, "/exit", tt.query); err == nil {
			t.Errorf("%s: it answered", id)
		}
		got := nextExit(t, exits, id)
		if got.Reason != tt.reason || got.Code != tt.code {
			t.Errorf("%s: exit = %+v, want %s %d", id, got, tt.reason, tt.code)
		}
		st, ok := s.status(t, id)
		if !ok || st.Running || st.Exit == nil || st.Exit.Reason != tt.reason || st.Exit.Code != tt.code {
			t.Errorf("%s: status = %+v, %v", id, st, ok)
		}
		if _, err := s.p.Get(t.Context(), id); err != nil {
			t.Errorf("get of an ended sandbox: %v", err)
		}
		if _, err := h.Dial(t.Context()); err == nil {
			t.Error("an ended sandbox was dialled")
		}
	}
}

func testKilledByHand(t *testing.T, s *suite) {
	exits := s.watch(t)
	h := s.create(t, s.spec("victim"))
	waitReady(t, h)
	s.Kill(t, s.p, "victim")
	if got := nextExit(t, exits, "victim"); got.Reason != providers.Killed || got.Code != -9 {
		t.Errorf("exit = %+v, want KILLED -9", got)
	}
}

// testFailedStart: a runtime that ends at once is an exit, and its last words are kept.
func testFailedStart(t *testing.T, s *suite) {
	exits := s.watch(t)
	spec := s.spec("stillborn")
	spec.Env = map[string]string{"STUB_FAIL": "no luck today"}
	h := s.create(t, spec)
	if got := nextExit(t, exits, "stillborn"); got.Reason != providers.Exited || got.Code != 1 {
		t.Errorf("exit = %+v, want EXITED 1", got)
	}
	logger, ok := h.(providers.RuntimeLogger)
	if !ok {
		t.Fatal("the handle keeps no runtime log")
	}
	await.True(t, func() bool { return strings.Contains(logger.RuntimeLog(), "no luck today") }, "last words in the runtime's log")
}

// testRestart: another provider on the same state finds what runs, watches and deletes it.
func testRestart(t *testing.T, s *suite) {
	waitReady(t, s.create(t, s.spec("kept")))
	waitReady(t, s.create(t, s.spec("doomed")))
	if err := s.p.Close(); err != nil {
		t.Fatal(err)
	}
	s.p = s.New(t, s.stateDir, s.stub)
	exits := s.watch(t)
	if st, ok := s.status(t, "kept"); !ok || !st.Running {
		t.Fatalf("after restart: %+v, %v", st, ok)
	}
	h, err := s.p.Get(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	if got := getInfo(t, h).Token; got != "token-of-kept" {
		t.Errorf("token = %q", got)
	}
	s.Kill(t, s.p, "doomed")
	if got := nextExit(t, exits, "doomed"); got.Reason != providers.Killed {
		t.Errorf("exit = %+v, want KILLED", got)
	}
	if err := s.p.Delete(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.status(t, "kept"); ok {
		t.Error("still listed after delete")
	}
}

// testExitWhileClosed: what ended while no daemon watched is listed as ended.
func testExitWhileClosed(t *testing.T, s *suite) {
	h := s.create(t, s.spec("unseen"))
	waitReady(t, h)
	if err := s.p.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := get(t.Context(), h, "/exit", url.Values{"code": {"3"}})
	if err == nil {
		t.Fatal("it answered")
	}
	await.True(t, func() bool { _, err := h.Dial(t.Context()); return err != nil }, "end of the runtime")
	s.p = s.New(t, s.stateDir, s.stub)
	await.True(t, func() bool {
		st, ok := s.status(t, "unseen")
		return ok && !st.Running && st.Exit != nil
	}, "the exit in the list")
}

func testParallelCreates(t *testing.T, s *suite) {
	const n = 32
	handles := make([]providers.Handle, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			h, err := s.p.Create(t.Context(), s.spec("par-"+strconv.Itoa(i)))
			if err != nil {
				t.Errorf("create %d: %v", i, err)
				return
			}
			handles[i] = h
		})
	}
	wg.Wait()
	for i, h := range handles {
		if h == nil {
			continue
		}
		if got, want := getInfo(t, h).Token, fmt.Sprintf("token-of-par-%d", i); got != want && s.Foreign == nil {
			t.Errorf("token = %q, want %q", got, want)
		}
	}
	list, err := s.p.List(t.Context())
	if err != nil || len(list) != n {
		t.Errorf("list has %d, %v; want %d", len(list), err, n)
	}
	for i := range n {
		wg.Go(func() {
			if err := s.p.Delete(t.Context(), "par-"+strconv.Itoa(i)); err != nil {
				t.Errorf("delete %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// testWatchEnds: the channel is closed when its context ends, and when the provider closes.
func testWatchEnds(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancelCause(t.Context())
	byContext, err := s.p.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	byClose := s.watch(t)
	cancel(errors.New("enough"))
	awaitClosed(t, byContext)
	if err := s.p.Close(); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, byClose)
	s.p = s.New(t, s.stateDir, s.stub)
}

func awaitClosed(t testing.TB, exits <-chan providers.Exit) {
	t.Helper()
	await.True(t, func() bool {
		select {
		case _, open := <-exits:
			return !open
		default:
			return false
		}
	}, "end of the watch")
}
