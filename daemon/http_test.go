package daemon_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/daemon"
	"github.com/agentixd/agentixd/internal/daemontest"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// get asks with the token and whatever change adds.
func get(t *testing.T, e *daemontest.Env, client *http.Client, url string, change func(*http.Request)) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+e.Token)
	if change != nil {
		change(request)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func TestForeignSitesAreRefused(t *testing.T) {
	e := daemontest.Start(t, func(c *daemon.Config) { c.HTTPHosts = []string{"Gateway.example"} })
	port := e.Daemon.HTTPAddr()[strings.LastIndex(e.Daemon.HTTPAddr(), ":"):]
	for _, c := range []struct {
		host, origin string
		unix, good   bool
	}{
		{host: "127.0.0.1" + port, good: true},
		{host: "localhost", good: true},
		{host: "LOCALHOST" + port, good: true},
		{host: "[::1]" + port, good: true},
		{host: "gateway.example", good: true},
		{host: "evil.example"},
		{host: "evil.example" + port},
		{host: "127.0.0.1.evil.example"},
		{host: "localhost.evil.example" + port},
		{host: "evil.example", unix: true, good: true},
		{host: "localhost", origin: "http://localhost:3000", good: true},
		{host: "localhost", origin: "http://[::1]:3000", good: true},
		{host: "localhost", origin: "https://gateway.example", good: true},
		{host: "localhost", origin: "http://evil.example"},
		{host: "localhost", origin: "http://localhost.evil.example"},
		{host: "localhost", origin: "null"},
		{host: "localhost", origin: "localhost"},
		{host: "localhost", origin: "file://"},
		{host: "x", origin: "http://evil.example", unix: true},
	} {
		for _, path := range []string{"/v1/sandboxes", "/healthz", "/openapi.json"} {
			client := e.HTTP
			if c.unix {
				client = e.Unix
			}
			response := get(t, e, client, e.URL+path, func(r *http.Request) {
				r.Host = c.host
				if c.origin != "" {
					r.Header.Set("Origin", c.origin)
				}
			})
			if c.good {
				if response.StatusCode != http.StatusOK {
					t.Errorf("%+v %s: got %d", c, path, response.StatusCode)
				}
				_ = response.Body.Close()
				continue
			}
			code := response.StatusCode
			st := restStatus(t, response)
			if reason := reasonOf(t, st); code != 403 || reason != "FOREIGN_ORIGIN" {
				t.Errorf("%+v %s: got %d, %v", c, path, code, st)
			}
			for _, header := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"} {
				if got := response.Header.Get(header); got != "" {
					t.Errorf("%s: %s", header, got)
				}
			}
		}
	}
}

