package runtime_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/internal/await"
	"github.com/agentixd/agentixd/runtime"
	"github.com/agentixd/agentixd/runtime/siotest"
	"github.com/agentixd/agentixd/runtime/wire"
)

// pickled is the pickle of ((a, b, …), {}) for small integers.
func pickled(args ...int) []byte {
	b := []byte("\x80\x04(")
	for _, n := range args {
		b = append(b, 'J')
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return append(b, "t}\x86."...)
}

type answer struct {
	OK       bool        `msgpack:"ok"`
	Value    []byte      `msgpack:"value"`
	Encoding string      `msgpack:"encoding"`
	Error    *wire.Error `msgpack:"error"`
	CallID   string      `msgpack:"call_id"`
}

// post does POST /call.
func (s *server) post(t *testing.T, call any, prefer string) (int, answer) {
	t.Helper()
	body, err := wire.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	status, b, _ := s.do(t, "POST", "/call", body, http.Header{"Prefer": {prefer}})
	var a answer
	if err := wire.Unmarshal(b, &a); err != nil {
		t.Fatalf("status %d, body %q: %v", status, b, err)
	}
	return status, a
}

func (s *server) do(t *testing.T, method, path string, body []byte, header http.Header) (int, []byte, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := s.http().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b, resp.Header
}

func jsonCall(id, callable, arguments string) wire.Call {
	return wire.Call{CallID: id, Callable: callable, Arguments: []byte(arguments), Encoding: wire.EncodingJSON}
}

func TestHealth(t *testing.T) {
	s := start(t, nil, nil)
	status, b, _ := s.do(t, "GET", "/health", nil, nil)
	var h wire.Health
	if err := json.Unmarshal(b, &h); err != nil || status != 200 || h.Status != "ok" || h.Version == "" || h.Runtime != "agentix-runtime" || h.Protocol != 1 || len(h.Capabilities) == 0 {
		t.Fatalf("%d %s %v", status, b, err)
	}
	await.True(t, func() bool {
		_, b, _ := s.do(t, "GET", "/health", nil, nil)
		return json.Unmarshal(b, &h) == nil && h.Ready && h.Python != ""
	}, "the worker to be ready")
}

func TestHealthTellsTheBootError(t *testing.T) {
	s := start(t, nil, func(c *runtime.Config) { c.Python = "/nonexistent/python3" })
	var h wire.Health
	await.True(t, func() bool {
		_, b, _ := s.do(t, "GET", "/health", nil, nil)
		return json.Unmarshal(b, &h) == nil && h.Error != ""
	}, "the boot error")
	if h.Status != "ok" || h.Ready || !strings.Contains(h.Error, "/nonexistent/python3") {
		t.Errorf("%+v", h)
	}
	_, a := s.post(t, jsonCall("c1", "app::run", `[[],{}]`), "wait=20")
	if a.OK || a.Error == nil || a.Error.Type != "RuntimeError" || !strings.Contains(a.Error.Message, "/nonexistent/python3") {
		t.Errorf("%+v", a.Error)
	}
}

func TestPostCall(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	status, a := s.post(t, jsonCall("c1", "app::run", `[["x"],{}]`), "respond-async, wait=20")
	if status != 200 || !a.OK || string(a.Value) != `{"output":"X"}` || a.Encoding != wire.EncodingJSON {
		t.Errorf("%d %+v", status, a)
	}
	status, a = s.post(t, jsonCall("c2", "app::fail", `[[],{}]`), "wait=20")
	if status != 200 || a.OK || a.Error.Type != "ValueError" {
		t.Errorf("%d %+v", status, a)
	}
	status, a = s.post(t, jsonCall("c3", "app::forever", `[["/dev/null"],{}]`), "wait=0.05")
	if status != 202 || a.CallID != "c3" {
		t.Errorf("%d %+v", status, a)
	}
	status, a = s.post(t, jsonCall("c3", "app::forever", `[["/dev/null"],{}]`), "wait=0")
	if status != 202 || a.CallID != "c3" {
		t.Errorf("the same again: %d %+v", status, a)
	}
}

func TestPostCallHeadersAndRefusals(t *testing.T) {
	s := start(t, map[string]string{"app": app}, nil)
	pack := func(v any) []byte {
		b, err := wire.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	_, _, header := s.do(t, "POST", "/call", pack(jsonCall("é/", "app::forever", `[["/dev/null"],{}]`)), http.Header{"Prefer": {`respond-async; WAIT = "0.05"`}})
	if header.Get("Preference-Applied") != "wait=0.05" || header.Get("Location") != "/call/%C3%A9%2F" || header.Get("Content-Type") != "application/msgpack" {
		t.Errorf("headers %v", header)
	}
	badRequest := []byte("\x82\xa5error\x82\xa7message\xbamissing or invalid call_id\xa4type\xaaBadRequest\xa2ok\xc2")
	for name, body := range map[string][]byte{"empty": {}, "not a map": pack([]int{1}), "no call_id": pack(map[string]any{"callable": "x"}), "call_id 7": pack(map[string]any{"call_id": 7})} {
		if status, b, _ := s.do(t, "POST", "/call", body, nil); status != 400 || !bytes.Equal(b, badRequest) {
			t.Errorf("%s: %d %q", name, status, b)
		}
	}
	if status, b, _ := s.do(t, "POST", "/call", []byte("\xc1"), nil); status != 500 || string(b) != "Internal Server Error\n" {
		t.Errorf("not msgpack: %d %q", status, b)
	}
	if status, _, _ := s.do(t, "GET", "/call", nil, nil); status != 405 {
		t.Errorf("GET: %d", status)
	}
	if status, _, _ := s.do(t, "GET", "/nothing", nil, nil); status != 404 {
		t.Errorf("nothing: %d", status)
	}
	for key, want := range map[string]string{"callable": "'callable'", "arguments": "'arguments'"} {
		call := map[string]any{"call_id": "c-" + key, "callable": "a::b", "arguments": []byte("x")}
		delete(call, key)
		if status, a := s.post(t, call, ""); status != 200 || a.Error == nil || a.Error.Type != "KeyError" || a.Error.Message != want {
			t.Errorf("no %s: %d %+v", key, status, a)
		}
	}
	if status, a := s.post(t, map[string]any{"call_id": "c", "callable": 7, "arguments": []byte("x")}, ""); status != 200 || a.Error == nil || a.Error.Type != "ValidationError" {
		t.Errorf("callable 7: %d %+v", status, a)
	}
}

func TestR2_PostTwiceRunsOnce(t *testing.T) {
	s := start(t, map[string]string{"count": "n = 0\ndef up():\n    global n\n    n += 1\n    return n\n"}, nil)
	if _, a := s.post(t, jsonCall("c1", "count::up", `[[],{}]`), "wait=20"); string(a.Value) != "1" {
		t.Fatalf("%+v", a)
	}
	if status, a := s.post(t, jsonCall("c1", "count::up", `[[],{}]`), "wait=20"); status != 202 {
		t.Errorf("while its result is retained: %d %+v", status, a)
	}
	host := siotest.Dial(t, s.socket, map[string]any{}, nil, wire.NamespaceRPC)
	host.Emit(wire.NamespaceRPC, wire.EventAck, wire.CallRef{CallID: "c1"})
	await.True(t, func() bool {
		_, a := s.post(t, jsonCall("c1", "count::up", `[[],{}]`), "wait=20")
		return a.Error != nil && a.Error.Type == wire.ErrResultUnavailable
	}, "the replay to be refused")
	if _, a := s.post(t, jsonCall("c2", "count::up", `[[],{}]`), "wait=20"); string(a.Value) != "2" {
		t.Errorf("%+v", a)
	}
}

func TestForeignOriginsAreRefused(t *testing.T) {
	s := start(t, nil, nil)
	for origin, want := range map[string]int{
		"https://evil.example": 403, "http://localhost": 200, "null": 403, "http://localhost.evil.example": 403, "http://127.0.0.1": 403, "::": 403,
	} {
		for _, path := range []string{"/health", "/socket.io/?EIO=4&transport=polling"} {
			status, _, header := s.do(t, "GET", path, nil, http.Header{"Origin": {origin}})
			if status != want {
				t.Errorf("%s %s: %d, want %d", origin, path, status, want)
			}
			for name := range header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s %s: header %s", origin, path, name)
				}
			}
		}
	}
}

