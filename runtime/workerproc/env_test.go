package workerproc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWorkerEnv(t *testing.T) {
	got := map[string]string{}
	env := workerEnv([]string{
		"HOME=/root", "PATH=/usr/bin::/venv/bin:/usr/bin", "PYTHONPATH=/x", "PYTHONHOME=/y", "LD_PRELOAD=a.so", "NIX_PATH=n",
		"FONTCONFIG_FILE=f", "SSL_CERT_FILE=s", "LOCALE_ARCHIVE=l", "AGENTIX_SAVED_PYTHONPATH=stale", "AGENTIX_WORKER_FDS=9,9",
		"AGENTIX_ADDED_PATH=/nix/runtime/bin", "AGENTIX_WORKER_LOG_FORMAT=%(message)s", "EQUALS=a=b",
	}, "/venv/bin/python3", "0a0b0c0d", map[string]string{"AGENTIX_WORKER_IMPORT_ROOT": "/root-of-it"})
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		got[name] = value
	}
	delete(got, "AGENTIX_LOG_CONTEXT")
	for name := range got { // what a bundle adds depends on the machine
		if strings.HasSuffix(name, "_PATH") && name != "PATH" && name != "AGENTIX_ADDED_PATH" && !strings.HasPrefix(name, envSaved) {
			delete(got, name)
		}
	}
	want := map[string]string{
		"HOME": "/root", "PATH": "/venv/bin:/nix/runtime/bin:/usr/bin", "EQUALS": "a=b",
		"AGENTIX_SAVED_PYTHONPATH": "/x", "AGENTIX_SAVED_PYTHONHOME": "/y", "AGENTIX_SAVED_LD_PRELOAD": "a.so",
		"AGENTIX_SAVED_NIX_PATH": "n", "AGENTIX_SAVED_FONTCONFIG_FILE": "f", "AGENTIX_SAVED_SSL_CERT_FILE": "s",
		"AGENTIX_SAVED_LOCALE_ARCHIVE": "l", "AGENTIX_ADDED_PATH": "/nix/runtime/bin:/venv/bin",
		"AGENTIX_WORKER_ID": "0a0b0c0d", "AGENTIX_WORKER_IMPORT_ROOT": "/root-of-it",
		"AGENTIX_WORKER_LOG_FORMAT": "%(message)s", "AGENTIX_LOG_FORMAT": "%(message)s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLogContext(t *testing.T) {
	if got := logContext("given", "id"); got != "given" {
		t.Errorf("got %q", got)
	}
	if got := logContext("", "id"); !strings.HasPrefix(got, "sandbox-") || !strings.HasSuffix(got, "-worker-id") {
		t.Errorf("got %q", got)
	}
}

func TestOOMCounter(t *testing.T) {
	for text, want := range map[string]uint64{
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n": 2,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n":               5,
	} {
		if got, ok := oomCounter([]byte(text)); !ok || got != want {
			t.Errorf("got %d, %v; want %d", got, ok, want)
		}
	}
	if _, ok := oomCounter([]byte("nothing")); ok {
		t.Error("a counter in nothing")
	}
	if len(memoryFiles("memory.events", "memory.oom_control")) < 2 {
		t.Error("no file to look at")
	}
}

func TestDescribe(t *testing.T) {
	text, cause := describe(-9, true)
	if text != "killed by signal 9 (likely OOM-killed)" || cause != "OOM_KILLED" {
		t.Errorf("got %q, %q", text, cause)
	}
	if _, cause := describe(-15, true); cause != "SIGNAL" {
		t.Errorf("got %q", cause)
	}
}
