package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

// resource is the calls of a daemon over one protocol.
type resource interface {
	submit(r *agentixv1.RemoteRequest) (*agentixv1.Call, *status.Status)
	get(name string) (*agentixv1.Call, *status.Status)
	wait(name string, timeout *durationpb.Duration) (*agentixv1.Call, *status.Status)
	cancel(name string) (*agentixv1.Call, *status.Status)
	list(r *agentixv1.ListCallsRequest) (*agentixv1.ListCallsResponse, *status.Status)
}

type grpcCalls struct {
	ctx context.Context //nolint:containedctx // of the test
	c   agentixv1.RemoteServiceClient
}

func answered[M any](m M, err error) (M, *status.Status) { return m, status.Convert(err) }

func (g grpcCalls) submit(r *agentixv1.RemoteRequest) (*agentixv1.Call, *status.Status) {
	return answered(g.c.SubmitCall(g.ctx, &agentixv1.SubmitCallRequest{Call: r}))
}

func (g grpcCalls) get(name string) (*agentixv1.Call, *status.Status) {
	return answered(g.c.GetCall(g.ctx, &agentixv1.GetCallRequest{Name: name}))
}

func (g grpcCalls) wait(name string, timeout *durationpb.Duration) (*agentixv1.Call, *status.Status) {
	return answered(g.c.WaitCall(g.ctx, &agentixv1.WaitCallRequest{Name: name, Timeout: timeout}))
}

func (g grpcCalls) cancel(name string) (*agentixv1.Call, *status.Status) {
	return answered(g.c.CancelCall(g.ctx, &agentixv1.CancelCallRequest{Name: name}))
}

func (g grpcCalls) list(r *agentixv1.ListCallsRequest) (*agentixv1.ListCallsResponse, *status.Status) {
	return answered(g.c.ListCalls(g.ctx, r))
}

// restCalls reads answers by protojson, after value was put into quotes again.
type restCalls struct {
	t      *testing.T
	client *http.Client
	base   string
}

func (c restCalls) do(method, path string, body []byte, header ...string) (int, http.Header, []byte) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.base+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, value := range header {
		request.Header.Add("Prefer", value)
	}
	response, err := c.client.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, response.Header, text
}

func (c restCalls) parse(text []byte) *agentixv1.Call {
	c.t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		c.t.Fatalf("%q: %v", text, err)
	}
	var outcome map[string]json.RawMessage
	if raw, ok := members["outcome"]; ok {
		if err := json.Unmarshal(raw, &outcome); err != nil {
			c.t.Fatal(err)
		}
		if value, ok := outcome["value"]; ok {
			outcome["value"], _ = json.Marshal(string(value))
		}
		members["outcome"], _ = json.Marshal(outcome)
	}
	quoted, _ := json.Marshal(members)
	call := &agentixv1.Call{}
	if err := protojson.Unmarshal(quoted, call); err != nil {
		c.t.Fatalf("%q: %v", quoted, err)
	}
	return call
}

func (c restCalls) call(method, path string, body []byte) (*agentixv1.Call, *status.Status) {
	c.t.Helper()
	code, _, text := c.do(method, path, body)
	if code != http.StatusOK {
		return nil, parseStatus(c.t, text)
	}
	return c.parse(text), nil
}

func (c restCalls) submit(r *agentixv1.RemoteRequest) (*agentixv1.Call, *status.Status) {
	c.t.Helper()
	return c.call(http.MethodPost, r.GetSandbox()+"/calls", restBody(c.t, r))
}

func (c restCalls) get(name string) (*agentixv1.Call, *status.Status) {
	c.t.Helper()
	return c.call(http.MethodGet, name, nil)
}

func (c restCalls) wait(name string, timeout *durationpb.Duration) (*agentixv1.Call, *status.Status) {
	c.t.Helper()
	body, err := protojson.Marshal(&agentixv1.WaitCallRequest{Timeout: timeout})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.call(http.MethodPost, name+":wait", body)
}

func (c restCalls) cancel(name string) (*agentixv1.Call, *status.Status) {
	c.t.Helper()
	return c.call(http.MethodPost, name+":cancel", nil)
}

func (c restCalls) list(r *agentixv1.ListCallsRequest) (*agentixv1.ListCallsResponse, *status.Status) {
	c.t.Helper()
	query := url.Values{}
	if r.GetPageSize() != 0 {
		query.Set("page_size", fmt.Sprint(r.GetPageSize()))
	}
	if r.GetPageToken() != "" {
		query.Set("page_token", r.GetPageToken())
	}
	for _, s := range r.GetStates() {
		query.Add("states", s.String())
	}
	code, _, text := c.do(http.MethodGet, r.GetParent()+"/calls?"+query.Encode(), nil)
	if code != http.StatusOK {
		return nil, parseStatus(c.t, text)
	}
	out := &agentixv1.ListCallsResponse{}
	if err := protojson.Unmarshal(text, out); err != nil {
		c.t.Fatalf("%q: %v", text, err)
	}
	return out, nil
}

