package providertest

import (
	"testing"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// testRuntimeURL: an engine that starts runtimes joins none, and one that joins needs to be
// told which.
func testRuntimeURL(t *testing.T, s *suite) {
	spec := s.spec("url")
	if s.Foreign != nil {
		spec.RuntimeURL = ""
		if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("without a URL: %v, want InvalidArgument", err)
		}
		return
	}
	spec.RuntimeURL = "http://127.0.0.1:8000"
	if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("with a URL: %v, want FailedPrecondition", err)
	}
}

// testJoined: a joined runtime outlives the daemon and its sandbox.
func testJoined(t *testing.T, s *suite) {
	spec := s.spec("kept")
	pid := getInfo(t, s.create(t, spec)).PID
	if err := s.p.Close(); err != nil {
		t.Fatal(err)
	}
	s.p = s.New(t, s.stateDir, s.stub)
	if st, ok := s.status(t, "kept"); !ok || !st.Running {
		t.Fatalf("after restart: %+v, %v", st, ok)
	}
	h, err := s.p.Get(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	if got := getInfo(t, h).PID; got != pid {
		t.Errorf("after restart: pid %d, want %d", got, pid)
	}
	if err := s.p.Delete(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Dial(t.Context()); err == nil {
		t.Error("dial after delete worked")
	}
	if got := getInfo(t, s.create(t, spec)).PID; got != pid {
		t.Errorf("joined again: pid %d, want %d", got, pid)
	}
}

// testUnsupported: what cannot be done to a runtime that runs already is refused.
func testUnsupported(t *testing.T, s *suite) {
	for name, change := range map[string]func(*providers.Spec){
		"image":          func(spec *providers.Spec) { spec.Image = "debian" },
		"project":        func(spec *providers.Spec) { spec.Project = openDir(t, t.TempDir()) },
		"environment":    func(spec *providers.Spec) { spec.Env = map[string]string{"A": "b"} },
		"expose_runtime": func(spec *providers.Spec) { spec.NeighbourSecret = "secret" },
	} {
		spec := s.spec("too-much")
		change(&spec)
		if _, err := s.p.Create(t.Context(), spec); !errs.Is(err, errs.FailedPrecondition) {
			t.Errorf("%s: %v, want FailedPrecondition", name, err)
		}
	}
}
