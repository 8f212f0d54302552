package providertest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/providers"
)

// pauser is the handle as a Pauser; an engine without must not claim that its sandboxes pause.
func (s *suite) pauser(t *testing.T, h providers.Handle) providers.Pauser {
	t.Helper()
	p, can := h.(providers.Pauser)
	if can == (s.Foreign != nil) {
		t.Fatalf("pauses: %v", can)
	}
	if !can {
		t.Skip("it pauses nothing, and says so")
	}
	return p
}

// answers tells whether the stub answers within a short time.
func answers(t testing.TB, h providers.Handle) bool {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("no answer"))
	defer cancel()
	_, err := get(ctx, h, "/health", nil)
	return err == nil
}

func (s *suite) wantPaused(t testing.TB, id string, want bool) {
	t.Helper()
	if st, ok := s.status(t, id); !ok || !st.Running || st.Paused != want {
		t.Errorf("status of %s = %+v, want paused: %v", id, st, want)
	}
	h, err := s.p.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if statuser, can := h.(providers.Statuser); can {
		if st, err := statuser.Status(t.Context()); err != nil || !st.Running || st.Paused != want {
			t.Errorf("own status of %s = %+v, %v, want paused: %v", id, st, err, want)
		}
	}
}

func testPause(t *testing.T, s *suite) {
	h := s.create(t, s.spec("ice"))
	p := s.pauser(t, h)
	waitReady(t, h)
	other := s.create(t, s.spec("warm"))
	for range 3 {
		for range 2 { // twice is no error
			if err := p.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.wantPaused(t, "ice", true)
		}
		if answers(t, h) {
			t.Error("it answers while it is paused")
		}
		s.wantPaused(t, "warm", false)
		waitReady(t, other)
		for range 2 {
			if err := p.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.wantPaused(t, "ice", false)
		waitReady(t, h)
	}
	if err := s.p.Delete(t.Context(), "ice"); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(t.Context()); err == nil {
		t.Error("what is gone was paused")
	}
}

// testPauseManyProcesses: those that left the tree stand still, too.
func testPauseManyProcesses(t *testing.T, s *suite) {
	h := s.create(t, s.spec("family"))
	p := s.pauser(t, h)
	waitReady(t, h)
	mustGet(t, h, "/spawn", url.Values{"n": {"5"}})
	mustGet(t, h, "/spawn", url.Values{"n": {"5"}, "noenv": {"1"}})
	await.True(t, func() bool { return countSleepers(t) >= 10 }, "children")
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	still := waits(t)
	if err := p.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitReady(t, h)
	if still < 10 {
		t.Errorf("%d of 10 children stood still", still)
	}
}

// waits counts the children of the stub that cannot run: stopped, or frozen by their cgroup.
func waits(t testing.TB) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(args), "--sleep") {
			continue
		}
		dir := filepath.Dir(file)
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		wchan, _ := os.ReadFile(filepath.Join(dir, "wchan"))
		if strings.HasPrefix(rest, "T") || strings.Contains(string(wchan), "refrigerator") || strings.Contains(string(wchan), "freezer") || strings.HasPrefix(rest, "D") {
			n++
		}
	}
	return n
}

func testDeletePaused(t *testing.T, s *suite) {
	h := s.create(t, s.spec("ice"))
	p := s.pauser(t, h)
	waitReady(t, h)
	mustGet(t, h, "/spawn", url.Values{"n": {"3"}})
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.p.Delete(t.Context(), "ice"); err != nil {
		t.Fatal(err)
	}
	if st, ok := s.status(t, "ice"); ok {
		t.Errorf("after delete: %+v", st)
	}
	await.True(t, func() bool { return countSleepers(t) == 0 }, "end of all children")
}

// testPauseOverRestart: the next daemon finds it paused, and can resume it.
func testPauseOverRestart(t *testing.T, s *suite) {
	h := s.create(t, s.spec("ice"))
	p := s.pauser(t, h)
	waitReady(t, h)
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.p.Close(); err != nil {
		t.Fatal(err)
	}
	s.p = s.New(t, s.stateDir, s.stub)
	s.wantPaused(t, "ice", true)
	h, err := s.p.Get(t.Context(), "ice")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.pauser(t, h).Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitReady(t, h)
	s.wantPaused(t, "ice", false)
}
