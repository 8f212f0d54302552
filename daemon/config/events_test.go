package config_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentixd/agentixd/daemon/config"
	"github.com/google/go-cmp/cmp"
)

func TestRetentionIsConfigured(t *testing.T) {
	got, err := config.Load(nil, environment(nil), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Events{MaxAge: 24 * time.Hour, MaxBytes: 268435456, KeepDeleted: time.Hour, LogMaxBytes: 67108864, LogBackups: 1, LogKeep: 168 * time.Hour}
	if diff := cmp.Diff(got.Events, want); diff != "" {
		t.Errorf("defaults: %s", diff)
	}
	file := write(t, "events-max-age: 2h\nevents-max-bytes: 2000000\ntext-log-keep: 1h\n")
	got, err = config.Load([]string{"--config", file, "--events-keep-deleted", "5m", "--text-log-backups=3"},
		environment(map[string]string{"AGENTIXD_TEXT_LOG_MAX_BYTES": "65536", "AGENTIXD_EVENTS_MAX_AGE": "3h"}), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want = config.Events{MaxAge: 3 * time.Hour, MaxBytes: 2000000, KeepDeleted: 5 * time.Minute, LogMaxBytes: 65536, LogBackups: 3, LogKeep: time.Hour}
	if diff := cmp.Diff(got.Events, want); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	got.Events = config.Events{}
	if err := got.Validate(); err != nil {
		t.Errorf("zeros: %v", err)
	}
	got.Events = config.Events{MaxAge: 1, MaxBytes: 1048575, KeepDeleted: time.Second - 1, LogMaxBytes: 65535, LogBackups: 101, LogKeep: -time.Hour}
	text := got.Validate().Error()
	for _, part := range []string{
		"events-max-age: must be at least 1s", "events-keep-deleted: must be at least 1s", "text-log-keep: must be at least 1s",
		"events-max-bytes: must be at least 1048576", "text-log-max-bytes: must be at least 65536", "text-log-backups: must be from 1 to 100",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}
