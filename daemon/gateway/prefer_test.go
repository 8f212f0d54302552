package gateway

import (
	"testing"
	"time"
)

// TestPrefer has the forms of RFC 7240: what is malformed or unknown is ignored.
func TestPrefer(t *testing.T) {
	for text, want := range map[string]prefer{
		"":                                 {},
		"respond-async":                    {async: true},
		"Respond-Async ; a=b":              {async: true},
		"respond-async, wait=10":           {async: true, waits: true, wait: 10 * time.Second},
		"wait = 10":                        {waits: true, wait: 10 * time.Second},
		`wait="10"`:                        {waits: true, wait: 10 * time.Second},
		"wait=1, wait=2":                   {waits: true, wait: time.Second},
		"wait=x, wait=2":                   {waits: true, wait: 2 * time.Second},
		"wait=99999999999999999999":        {waits: true, wait: maxWait * time.Second},
		"wait=-1":                          {},
		"wait=1.5":                         {},
		"wait":                             {},
		`respond-async=""`:                 {async: true},
		"respond-async=yes":                {},
		`foo="a, respond-async"`:           {},
		`foo="a\", respond-async", wait=3`: {waits: true, wait: 3 * time.Second},
		`"respond-async`:                   {},
		",,;,=,respond-async":              {async: true},
	} {
		if got := parsePrefer([]string{text}); got != want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
	if got := parsePrefer([]string{"respond-async", "wait=4"}); got != (prefer{async: true, waits: true, wait: 4 * time.Second}) {
		t.Errorf("two headers: %+v", got)
	}
}

func FuzzPrefer(f *testing.F) {
	f.Add(`respond-async, wait=10; a="b\"`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := parsePrefer([]string{text}); got.wait < 0 || got.wait > maxWait*time.Second {
			t.Errorf("%q: %+v", text, got)
		}
	})
}
