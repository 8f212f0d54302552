package events

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime/wire"
)

func batchOf(sid string, seq uint64, texts ...string) wire.Batch {
	return wire.Batch{Sid: sid, Seq: seq, Records: outputs(texts...)}
}

// logLines waits until the text log has n lines.
func logLines(t *testing.T, dir, sandbox string, n int) []string {
	t.Helper()
	var all []string
	await.True(t, func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "sandbox-"+sandbox+".log"))
		all = strings.SplitAfter(string(data), "\n")
		return err == nil && len(all) == n+1
	}, fmt.Sprintf("%d lines", n))
	return all[:n]
}

func TestTextLogIsSafeToRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	j := open(t, t.TempDir(), Options{LogDir: dir})
	out := func(stream, data string) Event {
		return Event{Time: at(1), Body: &Output{Stream: stream, Data: []byte(data)}}
	}
	j.Append("a",
		Event{Time: at(1), Body: &Lifecycle{State: "READY", Message: "all well"}},
		Event{Time: at(1), CallID: "c1", Body: &Call{Phase: CallAccepted, Callable: "app::run"}},
		Event{Time: at(1), CallID: "c1", Body: &Log{Level: "INFO", Logger: "app", Message: "two\nlines \x1b[31mred\u202e", ExceptionText: "Traceback\n  x"}},
		out(Stdout, "first\nsecond\n\nhalf \xe2\x82"), out(Stderr, "\xff\x00\r\n"), out(Stdout, "\xac whole\\n"), out(Stdout, "\xc3"), out(Stdout, "("),
		Event{Time: at(1), Body: &Span{Phase: SpanStart, Name: "step", TraceID: "t", SpanID: "s"}},
		Event{Time: at(1), Body: &Plugin{Namespace: "/p", Event: "e", MsgpackData: marshal(t, map[string]any{"a": 1}), Data: `{"a":1}`}},
		Event{Time: at(1), Body: &Gap{Dropped: 3, Source: SourceRuntime}},
		Event{Time: at(1), CallID: "c1", Body: &Output{Stream: Stdout, Data: []byte("\xe2\x82")}}, // no one else ends its character
		Event{Time: at(1), CallID: "c2", Body: &Output{Stream: Stdout, Data: []byte("\xac\xf0")}},
		Event{Time: at(1), Body: &Lifecycle{State: "STOPPED"}},
	)
	got := logLines(t, dir, "a", 17)
	const head = "2026-01-01T00:00:01.000000Z "
	want := []string{
		"1 SANDBOX READY  all well", "2 CALL call=c1 ACCEPTED app::run  ",
		`3 LOG call=c1 INFO app: two\nlines \x1b[31mred\u202e | Traceback\n  x`,
		"4 STDOUT first", "4 STDOUT second", "4 STDOUT ", "4 STDOUT half ",
		`5 STDERR \xff\x00\r`, `6 STDOUT € whole\\n`, `8 STDOUT \xc3(`,
		"9 SPAN_START step trace=t span=s", `10 PLUGIN /p e {"a":1}`, "11 GAP 3 events lost (runtime)",
		`12 STDOUT call=c1 \xe2\x82`, `13 STDOUT call=c2 \xac`, `13 STDOUT call=c2 \xf0`, "14 SANDBOX STOPPED  ",
	}
	for i := range want {
		want[i] = head + want[i] + "\n"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, "sandbox-a.log": 0o600, positionName: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestTextLogGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	var want []string
	for round := range 4 {
		st, err := store.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		j := New(st, Options{LogDir: logs})
		for i := range 50 {
			j.Append("a", output(fmt.Sprint("line ", round, " ", i)))
			want = append(want, fmt.Sprint("line ", round, " ", i))
		}
		if round%2 == 0 { // in other rounds the log is behind when the journal closes
			logLines(t, logs, "a", len(want))
		}
		if err := errors.Join(j.Close(), st.Close()); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, Options{LogDir: logs})
	for i, line := range logLines(t, logs, "a", len(want)) {
		if !strings.HasSuffix(line, " "+want[i]+"\n") {
			t.Fatalf("line %d: got %q, want %q", i, line, want[i])
		}
	}
}

func TestTextLogOfAnotherStateBeginsAnew(t *testing.T) {
	logs := filepath.Join(t.TempDir(), "logs")
	for round := range 2 {
		j := open(t, t.TempDir(), Options{LogDir: logs})
		j.Append("a", output(fmt.Sprint("line ", round)))
		logLines(t, logs, "a", round+1)
	}
}

