package e2e

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
)

// While 300 browsers and 200 gRPC clients follow, calls over REST and gRPC are answered, and
// each follower hears of them.
func TestR7_FiveHundredFollowersAndACall(t *testing.T) {
	e, sandbox := start(t)
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(errors.New("over"))
	var following, heard sync.WaitGroup
	for range 300 {
		following.Add(1)
		heard.Go(func() {
			response := openEvents(ctx, t, e, sandbox+"/events?follow=true&tail=0&kinds=EVENT_KIND_CALL", "")
			defer response.Body.Close()
			following.Done()
			if m, ok := newEventSource(response.Body).next(); !ok || m.name != "call" {
				t.Errorf("a browser got %v", m)
			}
		})
	}
	for range 200 {
		following.Add(1)
		heard.Go(func() {
			s, err := e.Events.StreamEvents(ctx, &agentixv1.StreamEventsRequest{
				Sandbox: sandbox, Follow: true, Kinds: []agentixv1.EventKind{agentixv1.EventKind_EVENT_KIND_CALL}, Start: &agentixv1.StreamEventsRequest_Tail{},
			})
			if err == nil {
				_, err = s.Recv()
			}
			following.Done()
			if err != nil {
				t.Error(err)
				return
			}
			if response, err := s.Recv(); err != nil || response.GetEvents()[0].GetCall() == nil {
				t.Errorf("a client got %v, %v", response, err)
			}
		})
	}
	following.Wait()
	for _, call := range protocols {
		isValue("3")(t, call(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"}))
	}
	heard.Wait()
}

// Followers that stopped reading take little memory, however much is written meanwhile, and
// neither the one who writes nor those who read wait for them.
func TestR7_StalledClientsCostLittle(t *testing.T) {
	e, sandbox := start(t)
	const stalled, lines, size = 60, 30_000, 1000 // 30 MB
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(errors.New("over"))
	for i := range stalled {
		if i%3 == 0 {
			if _, err := e.Events.StreamEvents(ctx, &agentixv1.StreamEventsRequest{Sandbox: sandbox, Follow: true}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		response := openEvents(ctx, t, e, []string{"sandboxes/-", sandbox}[i%2]+"/events?follow=true", "")
		defer response.Body.Close()
	}
	heap := func() uint64 {
		var stats runtime.MemStats
		for range 3 { // pools let go at the second
			runtime.GC()
		}
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc + stats.StackInuse
	}
	before := heap()
	got := 0
	lost := outputOf(t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "writes::flood", Args: fmt.Sprintf("[%d,%d]", lines, size), CallId: "flood"}, func(b []byte) { got += len(b) })
	if got != lines*size || lost != 0 {
		t.Errorf("beside stalled followers %d of %d bytes came, %d events lost", got, lines*size, lost)
	}
	per := int64(heap()-before) / stalled
	t.Logf("%d KiB for each stalled follower, daemon and client together", per>>10)
	if per > 4<<20 {
		t.Errorf("a stalled follower takes %d bytes", per)
	}
	other := e.Sandbox(t)
	isValue("3")(t, restTCP(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: other, Callable: "app::add", Args: "[1,2]"}))
	leave(errors.New("the clients leave"))
	await.True(t, func() bool { return heap() < before+16<<20 }, "the memory to be given back")
}
