package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

func TestLife(t *testing.T) {
	r := newRig(t)
	made := r.create(sandboxes.CreateRequest{
		ID: "alpha", Labels: map[string]string{"team": "a"}, Env: map[string]string{"X": "1"},
	})
	if made.State != sandboxes.Ready || made.Provider != "process" || made.Labels["team"] != "a" || made.Env["X"] != "1" {
		t.Errorf("sandbox = %+v", made)
	}
	if made.Runtime == nil || made.Runtime.Version == "" || made.Runtime.Python == "" || len(made.Runtime.Capabilities) == 0 {
		t.Errorf("runtime = %+v", made.Runtime)
	}
	made.Labels["team"] = "changed by the caller"
	if got, err := r.Get(t.Context(), "alpha"); err != nil || got.Labels["team"] != "a" {
		t.Errorf("get = %+v, %v", got, err)
	}
	l, err := r.Link("alpha")
	if err != nil || !l.Connected() {
		t.Errorf("link = %v, %v", l, err)
	}
	_, err = r.Create(t.Context(), sandboxes.CreateRequest{ID: "alpha"})
	wantReason(t, err, errs.AlreadyExists, errs.SandboxExists)

	if err := r.Delete(t.Context(), "alpha", false); err != nil {
		t.Fatal(err)
	}
	_, err = r.Get(t.Context(), "alpha")
	wantReason(t, err, errs.NotFound, errs.SandboxNotFound)
	_, err = r.Link("alpha")
	wantReason(t, err, errs.NotFound, errs.SandboxNotFound)
	wantReason(t, r.Delete(t.Context(), "alpha", false), errs.NotFound, errs.SandboxNotFound)
	if err := r.Delete(t.Context(), "alpha", true); err != nil {
		t.Error(err)
	}
	if got := r.lostReason("alpha"); got != "DELETED" {
		t.Errorf("told of %q, want DELETED", got)
	}
	r.wantLifecycle("alpha", "CREATING", "READY", "STOPPING DELETED", "STOPPED DELETED")
	r.assertNothingLeft()
}

func TestRequestID(t *testing.T) {
	r := newRig(t)
	req := sandboxes.CreateRequest{RequestID: "once", Labels: map[string]string{"a": "b"}}
	ids := make([]string, 4)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := r.Create(t.Context(), req)
			if err != nil {
				t.Errorf("create: %v", err)
			}
			ids[i] = s.ID
		})
	}
	wg.Wait()
	if again := r.create(req); again.ID != ids[0] || ids[1] != ids[0] || ids[2] != ids[0] || ids[3] != ids[0] {
		t.Errorf("ids = %v, then %s; want one", ids, again.ID)
	}
	req.Labels = map[string]string{"a": "c"}
	_, err := r.Create(t.Context(), req)
	wantReason(t, err, errs.AlreadyExists, errs.SandboxExists)

	r.stop() // it is remembered across a restart
	r.boot()
	req.Labels = map[string]string{"a": "b"}
	if again := r.create(req); again.ID != ids[0] {
		t.Errorf("after a restart: %s, want %s", again.ID, ids[0])
	}
	if err := r.Delete(t.Context(), ids[0], false); err != nil {
		t.Fatal(err)
	}
	if next := r.create(req); next.ID == ids[0] {
		t.Error("a deleted sandbox was returned")
	}
}

