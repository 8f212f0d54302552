package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

func mustFilter(t *testing.T, text string) *sandboxes.Filter {
	t.Helper()
	f, err := sandboxes.ParseFilter(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestListByFilter(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.create(sandboxes.CreateRequest{ID: fmt.Sprintf("box-%d", i), Labels: map[string]string{"odd": fmt.Sprint(i % 2)}})
	}
	odd := mustFilter(t, "labels.odd = 1 AND state = READY")
	page, next, err := r.List(t.Context(), odd, 1, "")
	if err != nil || len(page) != 1 || page[0].ID != "box-1" || next == "" {
		t.Fatalf("page = %v, %q, %v", page, next, err)
	}
	_, _, err = r.List(t.Context(), nil, 1, next)
	wantReason(t, err, errs.InvalidArgument, errs.InvalidField) // of another list
	page, next, err = r.List(t.Context(), odd, 1, next)
	if err != nil || len(page) != 1 || page[0].ID != "box-3" || next != "" {
		t.Fatalf("page = %v, %q, %v", page, next, err)
	}
}

func TestDeleteMatching(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		r.create(sandboxes.CreateRequest{ID: fmt.Sprintf("box-%d", i), Labels: map[string]string{"odd": fmt.Sprint(i % 2)}})
	}
	odd := mustFilter(t, "labels.odd = 1")
	dry, err := r.DeleteMatching(t.Context(), odd, true)
	if err != nil || !slices.Equal(dry.IDs, []string{"box-1", "box-3"}) || r.state("box-1") != sandboxes.Ready {
		t.Fatalf("dry run = %v, %v", dry, err)
	}
	r.provider.delete = func(ctx context.Context, id string) error {
		if id == "box-3" {
			return errors.New("innards")
		}
		return r.provider.Provider.Delete(ctx, id)
	}
	got, err := r.DeleteMatching(t.Context(), odd, false)
	if err != nil || !slices.Equal(got.IDs, []string{"box-1", "box-3"}) || len(got.Failures) != 1 || got.Failures["box-3"] == "" {
		t.Fatalf("deleted %v, %v", got, err)
	}
	r.provider.delete = nil
	if r.state("box-1") != "" || r.state("box-0") != sandboxes.Ready || r.state("box-3") != sandboxes.Stopping {
		t.Errorf("states: %s, %s, %s", r.state("box-1"), r.state("box-0"), r.state("box-3"))
	}
	if got, err := r.DeleteMatching(t.Context(), nil, false); err != nil || len(got.IDs) != 3 || len(got.Failures) != 0 {
		t.Fatalf("all: %v, %v", got, err)
	}
	r.assertNothingLeft()
}

func TestObserve(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "first", Labels: map[string]string{"team": "x"}})
	r.create(sandboxes.CreateRequest{ID: "other"})
	ctx, leave := context.WithCancelCause(t.Context())
	var mu sync.Mutex
	var seen []string
	ended := make(chan error, 1)
	go func() {
		ended <- r.Observe(ctx, mustFilter(t, "labels.team = x"), func(changes []sandboxes.Change, current bool) error {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range changes {
				seen = append(seen, fmt.Sprintf("%s %s", c.Type, c.Sandbox.ID))
			}
			if current {
				seen = append(seen, "current")
			}
			return nil
		})
	}()
	saw := func(what string) {
		t.Helper()
		await.True(t, func() bool { mu.Lock(); defer mu.Unlock(); return slices.Contains(seen, what) }, what)
	}
	saw("current")
	label := func(id, team string) {
		t.Helper()
		if _, err := r.Update(t.Context(), id, sandboxes.Update{SetLabels: map[string]*string{"team": &team}}); err != nil {
			t.Fatal(err)
		}
	}
	label("other", "x")
	saw("ADDED other")
	label("other", "y")
	saw("REMOVED other")
	if err := r.Delete(t.Context(), "first", false); err != nil {
		t.Fatal(err)
	}
	saw("REMOVED first")
	mu.Lock()
	if seen[0] != "ADDED first" || seen[1] != "current" || !slices.Contains(seen, "CHANGED first") {
		t.Errorf("seen %q", seen)
	}
	mu.Unlock()
	leave(errCaller)
	if err := <-ended; !errors.Is(err, errCaller) {
		t.Errorf("it ended by %v", err)
	}
}