func TestToken(t *testing.T) {
	s := start(t, map[string]string{"app": app}, func(c *runtime.Config) { c.Token = "s3cret" })
	_, b, _ := s.do(t, "GET", "/health", nil, nil)
	var h map[string]any
	if err := json.Unmarshal(b, &h); err != nil || len(h) != 2 || h["status"] != "ok" {
		t.Errorf("health without a token: %s", b)
	}
	_, b, _ = s.do(t, "GET", "/health", nil, http.Header{"Authorization": {"Bearer s3cret"}})
	if !strings.Contains(string(b), "capabilities") {
		t.Errorf("health with a token: %s", b)
	}
	if status, _ := s.post(t, jsonCall("c1", "app::run", `[["x"],{}]`), ""); status != 401 {
		t.Errorf("call without a token: %d", status)
	}
	for _, auth := range []any{map[string]any{}, wire.Auth{Role: wire.RoleDaemon}, wire.Auth{Role: wire.RoleDaemon, Token: "wrong"}} {
		c := siotest.Dial(t, s.socket, auth, nil, wire.NamespaceRPC)
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), "unauthorized") {
			t.Errorf("%+v: got %v", auth, err)
		}
	}
	d := s.connect(nil, func(_ *daemon, a *wire.Auth) { a.Token = "s3cret" })
	if got := d.run("c1", "app::run", `[["x"],{}]`); got != `{"output":"X"}` {
		t.Errorf("got %s", got)
	}
}

func TestSocketPathOver107Bytes(t *testing.T) {
	s := start(t, map[string]string{"app": app}, func(c *runtime.Config) {
		dir := filepath.Join(filepath.Dir(c.Socket), strings.Repeat("d", 120))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c.Socket = filepath.Join(dir, "rpc.sock")
	})
	info, err := os.Stat(s.socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	dir, err := os.Open(filepath.Dir(s.socket))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	short := *s
	short.socket = filepath.Join("/proc/self/fd", itoa(dir.Fd()), "rpc.sock")
	if status, _, _ := short.do(t, "GET", "/health", nil, nil); status != 200 {
		t.Errorf("status %d", status)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if fileExists(s.socket) {
		t.Error("the socket is still there")
	}
}

func TestSocketPathThatIsNoSocketIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.New(runtime.Config{Socket: path}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
}
