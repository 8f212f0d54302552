package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
)

// P2: what a function computes and what it is given keep every digit, through each protocol.
func TestP2_NumbersAreExact(t *testing.T) {
	e, sandbox := start(t)
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for _, c := range []struct{ callable, args, want string }{
		{"app::computed", `["2**53+1"]`, `9007199254740993`},
		{"app::computed", `["2**70"]`, `1180591620717411303424`},
		{"app::computed", `["-2**70"]`, `-1180591620717411303424`},
		{"app::computed", `["int one"]`, `1`},
		{"app::computed", `["float one"]`, `1.0`},
		{"app::computed", `["minus zero"]`, `-0.0`},
		{"app::computed", `["1e22"]`, `1e+22`},
		{"app::computed", `["tenth"]`, `0.1`},
		{"app::computed", `["tiny"]`, `5e-324`},
		{"app::computed", `["huge"]`, `1.7976931348623157e+308`},
		{"app::power", `[2,70]`, `1180591620717411303424`},
		{"app::add", `[1180591620717411303424,9007199254740993]`, `1180600627916666044417`},
		{"app::kind", `[9007199254740993]`, `"int:9007199254740993"`},
		{"app::kind", `[1]`, `"int:1"`},
		{"app::kind", `[1.0]`, `"float:1.0"`},
		{"app::kind", `[-0.0]`, `"float:-0.0"`},
		{"app::kind", `[-0]`, `"int:0"`},
		{"app::kind", `[1e22]`, `"float:1e+22"`},
		{"app::kind", `[1180591620717411303424]`, `"int:1180591620717411303424"`},
		{"app::same", `[[1,1.0,-0.0,1e+22,null,true,"\u00e9"]]`, `[1,1.0,-0.0,1e+22,null,true,"é"]`},
		{"app::nested", `[200]`, deep},
		{"app::same", `[` + deep + `]`, deep},
		{"app::depth_of", `[` + deep + `]`, `200`},
	} {
		for name, call := range protocols {
			got := call(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: c.callable, Args: c.args})
			if got.value != c.want {
				t.Errorf("%s%s by %s: got %.200s %v %v, want %.200s", c.callable, c.args, name, got.value, got.err, got.st, c.want)
			}
		}
	}
}

// The bytes of a REST answer are the JSON that the worker wrote, whatever strings it holds.
func TestRESTBytesAreVerbatim(t *testing.T) {
	e, sandbox := start(t)
	for i, value := range []string{`"\",\"error\":{}"`, `{"callId":"x","value":1,"error":{"type":"y"}}`, `"}"`, `""`, `null`, `{}`, `[]`} {
		id := fmt.Sprintf("c-%d", i)
		code, text := post(t, e, sandbox, fmt.Sprintf(`{"callable":"app::same","args":[%s],"callId":%q}`, value, id))
		if want := fmt.Sprintf(`{"callId":%q,"value":%s}`, id, value); code != http.StatusOK || text != want {
			t.Errorf("got %d %s, want %s", code, text, want)
		}
	}
}

func TestKeywordAndPositionalArguments(t *testing.T) {
	e, sandbox := start(t)
	want := `{"args":[1,[2]],"kwargs":{"a":{"b":3},"é":null}}`
	for name, call := range protocols {
		got := call(t.Context(), t, e, &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::echo", Args: `[1, [2]]`, Kwargs: `{"a": {"b": 3}, "é": null}`})
		if got.value != want {
			t.Errorf("%s: got %s %v %v, want %s", name, got.value, got.err, got.st, want)
		}
	}
}

func TestMsgpackArguments(t *testing.T) {
	e, sandbox := start(t)
	// [[3, 4], {}]: add(3, 4) = 7
	arguments := []byte{0x92, 0x92, 3, 4, 0x80}
	request := &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add", BinaryArguments: &agentixv1.RemoteRequest_MsgpackArguments{MsgpackArguments: arguments}}
	response, err := e.Remote.Remote(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.GetMsgpackValue(); !bytes.Equal(got, []byte{7}) {
		t.Errorf("got %x, %v", got, response)
	}
	request.ResultEncoding = agentixv1.Encoding_ENCODING_JSON
	for name, call := range protocols {
		if got := call(t.Context(), t, e, request); got.value != "7" {
			t.Errorf("%s: got %s %v %v", name, got.value, got.err, got.st)
		}
	}
}

func TestPickleArguments(t *testing.T) {
	e, sandbox := start(t)
	// pickle.dumps(((3, 4), {}), 2)
	arguments := []byte("\x80\x02K\x03K\x04\x86q\x00}q\x01\x86q\x02.")
	response, err := e.Remote.Remote(t.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: "app::add",
		BinaryArguments: &agentixv1.RemoteRequest_PickleArguments{PickleArguments: arguments}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := response.GetPickleValue(), []byte("\x80\x04K\x07."); !bytes.Equal(got, want) {
		t.Errorf("got %q (%v), want %q", got, response, want)
	}
}

func TestContextReachesTheFunction(t *testing.T) {
	e, sandbox := start(t)
	parent := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	n := 0
	for name, call := range protocols {
		n++
		id := fmt.Sprintf("call-%d", n)
		got := call(t.Context(), t, e, &agentixv1.RemoteRequest{
			Sandbox: sandbox, Callable: "app::surroundings", CallId: id, Traceparent: parent, Baggage: map[string]string{"user": "ü"},
		})
		if want := fmt.Sprintf(`{"call_id":%q,"traceparent":%q,"baggage":{"user":"ü"}}`, id, parent); got.value != want {
			t.Errorf("%s: got %s %v %v, want %s", name, got.value, got.err, got.st, want)
		}
	}
	// The header does it too.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/v1/"+sandbox+":remote", strings.NewReader(`{"callable":"app::surroundings","callId":"h"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("traceparent", parent)
	response, err := e.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), `{"callId":"h","value":{"call_id":"h","traceparent":"`+parent+`","baggage":{}}}`); diff != "" {
		t.Error(diff)
	}
}