func TestListInOrderOfCreation(t *testing.T) {
	r := newRig(t)
	want := []string{"zulu", "alpha", "mike"}
	for _, id := range want {
		r.create(sandboxes.CreateRequest{ID: id})
	}
	var got []string
	token := ""
	for {
		page, next, err := r.List(t.Context(), nil, 2, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			got = append(got, s.ID)
		}
		if token = next; next == "" {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("list = %v, want %v", got, want)
	}
	_, _, err := r.List(t.Context(), nil, 2, "rubbish!")
	wantReason(t, err, errs.InvalidArgument, errs.InvalidField)
	_, _, err = r.List(t.Context(), nil, -1, "")
	wantReason(t, err, errs.InvalidArgument, errs.InvalidField)
}

// TestWorkerDoesNotStart: a create whose worker cannot start says why and leaves nothing.
func TestWorkerDoesNotStart(t *testing.T) {
	r := newRig(t)
	_, err := r.Create(t.Context(), sandboxes.CreateRequest{ID: "nopython", Env: map[string]string{"PATH": "/nonexistent"}})
	e := refusal(t, err, errs.FailedPrecondition, errs.StartFailed)
	if !strings.Contains(e.Message, "python") {
		t.Errorf("message = %q, want the worker's error", e.Message)
	}
	r.assertNothingLeft()
	r.wantLifecycle("nopython", "CREATING", "FAILED START_FAILED", "STOPPED DELETED")
	r.create(sandboxes.CreateRequest{ID: "nopython"}) // the id is free
}

// TestRuntimeEndsAtOnce: the runtime's last words are in the error.
func TestRuntimeEndsAtOnce(t *testing.T) {
	r := newStubRig(t)
	began := time.Now()
	_, err := r.Create(t.Context(), sandboxes.CreateRequest{ID: "stillborn", Env: map[string]string{"STUB_FAIL": "no \x1b[31mluck"}})
	e := refusal(t, err, errs.FailedPrecondition, errs.StartFailed)
	if !strings.Contains(e.Message, "exit code 1") || !strings.Contains(e.Message, `no \x1b[31mluck`) {
		t.Errorf("message = %q, want exit code and escaped last words", e.Message)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s, not to wait for the time limit", took)
	}
	r.assertNothingLeft()
}

func TestStartTimeout(t *testing.T) {
	r := newStubRig(t, func(o *sandboxes.Options) { o.StartTimeout = 200 * time.Millisecond })
	_, err := r.Create(t.Context(), sandboxes.CreateRequest{ID: "slow"})
	e := refusal(t, err, errs.FailedPrecondition, errs.StartFailed)
	if !strings.Contains(e.Message, "200ms") {
		t.Errorf("message = %q, want the limit", e.Message)
	}
	r.assertNothingLeft()
}

// TestProviderFails: the engine's own words do not reach the client; a kind does.
func TestProviderFails(t *testing.T) {
	r := newStubRig(t)
	r.provider.create = func(context.Context, providers.Spec) (providers.Handle, error) {
		return nil, errors.New("innards of the engine")
	}
	_, err := r.Create(t.Context(), sandboxes.CreateRequest{ID: "broken"})
	if e := refusal(t, err, errs.FailedPrecondition, errs.StartFailed); strings.Contains(e.Message, "innards") {
		t.Errorf("message = %q", e.Message)
	}
	r.provider.create = func(context.Context, providers.Spec) (providers.Handle, error) {
		return nil, fmt.Errorf("create: %w", errs.New(errs.NotFound, errs.ImageNotFound, "no image x"))
	}
	_, err = r.Create(t.Context(), sandboxes.CreateRequest{ID: "broken", Image: "x"})
	wantReason(t, err, errs.NotFound, errs.ImageNotFound)
	r.assertNothingLeft()
}

func TestDeleteDuringCreate(t *testing.T) {
	r := newStubRig(t)
	created := make(chan error, 1)
	go func() {
		_, err := r.Create(t.Context(), sandboxes.CreateRequest{ID: "racy"})
		created <- err
	}()
	await.True(t, func() bool { return r.state("racy") == sandboxes.Creating }, "the create")
	_, err := r.Link("racy")
	if e := refusal(t, err, errs.FailedPrecondition, errs.SandboxNotReady); e.Metadata["state"] != "CREATING" {
		t.Errorf("metadata = %v", e.Metadata)
	}
	var wg sync.WaitGroup
	for range 3 { // the later ones join the first
		wg.Go(func() {
			if err := r.Delete(t.Context(), "racy", true); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
	}
	wg.Wait()
	r.assertNothingLeft()
	wantReason(t, <-created, errs.FailedPrecondition, errs.StartFailed)
}

// TestCallerLeaves: a create without a request id ends with its caller; with one it goes on.
func TestCallerLeaves(t *testing.T) {
	r := newStubRig(t)
	for _, requestID := range []string{"", "keep"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		created := make(chan error, 1)
		go func() {
			_, err := r.Create(ctx, sandboxes.CreateRequest{ID: "left" + requestID, RequestID: requestID})
			created <- err
		}()
		await.True(t, func() bool { return r.state("left"+requestID) == sandboxes.Creating }, "the create")
		cancel(errors.New("the caller left"))
		wantReason(t, <-created, errs.Cancelled, errs.CallerLeft)
	}
	if got := r.state("left"); got != "" {
		t.Errorf("without a request id: %s", got)
	}
	if got := r.state("leftkeep"); got != sandboxes.Creating {
		t.Errorf("with a request id: %q, want CREATING", got)
	}
}

// TestKilledByHand: within a second the calls are told, and the sandbox is FAILED with the reason.
func TestKilledByHand(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "victim"})
	began := time.Now()
	r.kill("victim")
	await.True(t, func() bool { return r.lostReason("victim") == "KILLED" }, "word of the loss")
	if took := time.Since(began); took > time.Second {
		t.Errorf("told after %s", took)
	}
	await.True(t, func() bool { return r.state("victim") == sandboxes.Failed }, "FAILED")
	s, err := r.Get(t.Context(), "victim")
	if err != nil || s.Reason != "KILLED" || !strings.Contains(s.Message, "signal 9") {
		t.Errorf("sandbox = %+v, %v", s, err)
	}
	_, err = r.Link("victim")
	if e := refusal(t, err, errs.FailedPrecondition, errs.SandboxNotReady); e.Metadata["state"] != "FAILED" || e.Metadata["reason"] != "KILLED" {
		t.Errorf("metadata = %v", e.Metadata)
	}
	await.True(t, func() bool { return len(r.lifecycle("victim")) == 3 }, "the event")
	r.stop() // the record stays, across restarts too
	r.boot()
	if got := r.state("victim"); got != sandboxes.Failed {
		t.Errorf("after a restart: %q", got)
	}
	if err := r.Delete(t.Context(), "victim", false); err != nil {
		t.Fatal(err)
	}
	r.wantLifecycle("victim", "CREATING", "READY", "FAILED KILLED", "STOPPING DELETED", "STOPPED DELETED")
}

// TestR8_Adoption: sandboxes outlive the daemon and are taken over by the next.
func TestR8_Adoption(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "kept", Labels: map[string]string{"a": "b"}})
	r.create(sandboxes.CreateRequest{ID: "died"})
	pid := r.pid("kept")
	r.stop()
	r.kill("died")
	r.boot()
	await.True(t, func() bool { l, err := r.Link("kept"); return err == nil && l.Connected() }, "the link")
	if s, err := r.Get(t.Context(), "kept"); err != nil || s.State != sandboxes.Ready || s.Labels["a"] != "b" || s.Runtime == nil {
		t.Errorf("sandbox = %+v, %v", s, err)
	}
	if got := r.pid("kept"); got != pid {
		t.Errorf("pid = %d, want %d", got, pid)
	}
	await.True(t, func() bool { return r.state("died") == sandboxes.Failed && r.lostReason("died") != "" }, "FAILED")
	page, _, err := r.List(t.Context(), nil, 0, "")
	if err != nil || len(page) != 2 || page[0].ID != "kept" {
		t.Errorf("list = %v, %v", page, err)
	}
	r.create(sandboxes.CreateRequest{ID: "later"})
	if page, _, err = r.List(t.Context(), nil, 0, ""); err != nil || len(page) != 3 || page[2].ID != "later" {
		t.Errorf("list = %v, %v", page, err)
	}
}

