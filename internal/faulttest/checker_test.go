package faulttest

import (
	"fmt"
	"strings"
	"testing"
)

// good is evidence of two calls of which nothing is wrong.
func good() Evidence {
	a := Call{ID: "a", Sandbox: "sandboxes/x", N: 1, Callable: Work}
	b := Call{ID: "b", Sandbox: "sandboxes/x", N: 2, Callable: Work}
	value := Outcome{Value: fmt.Sprintf(`{"call": "a", "proof": %q}`, a.Proof())}
	died := Outcome{Error: "WorkerDied", Message: "signal 9"}
	e := Evidence{
		Calls: []Call{a, b},
		Ops: []Op{
			{Call: "a", Client: "first", Returned: 100, Outcome: value}, {Call: "a", Client: "second", Returned: 90, Outcome: value},
			{Call: "b", Client: "first", Returned: 100, Outcome: died},
		},
		Runs: map[string][]Run{"a": {{N: 1, Began: 10, Printed: true, Ended: 20}}, "b": {{N: 2, Began: 10, Printed: true}}},
		Journal: []Event{
			{Seq: 1, Kind: "other"},
			{Seq: 2, CallID: "a", Kind: "accepted"}, {Seq: 3, CallID: "b", Kind: "accepted"},
			{Seq: 4, CallID: "a", Kind: "printed", Text: "a 1\na "}, {Seq: 5, CallID: "b", Kind: "printed", Text: "b 1\nb 2\n"},
			{Seq: 6, CallID: "a", Kind: "printed", Text: "2\na 3\n"}, {Seq: 7, CallID: "a", Kind: "logged", Text: "a 1\na 2\na 3\n"},
			{Seq: 8, CallID: "a", Kind: "finished"}, {Seq: 9, CallID: "b", Kind: "finished", ErrorType: "WorkerDied"},
		},
	}
	for i := range e.Journal {
		e.Journal[i].Hash = uint64(i)
	}
	e.Followed = append([]Event{}, e.Journal...)
	return e
}

func TestCheckAcceptsWhatIsPromised(t *testing.T) {
	r := Check(good())
	if len(r.Violations) > 0 || r.Mix["value"] != 1 || r.Mix["WorkerDied"] != 1 || len(r.Mix) != 2 {
		t.Error(r.Text())
	}
}

// TestCheckCatches: each breach of a promise is told by its number.
func TestCheckCatches(t *testing.T) {
	for name, c := range map[string]struct {
		breach func(*Evidence)
		want   string
	}{
		"two outcomes":         {func(e *Evidence) { e.Ops[1].Outcome = Outcome{Error: "WorkerDied"} }, "R1: first was told"},
		"two values":           {func(e *Evidence) { e.Ops[1].Outcome.Value += " " }, "R1: first was told"},
		"journal disagrees":    {func(e *Evidence) { e.Journal[7].ErrorType = "SandboxLost" }, "R1: clients were told"},
		"refused and ran":      {func(e *Evidence) { e.Ops[2].Outcome = Outcome{Refused: "SANDBOX_NOT_READY"} }, "R1: it ran and was refused"},
		"strange error":        {func(e *Evidence) { e.Ops[2].Outcome.Error = "KeyError" }, "R1: it ended as KeyError"},
		"two runs":             {func(e *Evidence) { e.Runs["b"] = append(e.Runs["b"], e.Runs["b"][0]) }, "R2: it ran 2 times"},
		"invented":             {func(e *Evidence) { e.Runs["c"] = []Run{{N: 1}} }, "R2: it ran but nobody asked for it"},
		"late run":             {func(e *Evidence) { e.Runs["b"][0].Began = 101000 }, "R2: it began 100 µs after its end was told"},
		"hung":                 {func(e *Evidence) { e.Ops[2].Outcome = Outcome{Hung: "nothing"} }, "R3: no outcome"},
		"forgotten":            {func(e *Evidence) { e.Ops = e.Ops[:2] }, "R3: no client has its outcome"},
		"foreign value":        {func(e *Evidence) { e.Calls[0].ID, e.Calls[1].ID = "b", "a" }, "R4: its value"},
		"foreign arguments":    {func(e *Evidence) { e.Runs["a"][0].N = 7 }, "R4: it ran with 7"},
		"value from nowhere":   {func(e *Evidence) { delete(e.Runs, "a") }, "R4: it has a value and did not run to its end"},
		"foreign line":         {func(e *Evidence) { e.Journal[4].Text = "a 1\n" }, "R4: its line is"},
		"foreign event":        {func(e *Evidence) { e.Journal[4].CallID = "c" }, "R4: the journal has it and nobody asked for it"},
		"lost lines":           {func(e *Evidence) { e.Journal[4].Text = "" }, "R5: it printed 2 lines and the journal has 0"},
		"hole":                 {func(e *Evidence) { e.Journal[4].Text = "b 2\n" }, "R6: printed lines [2] have a hole or a double"},
		"double":               {func(e *Evidence) { e.Journal[6].Text += "a 3\n" }, "R6: logged lines [1 2 3 3] have a hole or a double"},
		"line after the end":   {func(e *Evidence) { e.Journal[6], e.Journal[7] = e.Journal[7], e.Journal[6] }, "R6: 0 logged lines came before its end, it wrote 3"},
		"two ends":             {func(e *Evidence) { e.Journal[3] = Event{Seq: 4, CallID: "b", Kind: "finished"} }, "R6: the journal tells 1 begins and 2 ends"},
		"no end":               {func(e *Evidence) { e.Journal = e.Journal[:8] }, "R6: the journal tells 1 begins and 0 ends"},
		"hole in the journal":  {func(e *Evidence) { e.Journal = append(e.Journal[:4], e.Journal[5:]...) }, "R6: event 6 comes after 4"},
		"follower sees others": {func(e *Evidence) { e.Followed[4].Hash++ }, "R6: a follower saw event 5"},
		"follower sees twice":  {func(e *Evidence) { e.Followed = append(e.Followed, e.Followed[8]) }, "R6: a follower saw 10 events"},
		"nonsense":             {func(e *Evidence) { e.Bad = []string{"E a 1"} }, `the file of runs holds "E a 1"`},
	} {
		t.Run(name, func(t *testing.T) {
			e := good()
			c.breach(&e)
			if r := Check(e); !strings.Contains(r.Text(), c.want) {
				t.Errorf("want %q in:\n%s", c.want, r.Text())
			}
		})
	}
}

// TestGapsExcuseHoles: what the journal tells to be lost is not missed.
func TestGapsExcuseHoles(t *testing.T) {
	e := good()
	e.Journal[4] = Event{Seq: 5, Kind: "gap", Dropped: 2, Hash: 4}
	if r := Check(e); len(r.Violations) > 0 {
		t.Error(r.Text())
	}
}