// Each log has at most so many backups of the configured size, and none is lost in between.
func TestTextLogBackups(t *testing.T) {
	for backups, want := range map[int][]string{
		1: {"sandbox-a.log", "sandbox-a.log.1"},
		3: {"sandbox-a.log", "sandbox-a.log.1", "sandbox-a.log.2", "sandbox-a.log.3"},
	} {
		dir := filepath.Join(t.TempDir(), "logs")
		j := open(t, t.TempDir(), Options{LogDir: dir, LogMaxBytes: 10_000, LogBackups: backups})
		fill := strings.Repeat("x", 2000)
		written := func(end string) {
			await.True(t, func() bool {
				backup, _ := os.ReadFile(filepath.Join(dir, "sandbox-a.log.1"))
				now, _ := os.ReadFile(filepath.Join(dir, "sandbox-a.log")) // appears anew after the backup
				return strings.HasSuffix(string(backup)+string(now), end+"\n")
			}, end)
		}
		for i := range 40 {
			line := fmt.Sprintf("%03d %s", i, fill)
			j.Append("a", output(line+"\n"))
			written(line)
		}
		j.Append("a", output("the end\n"))
		written("the end")
		var names []string
		var text strings.Builder
		for n := backups; n >= 0; n-- {
			name := "sandbox-a.log"
			if n > 0 {
				name += fmt.Sprintf(".%d", n)
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 10_000+pageBytes+batchBytes { // what was read together is written together
				t.Errorf("%s has %d bytes", name, len(data))
			}
			names = append([]string{name}, names...)
			text.Write(data)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Error(diff)
		}
		kept := strings.Count(text.String(), fill)
		if first := fmt.Sprintf("STDOUT %03d ", 40-kept); kept > 0 && !strings.Contains(text.String(), first) {
			t.Errorf("%d backups: %d lines are kept, and they are not the newest", backups, kept)
		}
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("sandbox-a.log.%d", backups+1))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("one backup too many: %v", err)
		}
	}
}

func TestTextLogFileNames(t *testing.T) {
	for name, want := range map[string]string{
		"sandbox-a.log": "a", "sandbox-a-b.log.1": "a-b", "sandbox-a.log.12": "a", "sandbox-a.log.x": "", "sandbox-a.logs": "",
		"sandbox-a": "", "other.log": "", "sandbox-a.log.": "", ".position": "",
	} {
		if id, ok := sandboxOf(name); ok != (want != "") || ok && id != want {
			t.Errorf("%s: got %q, %v", name, id, ok)
		}
	}
}

func TestTextLogIsRotated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sandbox-a.log")
	if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, wire.MaxTextLogBytes-1); err != nil { // sparse
		t.Fatal(err)
	}
	j := open(t, t.TempDir(), Options{LogDir: dir, LogBackups: 1})
	j.Append("a", output("last of the old"))
	await.True(t, func() bool { _, err := os.Stat(path + ".1"); return err == nil }, "a backup")
	j.Append("a", output("first of the new"))
	if got := logLines(t, dir, "a", 1); !strings.HasSuffix(got[0], "first of the new\n") {
		t.Errorf("got %q", got)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() < wire.MaxTextLogBytes {
		t.Errorf("backup: %v", err)
	}
}

// records collects what is logged.
type records struct {
	mu  sync.Mutex
	all []string
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, string(p))
	return len(p), nil
}

func (r *records) count(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestFailedTextLogIsDetachedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.MkdirAll(filepath.Join(dir, "sandbox-bad.log"), 0o700); err != nil { // a directory in its place
		t.Fatal(err)
	}
	logged := &records{}
	j := open(t, t.TempDir(), Options{LogDir: dir, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	for range 5 {
		j.Append("bad", output("x"))
		j.Append("good", output("y"))
		flush(t, j, "bad")
	}
	logLines(t, dir, "good", 5)
	await.True(t, func() bool { return logged.count("detached") == 1 }, "one message")
	if got := readAll(t, j, Query{Sandbox: "bad"}); len(got) != 5 {
		t.Errorf("journal of the sandbox: %v", lines(got))
	}
	link := filepath.Join(dir, "sandbox-link.log")
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	j.Append("link", output("z"))
	await.True(t, func() bool { return logged.count("detached") == 2 }, "a second message")
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
}

func TestOldTextLogsAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	j := open(t, t.TempDir(), Options{LogDir: dir})
	for _, id := range []string{"gone", "kept", "young"} {
		j.Append(id, output("x"))
		logLines(t, dir, id, 1)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-30 * 24 * time.Hour)
	for _, name := range []string{"sandbox-gone.log", "sandbox-kept.log", "notes.txt"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	j.text.removeOld(time.Now(), func(id string) bool { return id == "kept" })
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{positionName, "notes.txt", "sandbox-kept.log", "sandbox-young.log"}, names); diff != "" {
		t.Error(diff)
	}
}
