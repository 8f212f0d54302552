package docker

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// TestEnvironment: what the image sets of the runtime's own variables is taken away.
func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/bin", "AGENTIX_LOG=x", "AGENTIX_SET=image"}, map[string]string{"B": "2", "A": "1=1", "AGENTIX_SET": "own"})
	if want := []string{"AGENTIX_LOG", "A=1=1", "AGENTIX_SET=own", "B=2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExitOf(t *testing.T) {
	for _, tt := range []struct {
		status int
		oom    bool
		want   providers.Exit
	}{
		{0, false, providers.Exit{Reason: providers.Exited}},
		{128, false, providers.Exit{Reason: providers.Exited, Code: 128}},
		{255, true, providers.Exit{Reason: providers.Exited, Code: 255}},
		{137, false, providers.Exit{Reason: providers.Killed, Code: -9}},
		{137, true, providers.Exit{Reason: providers.OOMKilled, Code: -9}},
		{143, true, providers.Exit{Reason: providers.Killed, Code: -15}}, // a child was killed for memory before
	} {
		var c containerInfo
		c.State.ExitCode, c.State.OOMKilled = tt.status, tt.oom
		if got := exitOf("", c); got != tt.want {
			t.Errorf("%d, %v: %+v, want %+v", tt.status, tt.oom, got, tt.want)
		}
	}
}

// TestLogFrames: the end of a log, also of one that is cut off or claims to be endless.
func TestLogFrames(t *testing.T) {
	frame := func(text string, size byte) string {
		return "\x02\x00\x00\x00\x00\x00\x00" + string([]byte{size}) + text
	}
	for _, tt := range []struct{ stream, want string }{
		{"", ""},
		{"\x02\x00", ""},
		{frame("one\n", 4) + frame("two\n", 4), "one\ntwo\n"},
		{frame("cut", 9), "cut"},
		{"\x02\x00\x00\x00\xff\xff\xff\xffshort", "short"},
	} {
		if got := string(lastOf(strings.NewReader(tt.stream))); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.stream, got, tt.want)
		}
	}
	long := strings.Repeat(frame(strings.Repeat("x", 100), 100), 50) + frame("end", 3)
	if got := lastOf(strings.NewReader(long)); len(got) != logTailBytes || !bytes.HasSuffix(got, []byte("xend")) {
		t.Errorf("%d bytes, ending in %q", len(got), got[max(0, len(got)-5):])
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a:latest", "docker.io/library/a:1": "a:1", "localhost:5000/b/c:2": "localhost:5000/b/c:2", "example.com/d": "example.com/d:latest",
	} {
		name, repo, tag, err := repoAndTag("name", text)
		if err != nil || name != want || repo+":"+tag != want {
			t.Errorf("%s: %q, %q, %q, %v; want %s", text, name, repo, tag, err, want)
		}
	}
	for _, text := range []string{"", "A", "a b", "../x", "a?b=c", "a@sha256:" + strings.Repeat("0", 64), strings.Repeat("a", 600)} {
		if _, _, _, err := repoAndTag("name", text); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v, want InvalidArgument", text, err)
		}
	}
}

// TestRefusals: what cannot be had is refused with its field, and nothing is asked of the engine.
func TestRefusals(t *testing.T) {
	p := &Provider{}
	for field, change := range map[string]func(*providers.Spec){
		"disk_bytes":      func(s *providers.Spec) { s.Limits.DiskBytes = 1 << 30 },
		"cpus":            func(s *providers.Spec) { s.Limits.CPUs = 1 },
		"memory_bytes":    func(s *providers.Spec) { s.Limits.MemoryBytes = 1 << 30 },
		"pids":            func(s *providers.Spec) { s.Limits.PIDs = 10 },
		"user_namespace":  func(s *providers.Spec) { s.Security.UserNamespace = true },
		"runtime_handler": func(s *providers.Spec) { s.Security.RuntimeHandler = handlerRunsc },
		"network.mode":    func(s *providers.Spec) { s.Network.Mode = providers.NetworkBridge },
		"runtime.url":     func(s *providers.Spec) { s.RuntimeURL = "http://127.0.0.1" },
	} {
		spec := providers.Spec{ID: "a", Image: "b"}
		change(&spec)
		if err := p.check(spec); !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	image := imageInfo{Config: imageConfig{Volumes: map[string]any{"/data": nil}}}
	if err := checkImage(providers.Spec{Security: providers.Security{ReadOnlyRootFS: true}}, image); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("a volume in a read-only sandbox: %v", err)
	}
}
