package failpoint

import (
	"strings"
	"testing"
)

func TestTermsActInTurn(t *testing.T) {
	p, err := parse(`2*off->1*error("disk full")->1*error(x*y)->off`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"", "", "disk full", "x*y", "", ""}
	for i, text := range want {
		err := p.next().act("store/commit")
		switch {
		case text == "" && err != nil:
			t.Errorf("call %d: got %v, want none", i, err)
		case text != "" && (err == nil || !strings.Contains(err.Error(), text)):
			t.Errorf("call %d: got %v, want %q", i, err, text)
		}
	}
}

func TestLastCountedTermTurnsThePointOff(t *testing.T) {
	p, err := parse("1*error(once)")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.next().act("x"); err == nil {
		t.Error("first call: got no error")
	}
	for range 3 {
		if err := p.next().act("x"); err != nil {
			t.Errorf("later call: got %v, want none", err)
		}
	}
}

func TestPanicNamesThePoint(t *testing.T) {
	p, err := parse("panic(boom)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if got := recover(); got != "failpoint calls/beforeCommit: boom" {
			t.Errorf("got %v", got)
		}
	}()
	_ = p.next().act("calls/beforeCommit")
	t.Error("did not panic")
}

func TestBadTermsAreRefused(t *testing.T) {
	for _, text := range []string{"", "explode", "0*off", "-1*off", "x*off", "delay", "delay(soon)", "sleep(-1)", "exit(x)", "error(open", "off->", "1*2*off"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

func TestExitAndDelayTakeNumbers(t *testing.T) {
	for text, want := range map[string]int{"exit": 137, "exit(3)": 3, "delay(20)": 20, "7*sleep(5)": 5} {
		p, err := parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := p.next().number; got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}
