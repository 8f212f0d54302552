package external

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/faulttest"
)

// numbered checks that the lines 0, 1, 2 … come once each and in order.
type numbered struct {
	next atomic.Int64
	gaps atomic.Int64
	ends atomic.Int64 // how often the stream ended
}

func (n *numbered) take(t *testing.T, who, message string) {
	k, err := strconv.ParseInt(message, 10, 64)
	if want := n.next.Load(); err != nil || k != want {
		t.Errorf("%s: line %q, want %d", who, message, want)
	}
	n.next.Store(k + 1)
}

// followGRPC follows by cursor until ctx ends.
func (n *numbered) followGRPC(ctx context.Context, t *testing.T, d *faulttest.Daemon, box string) {
	cursor := ""
	for ctx.Err() == nil {
		request := &agentixv1.StreamEventsRequest{Sandbox: box, Follow: true}
		if cursor != "" {
			request.Start = &agentixv1.StreamEventsRequest_After{After: cursor}
		}
		stream, err := d.Events().StreamEvents(ctx, request)
		for err == nil {
			var page *agentixv1.StreamEventsResponse
			if page, err = stream.Recv(); err != nil {
				break
			}
			for _, event := range page.GetEvents() {
				if event.GetLog().GetLogger() == "app.numbered" {
					n.take(t, "gRPC", event.GetLog().GetMessage())
				} else if event.GetGap() != nil {
					n.gaps.Add(1)
				}
			}
			cursor = page.GetCursor()
		}
		n.ends.Add(1)
		if code := status.Code(err); code != codes.Unavailable && ctx.Err() == nil {
			t.Errorf("gRPC: the stream ended with %v", err)
			return
		}
	}
}

// followSSE does the same as a browser would, over the Unix socket.
func (n *numbered) followSSE(ctx context.Context, t *testing.T, d *faulttest.Daemon, box string) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.Socket())
	}}}
	defer client.CloseIdleConnections()
	id := ""
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agentixd/v1/"+box+"/events?follow=true&kinds=EVENT_KIND_LOG", nil)
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Accept", "text/event-stream")
		if id != "" {
			request.Header.Set("Last-Event-ID", id)
		}
		response, err := client.Do(request)
		n.ends.Add(1)
		if err != nil { // no daemon at the moment
			pause(ctx)
			continue
		}
		if response.StatusCode == http.StatusOK {
			id = n.readSSE(t, response, id)
		} else if response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("SSE: HTTP %d", response.StatusCode)
		}
		_ = response.Body.Close()
	}
}

func (n *numbered) readSSE(t *testing.T, response *http.Response, id string) string {
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	name, buffer, data := "", id, ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			buffer = value
		case "data":
			data = value
		case "":
			id = buffer // only what came whole counts
			var event struct {
				Log struct{ Logger, Message string }
			}
			if name == "log" && json.Unmarshal([]byte(data), &event) == nil && event.Log.Logger == "app.numbered" {
				n.take(t, "SSE", event.Log.Message)
			} else if name == "gap" {
				n.gaps.Add(1)
			}
			name, data = "", ""
		}
	}
	return id
}

func pause(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// TestR5_R6_NumberedLinesUnderCutsAndKills: the link to the runtime is cut every two seconds
// and the daemon is killed five times while 30 000 lines are logged: who follows by cursor
// sees each once and in order.
func TestR5_R6_NumberedLinesUnderCutsAndKills(t *testing.T) {
	const n, kills = 30000, 5
	p := newProxy(t, ourOpen(t))
	d := faulttest.NewDaemon(t, faulttest.Build(t))
	d.Args = []string{"--external-allow", "unix://" + os.TempDir()}
	d.Start()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 4*time.Minute, errors.New("it took too long"))
	defer cancel()
	made, err := d.Sandboxes().CreateSandbox(ctx, &agentixv1.CreateSandboxRequest{
		Sandbox: &agentixv1.Sandbox{Provider: "external", Runtime: &agentixv1.Runtime{Url: p.url()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var byGRPC, bySSE numbered
	following, leave := context.WithCancelCause(ctx)
	var followers, others sync.WaitGroup
	defer func() { leave(errors.New("over")); followers.Wait(); others.Wait() }()
	followers.Go(func() { byGRPC.followGRPC(following, t, d, made.GetName()) })
	followers.Go(func() { bySSE.followSSE(following, t, d, made.GetName()) })
	cuts := 0
	others.Go(func() { // cuts until the test ends
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.cut(false)
				cuts++
			case <-following.Done():
				return
			}
		}
	})
	result := make(chan *agentixv1.RemoteResponse, 1)
	others.Go(func() { // ends with the call, which outlives the daemons
		for following.Err() == nil {
			r, err := d.Remote(0).Remote(following, &agentixv1.RemoteRequest{
				Sandbox: made.GetName(), CallId: "numbered", Callable: "app::numbered", Args: fmt.Sprintf("[%d, 12.0]", n),
			})
			if err == nil {
				result <- r
				return
			}
			pause(following)
		}
	})
	for k := range kills {
		await.True(t, func() bool { return byGRPC.next.Load() >= int64(n*(k+1)/(kills+2)) }, "lines before the next kill")
		d.Kill()
		d.Start()
	}
	if r := <-result; r.GetValue() != strconv.Itoa(n) {
		t.Errorf("the call: %v", r)
	}
	await.True(t, func() bool { return byGRPC.next.Load() >= n && bySSE.next.Load() >= n }, "the last lines")
	leave(errors.New("all was seen"))
	followers.Wait()
	others.Wait()
	if byGRPC.gaps.Load() > 0 || bySSE.gaps.Load() > 0 {
		t.Errorf("gaps: %d by gRPC, %d by SSE", byGRPC.gaps.Load(), bySSE.gaps.Load())
	}
	t.Logf("%d lines, %d cuts, %d kills; streams ended %d times by gRPC, %d by SSE", n, cuts, kills, byGRPC.ends.Load(), bySSE.ends.Load())
	if cuts < 3 {
		t.Errorf("only %d cuts: the lines came too fast for the test", cuts)
	}
}
