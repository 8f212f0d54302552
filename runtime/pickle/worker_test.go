package pickle

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// python runs a script of testdata with the worker's sources as its argument and returns
// what it prints. Python is a part of what is tested: without it the test fails.
func python(t testing.TB, script string, stdin io.Reader) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("python3 takes too long"))
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-B", "testdata/"+script, "../../worker/src")
	cmd.Stdin = stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3 %s: %v\n%s", script, err, stderr.Bytes())
	}
	return out
}

// row is one value, pickled by CPython.
type row struct {
	Name        string  `json:"name"`
	Protocol    int     `json:"protocol"`
	Pickle      []byte  `json:"pickle"`
	Unpicklable string  `json:"unpicklable"`
	Inert       *string `json:"inert"`   // the agreed form, for instances of a user's classes
	JSON        []byte  `json:"json"`    // the worker's own, nil where it refuses
	Msgpack     []byte  `json:"msgpack"` // the same
}

// table is what rows returned; it takes a second to make.
var table []row

func rows(t testing.TB) []row {
	t.Helper()
	if len(table) > 0 {
		return table
	}
	var all []row
	numpy, err := os.ReadFile("testdata/numpy.jsonl") // made once, so that tests need no numpy
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(append(python(t, "values.py", nil), numpy...)))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Unpicklable == "" {
			all = append(all, r)
		}
	}
	if err := lines.Err(); err != nil || len(all) < 500 {
		t.Fatalf("%d rows, %v", len(all), err)
	}
	table = all
	return all
}

// The JSON and msgpack of a pickled value are the worker's own for that value, byte for byte,
// or both refuse it.
func TestResultsAreTheWorkersOwn(t *testing.T) {
	for _, r := range rows(t) {
		if r.Inert != nil {
			got, err := ToJSON(r.Pickle)
			if err != nil || string(got) != *r.Inert {
				t.Errorf("%s, protocol %d: ToJSON = %.300s, %v; want %.300s", r.Name, r.Protocol, got, err, *r.Inert)
			}
			continue
		}
		compare(t, r, "ToJSON", ToJSON, r.JSON)
		compare(t, r, "ToMsgpack", ToMsgpack, r.Msgpack)
	}
}

func compare(t *testing.T, r row, name string, f func([]byte) ([]byte, error), want []byte) {
	t.Helper()
	got, err := f(r.Pickle)
	switch {
	case want == nil && !errors.Is(err, ErrNoForm):
		t.Errorf("%s, protocol %d: %s = %.300q, %v; the worker refuses it", r.Name, r.Protocol, name, got, err)
	case want != nil && (err != nil || !bytes.Equal(got, want)):
		t.Errorf("%s, protocol %d: %s = %.300q, %v; want %.300q", r.Name, r.Protocol, name, got, err, want)
	}
}