// TestR9_HalfMade: what a daemon that died in the middle left behind is removed by the next.
func TestR9_HalfMade(t *testing.T) {
	r := newStubRig(t)
	ctx := t.Context()
	for id, record := range map[string]string{
		"creating": `{"sandbox":{"id":"creating","state":"CREATING"},"seq":1}`,
		"stopping": `{"sandbox":{"id":"stopping","state":"STOPPING"},"seq":2}`,
		"norecord": "",
		"damaged":  `{"sandbox":`,
		"nothing":  `{"sandbox":{"id":"nothing","state":"CREATING"},"seq":3}`,
	} {
		if id != "nothing" {
			if _, err := r.provider.Create(ctx, providers.Spec{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		if record == "" {
			continue
		}
		if err := r.store.PutSandbox(ctx, id, []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.PutSandbox(ctx, "vanished", []byte(`{"sandbox":{"id":"vanished","state":"READY"},"seq":4}`)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.boot()
	await.True(t, func() bool {
		page, _, err := r.List(ctx, nil, 0, "")
		if err != nil || len(page) != 1 || page[0].State != sandboxes.Failed {
			return false
		}
		list, err := r.provider.List(ctx)
		rows, rowsErr := r.store.Sandboxes(ctx)
		return err == nil && rowsErr == nil && len(list) == 0 && len(rows) == 1
	}, "removal of all but one")
	if s, err := r.Get(ctx, "vanished"); err != nil || s.Reason != sandboxes.Lost {
		t.Errorf("sandbox = %+v, %v; want LOST", s, err)
	}
}

// TestRemovalIsTriedAgain: what the provider fails to remove stays STOPPING until it succeeds.
func TestRemovalIsTriedAgain(t *testing.T) {
	r := newRig(t, func(o *sandboxes.Options) { o.CheckInterval = 20 * time.Millisecond })
	r.create(sandboxes.CreateRequest{ID: "sticky"})
	var mu sync.Mutex
	failures := 3
	r.provider.delete = func(ctx context.Context, id string) error {
		mu.Lock()
		defer mu.Unlock()
		if failures--; failures >= 0 {
			return errors.New("the engine is busy")
		}
		return r.provider.Provider.Delete(ctx, id)
	}
	if err := r.Delete(t.Context(), "sticky", false); err == nil {
		t.Error("a failed removal was reported as done")
	}
	if got := r.lostReason("sticky"); got != "DELETED" { // its calls do not wait for the engine
		t.Errorf("told of %q, want DELETED", got)
	}
	await.True(t, func() bool { return r.state("sticky") == "" }, "the removal")
	r.assertNothingLeft()
}

// TestListIsTruth: an end of which no event tells is seen by looking.
func TestListIsTruth(t *testing.T) {
	r := newRig(t, func(o *sandboxes.Options) {
		o.CheckInterval = 20 * time.Millisecond
		o.Provider = silent{o.Provider}
	})
	r.create(sandboxes.CreateRequest{ID: "quiet"})
	r.kill("quiet")
	await.True(t, func() bool { return r.state("quiet") == sandboxes.Failed }, "FAILED")
}

// silent is a provider whose watch tells nothing.
type silent struct{ providers.Provider }

func (s silent) Watch(ctx context.Context) (<-chan providers.Exit, error) {
	out := make(chan providers.Exit)
	context.AfterFunc(ctx, func() { close(out) })
	return out, nil
}

// TestR3_RuntimeOutOfReach: a sandbox whose runtime has no socket any more is given up, so
// that its calls end; what ran in it is ended.
func TestR3_RuntimeOutOfReach(t *testing.T) {
	r := newRig(t, func(o *sandboxes.Options) {
		o.CheckInterval, o.UnreachableAfter = 20*time.Millisecond, 100*time.Millisecond
	})
	r.create(sandboxes.CreateRequest{ID: "deaf"})
	if err := os.Remove(filepath.Join(r.dir, "p", "deaf", "rpc.sock")); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.boot() // the next daemon finds no way in
	await.True(t, func() bool { return r.lostReason("deaf") == "UNREACHABLE" }, "word of the loss")
	await.True(t, func() bool { return r.state("deaf") == sandboxes.Failed }, "FAILED")
	await.True(t, func() bool {
		list, err := r.provider.List(t.Context())
		return err == nil && len(list) == 0
	}, "the end of its processes")
}

func TestParallelCreates(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := fmt.Sprintf("par-%d", i)
			if s, err := r.Create(t.Context(), sandboxes.CreateRequest{ID: id}); err != nil || s.State != sandboxes.Ready {
				t.Errorf("create %s: %+v, %v", id, s, err)
			}
		})
	}
	wg.Wait()
	if page, _, err := r.List(t.Context(), nil, 0, ""); err != nil || len(page) != 8 {
		t.Errorf("list has %d, %v", len(page), err)
	}
}

// TestStopping: a stopping Manager refuses and leaves READY sandboxes alone.
func TestStopping(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "stays"})
	pid := r.pid("stays")
	old := r.Manager
	r.stop()
	_, err := old.Create(t.Context(), sandboxes.CreateRequest{})
	wantReason(t, err, errs.Unavailable, errs.Stopping)
	wantReason(t, old.Delete(t.Context(), "stays", false), errs.Unavailable, errs.Stopping)
	r.boot()
	if got := r.pid("stays"); got != pid || r.state("stays") != sandboxes.Ready {
		t.Errorf("pid %d, want %d; state %s", got, pid, r.state("stays"))
	}
}