var errCaller = errors.New("the test leaves")

// TestSlowObserver: it gets the newest state, and learns that an id changed hands.
func TestSlowObserver(t *testing.T) {
	r := newRig(t)
	r.create(sandboxes.CreateRequest{ID: "box"})
	ctx, leave := context.WithCancelCause(t.Context())
	hold, going := make(chan struct{}), make(chan []sandboxes.Change, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- r.Observe(ctx, nil, func(changes []sandboxes.Change, _ bool) error {
			going <- changes
			<-hold
			return nil
		})
	}()
	<-going
	for i := range 5 {
		team := fmt.Sprint(i)
		if _, err := r.Update(t.Context(), "box", sandboxes.Update{SetLabels: map[string]*string{"team": &team}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Delete(t.Context(), "box", false); err != nil {
		t.Fatal(err)
	}
	r.create(sandboxes.CreateRequest{ID: "box"})
	for i := range 10 { // these come and go without a word
		r.create(sandboxes.CreateRequest{ID: fmt.Sprintf("brief-%d", i), Env: map[string]string{"X": "1"}})
		if err := r.Delete(t.Context(), fmt.Sprintf("brief-%d", i), false); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			break
		}
	}
	close(hold)
	changes := <-going
	if len(changes) != 2 || changes[0].Type != sandboxes.Removed || changes[0].Sandbox.Labels["team"] != "4" ||
		changes[1].Type != sandboxes.Added || changes[1].Sandbox.State != sandboxes.Ready {
		t.Errorf("changes = %+v", changes)
	}
	leave(errCaller)
	if err := <-ended; !errors.Is(err, errCaller) {
		t.Errorf("it ended by %v", err)
	}
}

// TestParallelStarts: no more start at once than allowed; who leaves the queue is gone from it.
func TestParallelStarts(t *testing.T) {
	r := newRig(t, func(o *sandboxes.Options) { o.ParallelStarts = 2 })
	var mu sync.Mutex
	var order []string
	now, most := 0, 0
	release := make(chan struct{})
	r.provider.create = func(ctx context.Context, spec providers.Spec) (providers.Handle, error) {
		mu.Lock()
		now++
		most = max(most, now)
		order = append(order, spec.ID)
		mu.Unlock()
		<-release
		mu.Lock()
		now--
		mu.Unlock()
		return r.provider.Provider.Create(ctx, spec)
	}
	var wg sync.WaitGroup
	begin := func(ctx context.Context, id string) {
		wg.Go(func() {
			_, err := r.Create(ctx, sandboxes.CreateRequest{ID: id})
			if (err != nil) != (ctx.Err() != nil) {
				t.Errorf("create %s: %v", id, err)
			}
		})
		await.True(t, func() bool { return r.state(id) == sandboxes.Creating }, "the start of "+id)
	}
	leaving, leave := context.WithCancelCause(t.Context())
	for i := range 6 {
		ctx := t.Context()
		if i == 3 {
			ctx = leaving
		}
		begin(ctx, fmt.Sprintf("box-%d", i))
	}
	leave(errCaller)
	await.True(t, func() bool { return r.state("box-3") == "" }, "the one who left is forgotten")
	close(release)
	wg.Wait()
	if want := []string{"box-2", "box-4", "box-5"}; most > 2 || len(order) != 5 || !slices.Equal(order[2:], want) {
		t.Errorf("%d at once, order %v; then want %v", most, order, want)
	}
}
