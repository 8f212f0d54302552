package sandboxes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/errs"
)

var filtered = sandboxes.Sandbox{
	ID: "box-1", State: sandboxes.Ready, Image: "docker.io/library/python:3.12", Provider: "process",
	Labels:     map[string]string{"team": "x y", "app.kubernetes.io/name": "web", "empty": ""},
	CreateTime: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
}

func TestFilter(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                      true,
		"*":                                     true,
		`state = READY AND labels.team = "x y"`: true,
		`state=READY AND labels.team='x y'`:     true,
		`state = "READY"`:                       true,
		`state = PAUSED`:                        false,
		`state != PAUSED`:                       true,
		`name = box-1`:                          true,
		`name = "sandboxes/box-1"`:              true,
		`name = box-2`:                          false,
		`image = docker.io/library/python:3.12`: true,
		`reason = OOM_KILLED`:                   false,
		`reason = ""`:                           true,
		`labels.app.kubernetes.io/name = web`:   true,
		`labels:team`:                           true,
		`labels:"team"`:                         true,
		`labels:other`:                          false,
		`NOT labels:other`:                      true,
		`-labels:other AND -(labels:other)`:     true,
		`labels.other = ""`:                     false,
		`labels.other != ""`:                    true,
		`labels.empty = ""`:                     true,
		`labels.empty != ""`:                    false,
		`state = PAUSED OR state = READY`:       true,
		`state = PAUSED AND name = x OR state = READY`:   false, // OR binds tighter, as in AIP-160
		`state = READY OR name = x AND state = PAUSED`:   false,
		`state = READY OR (name = x AND state = PAUSED)`: true,
		`create_time > 2026-11-29T11:59:59Z`:             true,
		`create_time >= "2026-11-29T13:00:00+01:00"`:     true,
		`create_time < 2026-11-29T12:00:00Z`:             false,
		`expire_time < 2030-01-01T00:00:00Z`:             false, // it has none
		`expire_time != 2030-01-01T00:00:00Z`:            true,
	} {
		f, err := sandboxes.ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Match(&filtered); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestFilterRefusals: what is not supported is named, never taken for something else.
func TestFilterRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`colour = red`:                "is no field",
		`env.X = 1`:                   "is no field",
		`READY`:                       "is no field",
		`state = RUNNING`:             "none of CREATING, READY",
		`reason = BORED`:              "none of DELETED",
		`state > READY`:               "= or !=",
		`labels.team : x`:             "= or !=",
		`state = READY labels:team`:   "AND, OR or the end",
		`state = READY AND`:           "ends where the name of a field",
		`state =`:                     "ends where a value",
		`state = READY )`:             "AND, OR or the end",
		`(state = READY`:              "ends where AND, OR or )",
		`name = box*`:                 "wildcards",
		`name = *`:                    "wildcards",
		`labels.team = "x*"`:          "wildcards",
		`labels.team = "x`:            "not closed",
		`labels = x`:                  "labels:team",
		`create_time > yesterday`:     "is no time",
		`create_time : 2026-01-01`:    "=, !=, <",
		`state = READY && name = x`:   "AND, OR or the end",
		strings.Repeat("(", 100):      "deep",
		strings.Repeat("NOT ", 100):   "deep",
		strings.Repeat("x", 2049):     "2049 bytes",
		`lower(name) = x`:             "is no field",
		`state = READY; DROP sandbox`: "AND, OR or the end",
	} {
		_, err := sandboxes.ParseFilter(text)
		e := refusal(t, err, errs.InvalidArgument, errs.InvalidField)
		if len(e.Violations) != 1 || e.Violations[0].Field != "filter" || !strings.Contains(e.Message, want) {
			t.Errorf("%.60s: %q, want %q", text, e.Message, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, text := range []string{`state = READY AND labels.team = "x"`, `-(labels:a OR NOT name != "\"")`, `create_time<=2026-11-29T12:00:00Z`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := sandboxes.ParseFilter(text)
		if err != nil {
			wantReason(t, err, errs.InvalidArgument, errs.InvalidField)
			return
		}
		parsed.Match(&filtered)
		parsed.Match(&sandboxes.Sandbox{})
	})
}
