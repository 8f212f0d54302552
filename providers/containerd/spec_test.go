package containerd

import (
	"regexp"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"pgregory.net/rapid"

	"github.com/agentixd/agentixd/providers"
)

// TestContainerIDs: every sandbox id gets an id that containerd takes, and no two the same.
func TestContainerIDs(t *testing.T) {
	valid := regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-](?:[A-Za-z0-9]+))*$`) // containerd's own rule
	a, b := &Provider{cfg: providers.Config{Instance: "a"}}, &Provider{cfg: providers.Config{Instance: "b"}}
	seen := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,62}`).Draw(t, "id")
		cid := a.containerID(id)
		if !valid.MatchString(cid) || len(cid) > 76 {
			t.Fatalf("%s → %s: not valid for containerd", id, cid)
		}
		if other, ok := seen[cid]; ok && other != id {
			t.Fatalf("%s and %s → %s", id, other, cid)
		}
		seen[cid] = id
		if cid == b.containerID(id) {
			t.Fatalf("%s: the same for two daemons", id)
		}
	})
}

func TestEnv(t *testing.T) {
	s := &oci.Spec{Process: &specs.Process{Env: []string{"LEFT=over"}}}
	err := withEnv(
		[]string{"PATH=/image/bin", "A=image", "B=image=x", "AGENTIX_BIND_PORT=1", "broken", "=x"},
		map[string]string{"A": "own", "C": ""},
	)(t.Context(), nil, nil, s)
	if diff := cmp.Diff([]string{"A=own", "B=image=x", "C=", "PATH=/image/bin"}, s.Process.Env); err != nil || diff != "" {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}
}

func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		limits providers.Limits
		quota  int64
	}{
		"half":      {providers.Limits{CPUs: 0.5}, 50000},
		"two":       {providers.Limits{CPUs: 2}, 200000},
		"the least": {providers.Limits{CPUs: 0.001}, 1000},
	} {
		s := &oci.Spec{Linux: &specs.Linux{}}
		if err := withLimits(tt.limits)(t.Context(), nil, nil, s); err != nil || *s.Linux.Resources.CPU.Quota != tt.quota || *s.Linux.Resources.CPU.Period != 100000 {
			t.Errorf("%s: %+v, %v", name, s.Linux.Resources.CPU, err)
		}
	}
	s := &oci.Spec{Linux: &specs.Linux{}}
	if err := withLimits(providers.Limits{MemoryBytes: 1 << 26, PIDs: 7})(t.Context(), nil, nil, s); err != nil ||
		*s.Linux.Resources.Memory.Limit != 67108864 || *s.Linux.Resources.Pids.Limit != 7 || s.Linux.Resources.CPU != nil {
		t.Errorf("%+v, %v", s.Linux.Resources, err)
	}
}

func TestExitStatus(t *testing.T) {
	p := &Provider{}
	for status, want := range map[uint32]providers.Exit{
		0: {Reason: providers.Exited}, 1: {Reason: providers.Exited, Code: 1}, 128: {Reason: providers.Exited, Code: 128},
		137: {Reason: providers.Killed, Code: -9}, 143: {Reason: providers.Killed, Code: -15}, 192: {Reason: providers.Killed, Code: -64},
		193: {Reason: providers.Exited, Code: 193}, 255: {Reason: providers.Exited, Code: 255},
	} {
		want.ID = "x"
		if got := p.exitOf("x", status); got != want {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
	}
}