// resources are the ways to use calls, which must mean the same.
func resources(t *testing.T, e *daemontest.Env) map[string]resource {
	t.Helper()
	return map[string]resource{
		"gRPC": grpcCalls{t.Context(), e.Remote},
		"REST": restCalls{t, e.HTTP, e.URL},
	}
}

// ok is the call, of which there is no reason to fail.
func ok(t *testing.T) func(c *agentixv1.Call, st *status.Status) *agentixv1.Call {
	return func(c *agentixv1.Call, st *status.Status) *agentixv1.Call {
		t.Helper()
		if st.Code() != codes.OK {
			t.Fatal(st)
		}
		return c
	}
}

func wantStatus(t *testing.T, what string, st *status.Status, code codes.Code, why string) {
	t.Helper()
	if st.Code() != code {
		t.Errorf("%s: got %v, want %s", what, st, code)
		return
	}
	if got := reason(t, st); got != why {
		t.Errorf("%s: got reason %s, want %s", what, got, why)
	}
}

// A submitted call goes on without its caller, is cancelled only by CancelCall, and everyone
// who asks gets the same outcome.
func TestP3_SubmittedCalls(t *testing.T) {
	e, sandbox := start(t)
	for protocol, c := range resources(t, e) {
		t.Run(protocol, func(t *testing.T) {
			must := ok(t)
			t.Run("result", func(t *testing.T) {
				file := newName()
				request := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::wait_for", Args: fmt.Sprintf("[%q]", file)}
				call := must(c.submit(request))
				name := call.GetName()
				if call.GetState() != agentixv1.CallState_CALL_STATE_RUNNING || call.GetOutcome() != nil || !strings.HasPrefix(name, sandbox+"/calls/") ||
					call.GetCallable() != "app::wait_for" || call.GetAcceptTime() == nil || call.GetFinishTime() != nil {
					t.Errorf("submitted: %v", call)
				}
				begin := time.Now()
				if call := must(c.wait(name, after(0))); call.GetState() != agentixv1.CallState_CALL_STATE_RUNNING {
					t.Errorf("not waited for: %v", call)
				}
				t.Logf("WaitCall with 0s took %s", time.Since(begin))
				if call := must(c.wait(name, after(50*time.Millisecond))); call.GetState() != agentixv1.CallState_CALL_STATE_RUNNING || call.GetOutcome() != nil {
					t.Errorf("waited for 50 ms: %v", call)
				}
				mark(t, e, sandbox, file, "go")
				call = must(c.wait(name, nil))
				if call.GetState() != agentixv1.CallState_CALL_STATE_SUCCEEDED || call.GetOutcome().GetValue() != `"went on"` || call.GetFinishTime() == nil {
					t.Errorf("waited for: %v", call)
				}
				if got := must(c.cancel(name)); got.GetState() != agentixv1.CallState_CALL_STATE_SUCCEEDED || got.GetOutcome().GetValue() != `"went on"` {
					t.Errorf("cancelled after its end: %v", got)
				}
				// By its id and the same request it is this call for Remote, too.
				request.CallId = filepath.Base(name)
				isValue(`"went on"`)(t, grpcUnix(t.Context(), t, e, request))
				if again := must(c.submit(request)); again.GetName() != name || again.GetOutcome().GetValue() != `"went on"` {
					t.Errorf("submitted again: %v", again)
				}
				request.Args = "[1]"
				_, st := c.submit(request)
				wantStatus(t, "another request", st, codes.AlreadyExists, "CALL_ID_CONFLICT")
			})
			t.Run("error", func(t *testing.T) {
				name := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::fail", Args: `["boom"]`})).GetName()
				call := must(c.wait(name, nil))
				if call.GetState() != agentixv1.CallState_CALL_STATE_FAILED || call.GetErrorType() != "Unhappy" || call.GetOutcome().GetError().GetMessage() != "boom" {
					t.Errorf("got %v", call)
				}
			})
			t.Run("cancel", func(t *testing.T) {
				file := newName()
				name := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::hang", Args: fmt.Sprintf("[%q]", file)})).GetName()
				await.True(t, func() bool { return marked(t, e, sandbox, file, "started") }, "the function to run")
				call := must(c.cancel(name))
				if call.GetState() != agentixv1.CallState_CALL_STATE_CANCELLED || call.GetErrorType() != "Cancelled" || !call.GetOutcome().GetError().GetCancelled() {
					t.Errorf("got %v", call)
				}
				await.True(t, func() bool { return marked(t, e, sandbox, file, "cancelled") }, "the function to see its cancellation")
				await.True(t, func() bool { return !must(c.get(name)).GetStillRunning() }, "the function to have returned")
			})
			t.Run("deadline", func(t *testing.T) {
				begin := time.Now()
				name := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::hang", Args: fmt.Sprintf("[%q]", newName()), Timeout: after(200 * time.Millisecond)})).GetName()
				call := must(c.wait(name, nil))
				t.Logf("a timeout of 200 ms was told after %s", time.Since(begin))
				if call.GetState() != agentixv1.CallState_CALL_STATE_FAILED || call.GetErrorType() != "DeadlineExceeded" {
					t.Errorf("got %v", call)
				}
			})
			t.Run("refusals", func(t *testing.T) {
				_, st := c.get(sandbox + "/calls/nope")
				wantStatus(t, "get", st, codes.NotFound, "CALL_NOT_FOUND")
				_, st = c.wait(sandbox+"/calls/nope", nil)
				wantStatus(t, "wait", st, codes.NotFound, "CALL_NOT_FOUND")
				_, st = c.cancel(sandbox + "/calls/nope")
				wantStatus(t, "cancel", st, codes.NotFound, "CALL_NOT_FOUND")
				if got := detail[*errdetails.ResourceInfo](st).GetResourceName(); got != sandbox+"/calls/nope" {
					t.Errorf("resource %q", got)
				}
				name := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"})).GetName()
				_, st = c.get("sandboxes/other/calls/" + filepath.Base(name))
				wantStatus(t, "get of another sandbox", st, codes.NotFound, "CALL_NOT_FOUND")
				_, st = c.get(sandbox + "/calls/UPPER")
				wantStatus(t, "malformed", st, codes.InvalidArgument, "INVALID_FIELD")
				_, st = c.wait(name, after(-time.Second))
				wantStatus(t, "negative timeout", st, codes.InvalidArgument, "INVALID_FIELD")
				_, st = c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox})
				wantStatus(t, "no callable", st, codes.InvalidArgument, "INVALID_FIELD")
				_, st = c.submit(&agentixv1.RemoteRequest{Sandbox: "sandboxes/nowhere", Callable: "app::add"})
				wantStatus(t, "no sandbox", st, codes.NotFound, "SANDBOX_NOT_FOUND")
			})
		})
	}
}

