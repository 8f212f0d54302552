package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/internal/errs"
)

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestDirectoryKeepsItsIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := open(t, dir)
	epoch, instance, token := first.Epoch(), first.Instance(), first.RuntimeToken("a")
	if epoch != 1 || len(instance) != 32 || len(token) != 64 || token == first.RuntimeToken("b") {
		t.Errorf("epoch %d, instance %q, token of %d characters", epoch, instance, len(token))
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir)
	if second.Epoch() != 2 || second.Instance() != instance || second.RuntimeToken("a") != token {
		t.Errorf("opened again: epoch %d, instance %q", second.Epoch(), second.Instance())
	}
	for name, want := range map[string]os.FileMode{".": 0o700, keyName: 0o600, fileName: 0o600, fileName + "-wal": 0o600, lockName: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s: got %o, want %o", name, got, want)
		}
	}
}

func TestTokenIsStoredNowhere(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	token := s.RuntimeToken("a")
	if err := s.PutSandbox(t.Context(), "a", []byte("record")); err != nil {
		t.Fatal(err)
	}
	for name, data := range files(t, dir) {
		if bytes.Contains(data, []byte(token)) {
			t.Errorf("%s holds the token", name)
		}
	}
}

func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = data
	}
	return all
}

func TestSecondDaemonIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	second, err := Open(t.Context(), dir)
	if err == nil {
		t.Fatal("opened twice", second.Close())
	}
	if want := fmt.Sprintf("in use by process %d", os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

func TestDamagedKeyIsRefusedByName(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keyName), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, keyName)) {
		t.Errorf("got %v, want an error that names the key file", err)
	}
}

func TestNewerSchemaIsRefusedUntouched(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	err := s.writer.doAlone(t.Context(), 0, func(tx *tx) error {
		_, err := tx.conn.ExecContext(t.Context(), "PRAGMA user_version = 99")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("got %v, want a refusal", err)
	}
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("the refused directory has changed:\n%s", diff)
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	for name, data := range map[string][]byte{"text": []byte(strings.Repeat("this is no database\n", 100))} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), fileName) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

func TestSandboxRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, r := range []SandboxRow{{"b", []byte("1")}, {"a", []byte("0")}, {"b", []byte("2")}, {"c", []byte("3")}} {
		if err := s.PutSandbox(t.Context(), r.ID, r.Record); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // twice: the second time there is nothing to delete
		if err := s.DeleteSandbox(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := open(t, dir).Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]SandboxRow{{"a", []byte("0")}, {"b", []byte("2")}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestR1_FirstOutcomeStays(t *testing.T) {
	s := open(t, t.TempDir())
	at := time.Unix(1700000000, 5)
	row := CallRow{ID: "c1", Sandbox: "a", RequestHash: []byte{1, 2}, Callable: "m::f", Accepted: at}
	if err := s.AcceptCall(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	if err := s.AcceptCall(t.Context(), row); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("accepted twice: got %v", err)
	}
	if open, err := s.OpenCalls(t.Context()); err != nil || len(open) != 1 {
		t.Errorf("open calls: got %v %v", open, err)
	}
	var wg sync.WaitGroup
	results := make([]error, 20)
	for i := range results {
		wg.Go(func() {
			results[i] = s.FinishCall(t.Context(), "c1", CallEnd{
				State: CallFailed, ErrorType: "E", Finished: at.Add(time.Second), Keep: true, Head: fmt.Appendf(nil, "outcome %d", i), Value: []byte{1},
			})
		})
	}
	wg.Wait()
	won := ""
	for i, err := range results {
		switch {
		case err == nil && won == "":
			won = fmt.Sprintf("outcome %d", i)
		case err == nil:
			t.Error("two outcomes were taken")
		case !errs.Is(err, errs.AlreadyExists):
			t.Error(err)
		}
	}
	got, err := s.Call(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	row.Num, row.State, row.ErrorType, row.Finished, row.Kept = 1, CallFailed, "E", at.Add(time.Second), true
	if diff := cmp.Diff(row, got); diff != "" {
		t.Error(diff)
	}
	if head, value, err := s.Outcome(t.Context(), "c1"); err != nil || string(head) != won || len(value) != 1 {
		t.Errorf("outcome %q %q %v, want %q", head, value, err, won)
	}
	if open, err := s.OpenCalls(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open calls: got %v %v", open, err)
	}
	if err := s.FinishCall(t.Context(), "unknown", CallEnd{State: CallSucceeded, Finished: at}); !errs.Is(err, errs.NotFound) {
		t.Errorf("unknown call finished: got %v", err)
	}
	if _, err := s.Call(t.Context(), "unknown"); !errs.Is(err, errs.NotFound) {
		t.Errorf("unknown call: got %v", err)
	}
	if n, err := s.PruneCalls(t.Context(), at.Add(2*time.Second)); n != 1 || err != nil {
		t.Errorf("prune: got %d %v", n, err)
	}
}

func TestOneFailureOfAGroupIsItsOwn(t *testing.T) {
	s := open(t, t.TempDir())
	hold := make(chan struct{})
	started := make(chan struct{})
	go func() {
		_ = s.writer.doAlone(t.Context(), 0, func(*tx) error { close(started); <-hold; return nil })
	}()
	<-started // what comes now is committed together
	var wg sync.WaitGroup
	results := make([]error, 10)
	for i := range results {
		wg.Go(func() {
			results[i] = s.writer.do(t.Context(), 0, func(tx *tx) error {
				if i == 5 {
					_, err := tx.exec("INSERT INTO sandbox VALUES (NULL, NULL, NULL)")
					return err
				}
				_, err := tx.exec("INSERT INTO sandbox VALUES (?, x'', ?)", fmt.Sprint(i), checksum(fmt.Sprint(i), []byte{}))
				return err
			})
		})
	}
	waitFor(t, func() bool { return len(s.writer.queue) == len(results) }, "a full queue")
	close(hold)
	wg.Wait()
	for i, err := range results {
		if (err != nil) != (i == 5) {
			t.Errorf("operation %d: got %v", i, err)
		}
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 9 {
		t.Errorf("got %d rows, %v", len(all), err)
	}
}

func TestR13_FullDiskIsResourceExhaustedAndPasses(t *testing.T) {
	s := open(t, t.TempDir())
	limit := func(pages int) {
		t.Helper()
		err := s.writer.doAlone(t.Context(), 0, func(tx *tx) error {
			_, err := tx.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutSandbox(t.Context(), "a", []byte("before")); err != nil {
		t.Fatal(err)
	}
	limit(1) // SQLite takes the present size
	err := s.PutSandbox(t.Context(), "b", make([]byte, 1<<20))
	if !errs.Is(err, errs.ResourceExhausted) {
		t.Errorf("full: got %v", err)
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 1 || string(all[0].Record) != "before" {
		t.Errorf("reads while full: got %v %v", all, err)
	}
	limit(1 << 20)
	if err := s.PutSandbox(t.Context(), "b", make([]byte, 1<<20)); err != nil {
		t.Errorf("with space again: got %v", err)
	}
}

func TestClosedStoreAnswers(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSandbox(t.Context(), "a", nil); !errs.Is(err, errs.Unavailable) {
		t.Errorf("got %v, want Unavailable", err)
	}
	called := make(chan error, 1)
	s.WriteJournal(JournalWrite{}, func(err error) { called <- err })
	if err := <-called; !errs.Is(err, errs.Unavailable) {
		t.Errorf("got %v, want Unavailable", err)
	}
}

func TestEndedContextIsAnswered(t *testing.T) {
	s := open(t, t.TempDir())
	why := fmt.Errorf("no more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := s.PutSandbox(ctx, "a", nil); err == nil || !strings.Contains(err.Error(), "no more") {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestLogMovesIntoTheDatabase(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	record := make([]byte, 1<<20)
	for i := range 40 {
		if err := s.PutSandbox(t.Context(), fmt.Sprint(i%4), record); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool {
		if err := s.PutSandbox(t.Context(), "x", nil); err != nil { // lets the log begin anew
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, fileName))
		return err == nil && info.Size() >= 4<<20
	}, "a checkpoint")
}
