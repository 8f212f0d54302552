package faulttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Follower reads the events of a sandbox as they come, over all interruptions, from the
// cursor of the last one it saw.
type Follower struct {
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu         sync.Mutex
	events     []Event
	reconnects int
	err        error
}

// Follow starts a follower; Stop ends it.
func (s *Sandbox) Follow() *Follower { return s.FollowBy(s.d.Events()) }

// FollowBy starts a follower on a connection of its own.
func (s *Sandbox) FollowBy(events agentixv1.EventServiceClient) *Follower {
	s.d.t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.d.t.Context()))
	f := &Follower{cancel: cancel, done: make(chan struct{})}
	go func() { // ends with Stop
		defer close(f.done)
		f.run(ctx, s.Name, events)
	}()
	return f
}

func (f *Follower) run(ctx context.Context, sandbox string, events agentixv1.EventServiceClient) {
	cursor := ""
	for ctx.Err() == nil {
		request := &agentixv1.StreamEventsRequest{Sandbox: sandbox, Follow: true}
		if cursor != "" {
			request.Start = &agentixv1.StreamEventsRequest_After{After: cursor}
		}
		stream, err := events.StreamEvents(ctx, request)
		for err == nil {
			var r *agentixv1.StreamEventsResponse
			if r, err = stream.Recv(); err == nil {
				f.take(r)
				if r.GetCursor() != "" {
					cursor = r.GetCursor()
				}
			}
		}
		f.mu.Lock()
		f.reconnects++
		switch status.Code(err) {
		case codes.OutOfRange, codes.InvalidArgument:
			f.err = fmt.Errorf("follow from cursor %q: %w", cursor, err)
			f.mu.Unlock()
			return
		default:
		}
		f.mu.Unlock()
		pause := time.NewTimer(3 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

func (f *Follower) take(r *agentixv1.StreamEventsResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range r.GetEvents() {
		f.events = append(f.events, Reduce(ev))
	}
}

// Events are what it saw so far.
func (f *Follower) Events() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Event{}, f.events...)
}

// Reconnects is how often its stream ended.
func (f *Follower) Reconnects() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reconnects
}

// Stop waits until the follower has seen the event with number last, for a while, and ends it.
func (f *Follower) Stop(last uint64) ([]Event, error) {
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for late := false; !late && !f.saw(last); {
		select {
		case <-tick.C:
		case <-deadline.C:
			late = true
		case <-f.done:
			late = true
		}
	}
	f.cancel(errors.New("enough was followed"))
	<-f.done
	return f.Events(), f.err
}

func (f *Follower) saw(last uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events) > 0 && f.events[len(f.events)-1].Seq >= last
}

// ReadJournal reads all events of the sandbox that are kept.
func (s *Sandbox) ReadJournal() []Event {
	s.d.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(s.d.t.Context()), Patience, errors.New("reading the journal took too long"))
	defer cancel()
	stream, err := s.d.Events().StreamEvents(ctx, &agentixv1.StreamEventsRequest{Sandbox: s.Name})
	var all []Event
	for err == nil {
		var r *agentixv1.StreamEventsResponse
		if r, err = stream.Recv(); err == nil {
			for _, ev := range r.GetEvents() {
				all = append(all, Reduce(ev))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		s.d.t.Fatalf("read the journal of %s: %v", s.Name, err)
	}
	return all
}