// Submitted calls outlive the daemon, and finished ones keep their outcome, a large one too.
func TestP3_SubmittedCallsOutliveTheDaemon(t *testing.T) {
	e, sandbox := start(t)
	must := ok(t)
	c := resources(t, e)["gRPC"]
	file := newName()
	running := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::wait_for", Args: fmt.Sprintf("[%q]", file)})).GetName()
	large := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::text", Args: "[400000]"})).GetName()
	failed := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::fail", Args: `["boom"]`})).GetName()
	value := must(c.wait(large, nil)).GetOutcome().GetValue()
	traceback := must(c.wait(failed, nil)).GetOutcome().GetError().GetTraceback()
	unnamed, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", Args: "[1,2]"})
	if err != nil {
		t.Fatal(err)
	}
	e.Config.ShutdownGrace = 0
	e.Stop(t)
	e.Boot(t)
	for protocol, c := range resources(t, e) {
		if call := must(c.get(running)); call.GetState() != agentixv1.CallState_CALL_STATE_RUNNING {
			t.Errorf("%s: running: %v", protocol, call)
		}
		if call := must(c.get(large)); call.GetOutcome().GetValue() != value || len(value) != 400002 {
			t.Errorf("%s: large: %d bytes, state %v", protocol, len(call.GetOutcome().GetValue()), call.GetState())
		}
		if call := must(c.get(failed)); call.GetOutcome().GetError().GetTraceback() != traceback || call.GetErrorType() != "Unhappy" {
			t.Errorf("%s: failed: %v", protocol, call)
		}
		// What was told to its only caller is not kept longer than the daemon.
		if call := must(c.get(sandbox + "/calls/" + unnamed.GetCallId())); !call.GetOutcomeExpired() || call.GetState() != agentixv1.CallState_CALL_STATE_SUCCEEDED {
			t.Errorf("%s: unnamed: %v", protocol, call)
		}
	}
	mark(t, e, sandbox, file, "go")
	if call := must(resources(t, e)["REST"].wait(running, nil)); call.GetOutcome().GetValue() != `"went on"` {
		t.Errorf("running: %v", call)
	}
}

