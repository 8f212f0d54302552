// Package wiretest gives tests the golden bytes of the public protocol.
package wiretest

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Entry is one of the golden entries, which the Python tests read too.
type Entry struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // pickle, msgpack, frame (of the worker pipe) or packet (of Socket.IO)
	Hex  string `json:"hex"`

	Value map[string]any `json:"value"` // of a frame; bytes are {"$bytes": hex}

	Type      int    `json:"type"` // of a packet
	Namespace string `json:"namespace"`
	Event     string `json:"event"`
}

// Bytes are what goes over the wire.
func (e Entry) Bytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(e.Hex)
	if err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	return b
}

// Golden returns the entries of a kind.
func Golden(t testing.TB, kind string) []Entry {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	b, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "testdata", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all, found []Entry
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no golden entry of kind %s", kind)
	}
	return found
}
