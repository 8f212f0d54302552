package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// point is a parsed line of terms; its owner serialises next.
type point struct{ terms []term }

type term struct {
	action   string
	argument string
	number   int
	count    int // how often it still acts; -1 = for ever
}

func parse(text string) (*point, error) {
	p := &point{}
	for part := range strings.SplitSeq(text, "->") {
		t, err := parseTerm(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		p.terms = append(p.terms, t)
	}
	return p, nil
}

func parseTerm(text string) (term, error) {
	t := term{count: -1, action: text}
	if count, rest, found := strings.Cut(text, "*"); found && !strings.Contains(count, "(") {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return term{}, fmt.Errorf("count of term %q is not a positive number", text)
		}
		t.count, t.action = n, rest
	}
	if action, rest, found := strings.Cut(t.action, "("); found {
		if !strings.HasSuffix(rest, ")") {
			return term{}, fmt.Errorf("term %q lacks its closing parenthesis", text)
		}
		t.action, t.argument = action, unquote(strings.TrimSuffix(rest, ")"))
	}
	switch t.action {
	case "off", "error", "panic":
		return t, nil
	case "exit", "delay", "sleep":
		if t.action == "exit" && t.argument == "" {
			t.argument = "137"
		}
		n, err := strconv.Atoi(t.argument)
		if err != nil || n < 0 {
			return term{}, fmt.Errorf("argument of term %q is not a number", text)
		}
		t.number = n
		return t, nil
	}
	return term{}, fmt.Errorf("term %q has an unknown action", text)
}

func unquote(text string) string {
	if plain, err := strconv.Unquote(text); err == nil {
		return plain
	}
	return text
}

// next takes the term whose turn it is.
func (p *point) next() term {
	for len(p.terms) > 0 {
		t := &p.terms[0]
		if t.count < 0 {
			return *t
		}
		if t.count > 0 {
			t.count--
			return *t
		}
		p.terms = p.terms[1:]
	}
	return term{action: "off"}
}

func (t term) act(name string) error {
	switch t.action {
	case "error":
		return fmt.Errorf("failpoint %s: %s", name, t.argument)
	case "panic":
		panic(fmt.Sprintf("failpoint %s: %s", name, t.argument))
	case "exit":
		os.Exit(t.number)
	case "delay", "sleep":
		time.Sleep(time.Duration(t.number) * time.Millisecond) //nolint:forbidigo // to wait is what the term asks for
	}
	return nil
}
