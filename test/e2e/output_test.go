package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// outputOf follows a call and hands every piece of its sandbox's standard output to take, up
// to the call's end; it returns how many events were lost.
func outputOf(t *testing.T, e *daemontest.Env, r *agentixv1.RemoteRequest, take func([]byte)) (lost uint64) {
	t.Helper()
	s, err := e.Events.StreamEvents(t.Context(), &agentixv1.StreamEventsRequest{
		Sandbox: r.GetSandbox(), Follow: true, Start: &agentixv1.StreamEventsRequest_Tail{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil { // it has begun
		t.Fatal(err)
	}
	done := make(chan answer, 1)
	go func() { done <- grpcUnix(t.Context(), t, e, r) }() // ends with the call
	for {
		response, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range response.GetEvents() {
			switch {
			case event.GetOutput().GetStream() == agentixv1.OutputStream_OUTPUT_STREAM_STDOUT:
				take(event.GetOutput().GetData())
			case event.GetGap() != nil:
				lost += event.GetGap().GetDropped()
			case event.GetCall().GetPhase() == agentixv1.CallPhase_CALL_PHASE_FINISHED && event.GetCallId() == r.GetCallId():
				if a := <-done; a.err != nil || a.st.Err() != nil {
					t.Fatalf("%s: %v, %v", r.GetCallable(), a.err, a.st)
				}
				return lost
			}
		}
	}
}

// Output is the bytes that were written, no more and no less, before the call's end.
func TestOutputIsTheBytesAsWritten(t *testing.T) {
	e, sandbox := start(t)
	const big = 10_000_000
	for i, c := range []struct{ callable, args, want string }{
		{"writes::printf", `["hello"]`, "hello"},
		{"writes::printf", `["\\n\\n\\na\\n\\n"]`, "\n\n\na\n\n"},
		{"writes::printf", `["one\\rtwo\\r\\n\\000\\033[31m"]`, "one\rtwo\r\n\x00\x1b[31m"},
		{"writes::pieces", `[[[255,254,10],[195],[169],[226,130],[172,10],[240,159]]]`, "\xff\xfe\n\xc3\xa9\xe2\x82\xac\n\xf0\x9f"},
		{"writes::printf", `[""]`, ""},
		{"writes::long_line", fmt.Sprintf("[%d]", big), ""},
	} {
		var got []byte
		lost := outputOf(t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: c.callable, Args: c.args, CallId: fmt.Sprintf("w%d", i)}, func(b []byte) { got = append(got, b...) })
		switch {
		case lost > 0:
			t.Errorf("%s%s: %d events were lost", c.callable, c.args, lost)
		case c.callable == "writes::long_line":
			if len(got) != big+1 || got[0] != 'x' || got[big-1] != 'x' || got[big] != '\n' {
				t.Errorf("a line of %d bytes came as %d", big, len(got))
			}
		case string(got) != c.want:
			t.Errorf("%s%s: got %q, want %q", c.callable, c.args, got, c.want)
		}
	}
}

// A burst of 200 MB comes through whole: what writes too fast is slowed.
func TestBurstOfOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 200 MB")
	}
	e, sandbox := start(t)
	const total = 200_000_000
	got, sum := 0, sha256.New()
	lost := outputOf(t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "writes::raw_flood", Args: fmt.Sprintf("[%d]", total), CallId: "burst"}, func(b []byte) {
		got += len(b)
		_, _ = sum.Write(b)
	})
	want := sha256.New()
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i)
	}
	for left := total; left > 0; left -= len(chunk) {
		_, _ = want.Write(chunk[:min(left, len(chunk))])
	}
	if lost != 0 || got != total || string(sum.Sum(nil)) != string(want.Sum(nil)) {
		t.Errorf("%d of %d bytes came, %d events lost, or they are others", got, total, lost)
	}
}

// A follower of all sandboxes sees each from its first event to its last, while many come and go.
func TestFollowerOfAllWhileSandboxesComeAndGo(t *testing.T) {
	e, first := start(t)
	const n = 12
	s, err := e.Events.StreamEvents(t.Context(), &agentixv1.StreamEventsRequest{Sandbox: "sandboxes/-", Follow: true, Start: &agentixv1.StreamEventsRequest_Tail{}})
	if err != nil {
		t.Fatal(err)
	}
	made := make(chan string, n)
	failed := make(chan error, n)
	for range 3 {
		go func() { // ends after its share
			for range n / 3 {
				failed <- func() error {
					box, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: e.Template})
					if err != nil {
						return err
					}
					made <- box.GetName()
					if a := grpcUnix(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: box.GetName(), Callable: "app::noisy", Args: "[5]"}); a.value != "5" {
						return fmt.Errorf("the call: %v, %v", a.err, a.st)
					}
					_, err = e.Sandboxes.DeleteSandbox(t.Context(), &agentixv1.DeleteSandboxRequest{Name: box.GetName()})
					return err
				}()
			}
		}()
	}
	seq, logs, ended := map[string]uint64{}, map[string]int{}, map[string]bool{}
	for len(ended) < n {
		response, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range response.GetEvents() {
			name := event.GetSandbox()
			if name != first {
				if seq[name]++; event.GetSeq() != seq[name] {
					t.Fatalf("%s: seq %d follows %d", name, event.GetSeq(), seq[name]-1)
				}
			}
			switch {
			case event.GetLog() != nil:
				logs[name]++
			case event.GetGap() != nil:
				t.Errorf("%s: %v", name, event.GetGap())
			case event.GetLifecycle().GetState() == agentixv1.SandboxState_SANDBOX_STATE_STOPPED:
				ended[name] = true
			}
		}
	}
	for range n {
		if err := <-failed; err != nil {
			t.Error(err)
		}
		if name := <-made; logs[name] != 5 {
			t.Errorf("%s: %d of 5 records", name, logs[name])
		}
	}
	if err := s.CloseSend(); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