// An outcome that is no longer kept says so, and how the call ended is still known.
func TestOutcomeThatIsNoLongerKept(t *testing.T) {
	e, sandbox := start(t)
	request := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::text", Args: "[400000]", CallId: "large"}
	if a := grpcUnix(t.Context(), t, e, request); len(a.value) != 400002 {
		t.Fatalf("got %v, %v", a.err, a.st)
	}
	e.Stop(t)
	if err := os.Remove(filepath.Join(e.Config.StateDir, "outcomes", "large")); err != nil {
		t.Fatal(err)
	}
	e.Boot(t)
	for name, remote := range protocols {
		t.Run(name, func(t *testing.T) {
			isError("ResultUnavailable", "no longer kept")(t, remote(t.Context(), t, e, request))
		})
	}
	for name, c := range resources(t, e) {
		if call := ok(t)(c.get(sandbox + "/calls/large")); !call.GetOutcomeExpired() || call.GetState() != agentixv1.CallState_CALL_STATE_SUCCEEDED {
			t.Errorf("%s: %v", name, call)
		}
	}
}

func TestListCalls(t *testing.T) {
	e, sandbox := start(t)
	other := e.Sandbox(t)
	must := ok(t)
	file := newName()
	submit := func(sandbox, callable, args string, end bool) string {
		c := resources(t, e)["gRPC"]
		name := must(c.submit(&agentixv1.RemoteRequest{Sandbox: sandbox, Callable: callable, Args: args})).GetName()
		if end {
			must(c.wait(name, nil))
		}
		return name
	}
	one := submit(sandbox, "app::add", "[1,2]", true)
	two := submit(sandbox, "app::fail", `["x"]`, true)
	three := submit(other, "app::add", "[1,2]", true)
	four := submit(sandbox, "app::wait_for", fmt.Sprintf("[%q]", file), false)
	check := func(t *testing.T, c resource, r *agentixv1.ListCallsRequest, want ...string) string {
		t.Helper()
		response, st := c.list(r)
		var got []string
		for _, call := range response.GetCalls() {
			got = append(got, call.GetName())
			if call.GetOutcome() != nil || call.GetOutcomeExpired() {
				t.Errorf("%v has an outcome: %v", r, call)
			}
		}
		if st.Code() != codes.OK || !slices.Equal(got, want) {
			t.Errorf("%v: got %v, %v, want %v", r, got, st, want)
		}
		return response.GetNextPageToken()
	}
	states := func(s ...agentixv1.CallState) []agentixv1.CallState { return s }
	for name, c := range resources(t, e) {
		t.Run(name, func(t *testing.T) {
			check(t, c, &agentixv1.ListCallsRequest{Parent: sandbox}, four, two, one)
			check(t, c, &agentixv1.ListCallsRequest{Parent: "sandboxes/-"}, four, three, two, one)
			check(t, c, &agentixv1.ListCallsRequest{Parent: sandbox, States: states(agentixv1.CallState_CALL_STATE_RUNNING, agentixv1.CallState_CALL_STATE_FAILED)}, four, two)
			check(t, c, &agentixv1.ListCallsRequest{Parent: sandbox, States: states(agentixv1.CallState_CALL_STATE_CANCELLED)})
			token := check(t, c, &agentixv1.ListCallsRequest{Parent: "sandboxes/-", PageSize: 3}, four, three, two)
			if token = check(t, c, &agentixv1.ListCallsRequest{Parent: "sandboxes/-", PageSize: 3, PageToken: token}, one); token != "" {
				t.Errorf("token %q after the last page", token)
			}
			_, st := c.list(&agentixv1.ListCallsRequest{Parent: "sandboxes/nowhere"})
			wantStatus(t, "unknown sandbox", st, codes.NotFound, "SANDBOX_NOT_FOUND")
			for what, r := range map[string]*agentixv1.ListCallsRequest{
				"token":  {Parent: sandbox, PageToken: "rubbish"},
				"size":   {Parent: sandbox, PageSize: -1},
				"states": {Parent: sandbox, States: states(agentixv1.CallState_CALL_STATE_UNSPECIFIED)},
			} {
				_, st := c.list(r)
				wantStatus(t, what, st, codes.InvalidArgument, "INVALID_FIELD")
			}
		})
	}
	// Calls of a sandbox that is gone are known for their time.
	if _, err := e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: sandbox}); err != nil {
		t.Fatal(err)
	}
	for name, c := range resources(t, e) {
		t.Run("deleted, "+name, func(t *testing.T) {
			check(t, c, &agentixv1.ListCallsRequest{Parent: sandbox}, four, two, one)
			check(t, c, &agentixv1.ListCallsRequest{Parent: sandbox, States: states(agentixv1.CallState_CALL_STATE_CANCELLED)})
			if call := must(c.get(one)); call.GetOutcome().GetValue() != "3" {
				t.Errorf("got %v", call)
			}
			if call := must(c.get(four)); call.GetErrorType() != "SandboxLost" || call.GetState() != agentixv1.CallState_CALL_STATE_FAILED {
				t.Errorf("got %v", call)
			}
		})
	}
}

