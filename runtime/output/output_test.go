package output

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/agentixd/agentixd/internal/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var marker = []byte("0123456789abcdef")

func marked(id, data string) string {
	b := append(bytes.Clone(marker), byte(len(id)))
	b = append(b, id...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(data)))
	return string(b) + data
}

// collector joins adjacent pieces of one call.
type collector struct {
	mu     sync.Mutex
	pieces []string
	last   string
}

func (c *collector) emit(id string, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.pieces); n > 0 && c.last == id {
		c.pieces[n-1] += string(b)
		return
	}
	c.last = id
	c.pieces = append(c.pieces, id+":"+string(b))
}

func (c *collector) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.pieces...)
}

func TestMarkersAreStripped(t *testing.T) {
	cases := []struct {
		name string
		in   string
		want []string
	}{
		{"plain", "hello", []string{":hello"}},
		{"one", marked("c1", "hi\n"), []string{"c1:hi\n"}},
		{"mixed", "a" + marked("c1", "b") + "c" + marked("c2", "d") + marked("c2", "e"), []string{":a", "c1:b", ":c", "c2:de"}},
		{"empty data", "a" + marked("c1", "") + "b", []string{":ab"}},
		{"no id", string(marker) + "\x00\x01\x00x", []string{":" + string(marker) + "\x00\x01\x00x"}},
		{"long id", marked(strings.Repeat("i", 255), "x"), []string{strings.Repeat("i", 255) + ":x"}},
		{"data too long", marked("c1", strings.Repeat("x", 5000)), []string{":" + marked("c1", strings.Repeat("x", 5000))}},
		{"cut off", marked("c1", "hello")[:20], []string{":" + marked("c1", "hello")[:20]}},
		{"marker in a marker", string(marker) + marked("c1", "x"), []string{":" + string(marker), "c1:x"}},
	}
	for _, c := range cases {
		var got collector
		p := parser{marker: marker}
		p.feed([]byte(c.in), false, got.emit)
		if diff := cmp.Diff(c.want, got.all()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestPiecesGoOnInTheNextFullRead(t *testing.T) {
	in := "a" + marked("c1", "hello") + "b" + marked("c2", "world")
	for at := range in {
		var got collector
		p := parser{marker: marker}
		p.feed([]byte(in[:at]), true, got.emit)
		p.feed([]byte(in[at:]), false, got.emit)
		if diff := cmp.Diff([]string{":a", "c1:hello", ":b", "c2:world"}, got.all()); diff != "" {
			t.Errorf("cut at %d (-want +got):\n%s", at, diff)
		}
	}
}

// TestParserModel writes pieces of several calls and cuts them anywhere.
func TestParserModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []byte
		want := map[string]string{}
		for range rapid.IntRange(0, 20).Draw(t, "pieces") {
			id := rapid.SampledFrom([]string{"", "a", "bb"}).Draw(t, "id")
			text := rapid.StringMatching(`[x0-9\n]{1,30}`).Draw(t, "text")
			if want[id] += text; id == "" {
				in = append(in, text...)
			} else {
				in = append(in, marked(id, text)...)
			}
		}
		got := map[string]string{}
		p := parser{marker: marker}
		emit := func(id string, b []byte) { got[id] += string(b) }
		for len(in) > 0 {
			n := rapid.IntRange(1, len(in)).Draw(t, "read")
			p.feed(in[:n], n < len(in), emit)
			in = in[n:]
		}
		p.flush(emit)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func FuzzParser(f *testing.F) {
	f.Add([]byte("plain"), 3)
	f.Add([]byte(marked("c1", "hello")+"x"+marked("c2", "y")), 20)
	f.Add([]byte(string(marker)+"\xff\xff\xff"), 16)
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		at = max(0, min(at, len(in)))
		total := 0
		p := parser{marker: marker}
		emit := func(_ string, b []byte) { total += len(b) }
		p.feed(in[:at], true, emit)
		if len(p.tail) > maxPiece {
			t.Fatalf("%d bytes are held", len(p.tail))
		}
		p.feed(in[at:], false, emit)
		if total > len(in) || len(p.tail) > 0 || total < len(in)-bytes.Count(in, marker)*maxPiece {
			t.Fatalf("%d bytes out of %d, %d held", total, len(in), len(p.tail))
		}
	})
}

func startPipe(t *testing.T, emit func(string, []byte)) (*Pipe, *os.File) {
	t.Helper()
	p, write, err := NewPipe(emit)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run() }() // ends with Close
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = write.Close() // a test may have done it
	})
	return p, write
}

func TestPipeReadsWhatIsWritten(t *testing.T) {
	var got collector
	p, write := startPipe(t, got.emit)
	p.SetMarker(marker)
	var want strings.Builder
	for i := range 5000 {
		line := fmt.Sprintf("line %d\n", i)
		if _, err := write.WriteString(marked("c1", line)); err != nil {
			t.Fatal(err)
		}
		want.WriteString(line)
	}
	if err := p.Drain(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c1:" + want.String()}, got.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDrainReturnsAfterAllThatWasWritten(t *testing.T) {
	var got collector
	p, write := startPipe(t, got.emit)
	p.SetMarker(marker)
	for i := range 500 {
		text := fmt.Sprintf("%d\n%s", i, marker[:i%len(marker)]) // ends like a marker begins
		if _, err := write.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := p.Drain(); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(got.all(), ""); !strings.HasSuffix(all, text) {
			t.Fatalf("round %d: got %q", i, all[max(0, len(all)-40):])
		}
	}
}

func TestDrainWithASlowReader(t *testing.T) {
	gate := make(chan struct{})
	var got collector
	p, write := startPipe(t, func(id string, b []byte) { <-gate; got.emit(id, b) })
	if _, err := write.WriteString("held"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Drain() }()
	close(gate)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return len(got.all()) == 1 }, "the output")
	if err := (&Pipe{fd: -1}).Drain(); err != nil {
		t.Errorf("drain after close: %v", err)
	}
}

func TestPipeEndsWithItsLastWriter(t *testing.T) {
	var got collector
	p, write, err := NewPipe(got.emit)
	if err != nil {
		t.Fatal(err)
	}
	p.SetMarker(marker)
	text := "the end\n" + string(marker[:5]) // a marker that does not go on
	if _, err := write.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(); err != nil {
		t.Error(err)
	}
	if all := strings.Join(got.all(), ""); all != ":"+text {
		t.Errorf("got %q", all)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
