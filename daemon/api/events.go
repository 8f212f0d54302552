package api

import (
	"fmt"

	"github.com/agentixd/agentixd/daemon/events"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Bounds of a StreamEventsRequest.
const (
	maxNamespaces     = 64
	maxNamespaceBytes = 256
	maxCursorBytes    = 256
)

// responseBytes is about how large a response gets, unless one event is larger. gRPC keeps up
// to two for a client that does not read, each in a buffer of a power of two.
const responseBytes = 220 << 10

// eventService serves EventService from the journal.
type eventService struct {
	agentixv1.UnimplementedEventServiceServer
	journal *events.Journal
}

// StreamEvents sends events as they are read.
func (s *eventService) StreamEvents(r *agentixv1.StreamEventsRequest, stream agentixv1.EventService_StreamEventsServer) error {
	query, err := fromStreamRequest(r)
	if err != nil {
		return err
	}
	send := func(evs []events.Event, cursor string) error {
		for {
			n := fitting(evs)
			response := &agentixv1.StreamEventsResponse{Cursor: cursor, Events: make([]*agentixv1.Event, n)}
			for i := range n {
				response.Events[i] = toEvent(&evs[i])
			}
			if n < len(evs) {
				response.Cursor = evs[n-1].Cursor
			}
			if err := stream.Send(response); err != nil {
				return fmt.Errorf("send events: %w", err)
			}
			if evs = evs[n:]; len(evs) == 0 {
				return nil
			}
		}
	}
	if err := s.journal.Read(stream.Context(), query, send); err != nil {
		return named(err, "sandbox", r.GetSandbox())
	}
	return nil
}

// fitting is how many of evs one response takes: at least one, if there is any.
func fitting(evs []events.Event) int {
	bytes := 0
	for i := range evs {
		if bytes += evs[i].Size(); bytes > responseBytes && i > 0 {
			return i
		}
	}
	return len(evs)
}

func fromStreamRequest(r *agentixv1.StreamEventsRequest) (events.Query, error) {
	query := events.Query{MinLevel: r.GetMinLevel(), CallID: r.GetCallId(), Follow: r.GetFollow(), Greet: true, Namespaces: r.GetNamespaces()}
	if r.GetSandbox() != sandboxPrefix+"-" {
		id, err := parseSandbox("sandbox", r.GetSandbox())
		if err != nil {
			return query, err
		}
		query.Sandbox = id
	}
	switch start := r.GetStart().(type) {
	case *agentixv1.StreamEventsRequest_After:
		query.After = start.After
	case *agentixv1.StreamEventsRequest_Tail:
		query.Tail = &start.Tail
	case *agentixv1.StreamEventsRequest_Since:
		if err := start.Since.CheckValid(); err != nil {
			return query, errs.Invalid("since", "is no valid time")
		}
		query.Since = start.Since.AsTime()
	}
	for _, kind := range r.GetKinds() {
		if _, known := agentixv1.EventKind_name[int32(kind)]; !known || kind == agentixv1.EventKind_EVENT_KIND_UNSPECIFIED {
			return query, errs.Invalid("kinds", "%d is no kind of event", kind)
		}
		query.Kinds = append(query.Kinds, events.Kind(kind))
	}
	if len(r.GetNamespaces()) > maxNamespaces {
		return query, errs.Invalid("namespaces", "must be at most %d", maxNamespaces)
	}
	for _, namespace := range r.GetNamespaces() {
		if len(namespace) > maxNamespaceBytes {
			return query, errs.Invalid("namespaces", "each must have at most %d bytes", maxNamespaceBytes)
		}
	}
	if len(r.GetAfter()) > maxCursorBytes {
		return query, errs.Invalid("after", "is no cursor of this API")
	}
	if len(r.GetCallId()) > wire.MaxCallIDBytes {
		return query, errs.Invalid("call_id", "must match [a-z0-9-]{1,63}")
	}
	return query, nil
}