// `Prefer: respond-async` makes a call a resource, over the same path as Remote.
func TestPreferRespondAsync(t *testing.T) {
	e, sandbox := start(t)
	c := restCalls{t, e.HTTP, e.URL}
	must := ok(t)
	file := newName()
	body := fmt.Appendf(nil, `{"callable": "app::wait_for", "args": [%q]}`, file)
	for _, prefer := range []string{"respond-async", "respond-async, wait=0", `foo; bar="a, b", Respond-Async ; x, wait="0"`} {
		code, header, text := c.do(http.MethodPost, sandbox+":remote", body, prefer)
		if code != http.StatusAccepted || !strings.HasPrefix(header.Get("Preference-Applied"), "respond-async") {
			t.Fatalf("%s: got %d %v %s", prefer, code, header, text)
		}
		call := c.parse(text)
		if got, want := header.Get("Location"), "/v1/"+call.GetName(); got != want || call.GetState() != agentixv1.CallState_CALL_STATE_RUNNING {
			t.Errorf("Location %q, want %q; %v", got, want, call)
		}
	}
	waited := fmt.Appendf(nil, `{"callable": "app::wait_for", "args": [%q], "callId": "waited"}`, file)
	if code, header, text := c.do(http.MethodPost, sandbox+":remote", waited, "respond-async, wait=1"); code != http.StatusAccepted || header.Get("Preference-Applied") != "respond-async, wait=1" {
		t.Errorf("no outcome within a second: %d %v %s", code, header, text)
	}
	mark(t, e, sandbox, file, "go")
	if code, header, text := c.do(http.MethodPost, sandbox+":remote", waited, "respond-async", "wait=30"); code != http.StatusOK || string(text) != `{"callId":"waited","value":"went on"}` || header.Get("Preference-Applied") != "wait=30" {
		t.Errorf("outcome within 30 s: %d %v %s", code, header, text)
	}
	// Numbers keep their digits in a Call, too.
	_, _, text := c.do(http.MethodPost, sandbox+":remote", []byte(`{"callable": "app::same", "args": [[9007199254740993, 1.0, 1]], "callId": "digits"}`), "respond-async")
	must(c.wait(c.parse(text).GetName(), nil))
	if _, _, text := c.do(http.MethodGet, sandbox+"/calls/digits", nil); !strings.Contains(string(text), `"value":[9007199254740993,1.0,1]`) {
		t.Errorf("got %s", text)
	}
	for what, row := range map[string]struct {
		body, prefer, reason string
		code                 int
	}{
		"arguments that do not fit":  {`{"callable": "app::add", "args": ["x", 1]}`, "respond-async, wait=30", "ARGUMENTS_INVALID", 400},
		"no callable":                {`{}`, "respond-async", "INVALID_FIELD", 400},
		"an unknown member":          {`{"callable": "app::add", "nope": 1}`, "respond-async", "INVALID_FIELD", 400},
		"no JSON":                    {`{`, "respond-async", "INVALID_FIELD", 400},
		"another request of this id": {`{"callable": "app::add", "callId": "waited"}`, "respond-async", "CALL_ID_CONFLICT", 409},
	} {
		code, _, text := c.do(http.MethodPost, sandbox+":remote", []byte(row.body), row.prefer)
		if code != row.code || reason(t, parseStatus(t, text)) != row.reason {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}
	for _, prefer := range []string{"respond-async=1", "wait=5", "respond-asynchronous", "\"respond-async", "wait=-1, return=minimal", ";respond-async", "=respond-async"} {
		code, header, text := c.do(http.MethodPost, sandbox+":remote", []byte(`{"callable": "app::add", "args": [1, 2]}`), prefer)
		if code != http.StatusOK || !strings.Contains(string(text), `"value":3`) || header.Get("Preference-Applied") != "" {
			t.Errorf("%s: %d %v %s", prefer, code, header, text)
		}
	}
}