func TestHostileHeadersAndPaths(t *testing.T) {
	e := daemontest.Start(t)
	for name, c := range map[string]struct {
		path   string
		change func(*http.Request)
		http   int
		code   codes.Code
		reason string
	}{
		"metadata of gRPC":           {"/v1/sandboxes", func(r *http.Request) { r.Header.Set("Grpc-Metadata-Authorization", "x") }, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"a peer by header":           {"/v1/sandboxes", func(r *http.Request) { r.Header.Set("Grpc-Metadata-Agentix-Peer-Uid", "0") }, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"a binary header":            {"/v1/sandboxes", func(r *http.Request) { r.Header.Set("X-Rubbish-Bin", "%%%") }, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"a malformed timeout":        {"/v1/sandboxes", func(r *http.Request) { r.Header.Set("Grpc-Timeout", "soon") }, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"a path upwards":             {"/v1/sandboxes/../../etc/passwd", nil, 404, codes.NotFound, "NO_SUCH_METHOD"},
		"an escaped path upwards":    {"/v1/sandboxes/%2e%2e%2fx", nil, 404, codes.NotFound, "NO_SUCH_METHOD"},
		"an id of dots":              {"/v1/sandboxes/..", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"NUL":                        {"/v1/sandboxes/a%00b", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"overlong UTF-8":             {"/v1/sandboxes/%c0%ae", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"an id of 10 KiB":            {"/v1/sandboxes/" + strings.Repeat("x", 10240), nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"an id in upper case":        {"/v1/sandboxes/UPPER", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"a query that is not UTF-8":  {"/v1/sandboxes?pageToken=%ff", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"a malformed query":          {"/v1/sandboxes?a=%zz", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"an unknown query parameter": {"/v1/sandboxes?token=x", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"a parameter twice":          {"/v1/sandboxes?pageSize=1&page_size=2", nil, 400, codes.InvalidArgument, "INVALID_FIELD"},
		"another path":               {"/admin", nil, 404, codes.NotFound, "NO_SUCH_METHOD"},
		"another method":             {"/v1/sandboxes", func(r *http.Request) { r.Method = http.MethodPatch }, 405, codes.NotFound, "NO_SUCH_METHOD"},
		"another method of healthz":  {"/healthz", func(r *http.Request) { r.Method = http.MethodPost }, 405, codes.NotFound, "NO_SUCH_METHOD"},
		"a method that no one has":   {"/v1/sandboxes", func(r *http.Request) { r.Method = "BREW" }, 405, codes.NotFound, "NO_SUCH_METHOD"},
		"method by header": {"/v1/sandboxes/x", func(r *http.Request) {
			r.Method = http.MethodPost
			r.Header.Set("X-HTTP-Method-Override", "DELETE")
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}, 405, codes.NotFound, "NO_SUCH_METHOD"},
	} {
		t.Run(name, func(t *testing.T) {
			response := get(t, e, e.HTTP, e.URL+c.path, c.change)
			code := response.StatusCode
			st := restStatus(t, response)
			if reason := reasonOf(t, st); code != c.http || st.Code() != c.code || reason != c.reason {
				t.Errorf("got HTTP %d, %v; want %d, %s, %s", code, st, c.http, c.code, c.reason)
			}
		})
	}
	if response := get(t, e, e.HTTP, e.URL+"/v1/sandboxes", nil); response.StatusCode != http.StatusOK {
		t.Errorf("afterwards: got %d", response.StatusCode)
	} else {
		_ = response.Body.Close()
	}
}

// raw sends bytes and returns the first line of the answer.
func raw(t *testing.T, e *daemontest.Env, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", e.Daemon.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return err.Error()
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

func TestRawHTTP(t *testing.T) {
	e := daemontest.Start(t)
	auth := "Authorization: Bearer " + e.Token + "\r\n"
	many := strings.Repeat("X-H: y\r\n", 1000)
	for name, c := range map[string]struct{ text, want string }{
		"plain":               {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK"},
		"two authorizations":  {"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + auth + "\r\n", "HTTP/1.1 401 Unauthorized"},
		"a value of 64 KiB":   {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-H: " + strings.Repeat("x", 70000) + "\r\n\r\n", "HTTP/1.1 431 Request Header Fields Too Large"},
		"a thousand headers":  {"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + many + "\r\n", "HTTP/1.1 200 OK"},
		"no host":             {"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request: missing required Host header"},
		"two hosts":           {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		"rubbish":             {"\x00\x01\x02\x03\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		"other absolute form": {"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 403 Forbidden"},
		"both lengths":        {"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n" + auth + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 400 Bad Request"},
		"NUL in a value":      {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: b\x00c\r\n\r\n", "HTTP/1.1 400 Bad Request"},
	} {
		if got := raw(t, e, c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	// Connections that say nothing hold up nobody.
	for range 50 {
		conn, err := net.Dial("tcp", e.Daemon.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "P"); err != nil {
			t.Fatal(err)
		}
	}
	if got := raw(t, e, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"); got != "HTTP/1.1 200 OK" {
		t.Errorf("beside silent connections: got %q", got)
	}
}

func TestRequestIDsComeBack(t *testing.T) {
	e := daemontest.Start(t)
	for given, want := range map[string]string{"abc-1": "abc-1", "": "", strings.Repeat("x", 129): ""} {
		response := get(t, e, e.HTTP, e.URL+"/v1/sandboxes/nowhere", func(r *http.Request) { r.Header.Set("X-Request-Id", given) })
		_ = response.Body.Close()
		got := response.Header.Get("X-Request-Id")
		if want != "" && got != want || got == "" || got == strings.Repeat("x", 129) {
			t.Errorf("%.10q: got %q", given, got)
		}
		if !strings.Contains(e.Logs(), "request="+got) {
			t.Errorf("request id %s is not in the log", got)
		}
	}
}

var resourceName = regexp.MustCompile(`{[a-z_.]+=([^}]+)}`)

// Each raw_json field is described as the JSON that REST really has, and each route is there.
func TestOpenAPI(t *testing.T) {
	e := daemontest.Start(t)
	response := get(t, e, e.HTTP, e.URL+"/openapi.json", nil)
	defer response.Body.Close()
	var document struct {
		Info        struct{ Title, Version string }
		Paths       map[string]map[string]json.RawMessage
		Definitions map[string]struct {
			Properties map[string]map[string]any
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	for route := range routes() {
		method, path, _ := strings.Cut(route, " ")
		path = strings.ReplaceAll(path, "{name=**}", "{name}") // no resource name
		path = resourceName.ReplaceAllString(path, "$1")
		path = strings.NewReplacer("sandboxes/*", "sandboxes/{sandbox}", "calls/*", "calls/{call}", "bundles/*", "bundles/{bundle}").Replace(path)
		if document.Paths[path][strings.ToLower(method)] == nil {
			t.Errorf("%s is not described", route)
		}
	}
	if got := string(document.Paths["/v1/sandboxes/{sandbox}/events"]["get"]); !strings.Contains(got, "application/x-ndjson") || !strings.Contains(got, "v1Event\"") {
		t.Errorf("events are described as %s", got)
	}
	if got := string(document.Paths["/v1/sandboxes/{sandbox}:remote"]["post"]); !strings.Contains(got, `"202"`) || !strings.Contains(got, `"Prefer"`) {
		t.Errorf("Remote is described as %s", got)
	}
	var submit struct {
		Parameters []struct {
			Schema struct {
				Properties map[string]map[string]any
			}
		}
	}
	if err := json.Unmarshal(document.Paths["/v1/sandboxes/{sandbox}/calls"]["post"], &submit); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{"args": "array", "kwargs": "object"} {
		found := false
		for _, p := range submit.Parameters {
			found = found || p.Schema.Properties[field]["type"] == want
		}
		if !found {
			t.Errorf("%s of SubmitCall is not described as %s", field, want)
		}
	}
	found := 0
	for name, want := range map[string]string{
		"RemoteServiceRemoteBody.args": "array", "RemoteServiceRemoteBody.kwargs": "object", "v1RemoteResponse.value": "",
		"v1LogRecord.extras": "object", "v1SpanEvent.attributes": "object", "v1SpanEvent.error": "object", "v1SpanEvent.events": "array", "v1PluginEvent.data": "",
	} {
		definition, field, _ := strings.Cut(name, ".")
		property := document.Definitions[definition].Properties[field]
		if property == nil {
			t.Errorf("%s is not described", name)
			continue
		}
		if got, _ := property["type"].(string); got != want {
			t.Errorf("%s has type %q, want %q", name, got, want)
		}
		found++
	}
	if raws := rawFields(); found != raws {
		t.Errorf("%d raw_json fields are described, there are %d", found, raws)
	}
}

// rawFields counts raw_json fields of all messages of the API.
func rawFields() int {
	seen := map[protoreflect.FullName]bool{}
	count := 0
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			if strings.Contains(fmt.Sprint(field.Options()), "raw_json") {
				count++
			}
			if field.Message() != nil {
				walk(field.Message())
			}
		}
	}
	for _, method := range methods() {
		walk(method.Input())
		walk(method.Output())
	}
	return count
}
