package events

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/agentixd/agentixd/daemon/store"
	"github.com/agentixd/agentixd/runtime/wire"
)

// model is what the journals of two sandboxes must hold.
type model struct {
	dir     string
	store   *store.Store
	journal *Journal
	opts    Options

	expected map[string][]string // texts by sandbox, in order
	sid      map[string]string
	seq      map[string]uint64
	made     int
	cursors  map[string]string // `sandbox number` → cursor behind that many events
}

func (m *model) reopen(t *rapid.T) {
	m.close(t)
	st, err := store.Open(context.Background(), m.dir)
	if err != nil {
		t.Fatal(err)
	}
	m.store, m.journal = st, New(st, m.opts)
}

func (m *model) close(t *rapid.T) {
	if m.journal == nil {
		return
	}
	if err := m.journal.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
}

func (m *model) text() string {
	m.made++
	return fmt.Sprintf("text %d%s", m.made, strings.Repeat(".", m.made%7*100))
}

// append adds the daemon's own events.
func (m *model) append(t *rapid.T, sandbox string) {
	var evs []Event
	for range rapid.IntRange(1, 4).Draw(t, "events") {
		text := m.text()
		evs = append(evs, Event{Body: &Output{Stream: Stdout, Data: []byte(text)}})
		m.expected[sandbox] = append(m.expected[sandbox], text)
	}
	m.journal.Append(sandbox, evs...)
}

// batch sends records of which the first may have been taken before, and may skip some.
func (m *model) batch(t *rapid.T, sandbox string) {
	if m.sid[sandbox] == "" || rapid.IntRange(0, 9).Draw(t, "new stream") == 0 {
		m.sid[sandbox], m.seq[sandbox] = fmt.Sprintf("sid%d", m.made), 0
	}
	again := min(uint64(rapid.IntRange(0, 3).Draw(t, "again")), m.seq[sandbox])
	skipped := uint64(0)
	if again == 0 {
		skipped = uint64(rapid.IntRange(0, 10).Draw(t, "skipped")) / 9
	}
	first := m.seq[sandbox] - again + 1 + skipped
	if skipped > 0 {
		m.expected[sandbox] = append(m.expected[sandbox], fmt.Sprintf("gap 0-0 %d runtime", skipped))
	}
	var texts []string
	for i := range uint64(rapid.IntRange(1, 5).Draw(t, "records")) {
		text := m.text()
		texts = append(texts, text)
		if first+i > m.seq[sandbox] {
			m.expected[sandbox] = append(m.expected[sandbox], text)
			m.seq[sandbox] = first + i
		}
	}
	m.journal.AppendBatch(sandbox, wire.Batch{Sid: m.sid[sandbox], Seq: first, Records: outputs(texts...)}, nil)
}

// check reads from a cursor that was given before, or from the beginning, and compares.
func (m *model) check(t *rapid.T, sandbox string) {
	if len(m.expected[sandbox]) == 0 {
		return
	}
	if err := m.journal.Flush(context.Background(), sandbox); err != nil {
		t.Fatal(err)
	}
	from := rapid.IntRange(0, len(m.expected[sandbox])).Draw(t, "from")
	after := m.cursors[fmt.Sprint(sandbox, from)]
	if after == "" {
		from = 0
	}
	seq := uint64(from)
	var got []string
	err := m.journal.Read(context.Background(), Query{Sandbox: sandbox, After: after}, func(evs []Event, cursor string) error {
		for i := range evs {
			if gap, ok := evs[i].Body.(*Gap); ok && gap.Source == SourceJournal {
				if gap.FromSeq != seq+1 || gap.Dropped != gap.ToSeq-seq {
					t.Fatalf("gap %+v after %d", gap, seq)
				}
				got = append(got, m.expected[sandbox][seq:gap.ToSeq]...) // told, so not lost in silence
				seq = gap.ToSeq
				continue
			}
			if seq == 0 && from == 0 && after == "" { // retention may have taken the first ones
				got = append(got, m.expected[sandbox][:evs[i].Seq-1]...)
				seq = evs[i].Seq - 1
			}
			if seq++; evs[i].Seq != seq {
				t.Fatalf("seq %d follows %d", evs[i].Seq, seq-1)
			}
			m.cursors[fmt.Sprint(sandbox, seq)] = evs[i].Cursor
			got = append(got, lines(evs[i:i+1])...)
		}
		m.cursors[fmt.Sprint(sandbox, seq)] = cursor
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.expected[sandbox][from:], got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("from %d:\n%s", from, diff)
	}
}

// checkAll reads both journals at once: each in its own order.
func (m *model) checkAll(t *rapid.T, sandboxes []string) {
	for _, s := range sandboxes {
		if err := m.journal.Flush(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	last := map[string]uint64{}
	err := m.journal.Read(context.Background(), Query{}, func(evs []Event, _ string) error {
		for i := range evs {
			name, seq := evs[i].Sandbox, evs[i].Seq
			if before := last[name]; before > 0 && seq != before+1 {
				t.Fatalf("sandbox %s: seq %d follows %d", name, seq, before)
			}
			last[name] = seq
			if got, want := lines(evs[i : i+1])[0], m.expected[name][seq-1]; got != want {
				t.Fatalf("sandbox %s: got %q, want %q", name, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sandboxes {
		if n := uint64(len(m.expected[s])); n > 0 && last[s] != n {
			t.Fatalf("sandbox %s: last seq is %d, want %d", s, last[s], n)
		}
	}
}

// trim lets retention run now.
func (m *model) trim(t *rapid.T, sandbox string) {
	if s := m.journal.lookup(sandbox); s != nil {
		if err := m.journal.Flush(context.Background(), sandbox); err != nil {
			t.Fatal(err)
		}
		m.journal.trimBytes(context.Background(), s)
	}
}

// TestR6_JournalAgainstModel does what happens to a journal in any order, and compares all
// that any reader sees with a list.
func TestR6_JournalAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		m := &model{
			dir: dir, opts: Options{MaxBytes: 6000},
			expected: map[string][]string{}, sid: map[string]string{}, seq: map[string]uint64{}, cursors: map[string]string{},
		}
		m.reopen(t)
		defer m.close(t)
		sandboxes := []string{"a", "b"}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			sandbox := rapid.SampledFrom(sandboxes).Draw(t, "sandbox")
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0, 1, 2:
				m.append(t, sandbox)
			case 3, 4, 5:
				m.batch(t, sandbox)
			case 6, 7:
				m.check(t, sandbox)
			case 8:
				m.checkAll(t, sandboxes)
			case 9:
				m.trim(t, sandbox)
			case 10:
				m.reopen(t)
			case 11:
				if sid, seq, err := m.journal.StreamCursor(t.Context(), sandbox, ""); err != nil || seq > m.seq[sandbox] && sid == m.sid[sandbox] {
					t.Fatalf("cursor %s %d %v", sid, seq, err)
				}
			}
		}
		for _, s := range slices.Sorted(slices.Values(sandboxes)) {
			m.check(t, s)
		}
		m.checkAll(t, sandboxes)
	})
}
