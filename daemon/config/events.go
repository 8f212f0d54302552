package config

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"
)

// Events is how long the journals of the sandboxes, and their text logs, are kept. Old events
// go at once when a journal is too large, and within a minute when they are too old. A zero is the default.
type Events struct {
	// MaxAge is how long an event stays.
	MaxAge time.Duration `yaml:"events-max-age"`
	// MaxBytes is how much is kept for one sandbox; the oldest events go first.
	MaxBytes int64 `yaml:"events-max-bytes"`
	// KeepDeleted is how long the events of a sandbox stay after it was deleted.
	KeepDeleted time.Duration `yaml:"events-keep-deleted"`
	// LogMaxBytes is the size at which a text log becomes a backup.
	LogMaxBytes int64 `yaml:"text-log-max-bytes"`
	// LogBackups is how many backups of one text log are kept.
	LogBackups int `yaml:"text-log-backups"`
	// LogKeep is how long a text log stays after its last line, once the journal is gone.
	LogKeep time.Duration `yaml:"text-log-keep"`
}

// Bounds of what an operator can set.
const (
	MinEventBytes   = 1048576 // 1 MiB: events-max-bytes
	MinTextLogBytes = 65536   // 64 KiB: text-log-max-bytes
	MaxTextLogs     = 100     // text-log-backups
)

func defaultEvents() Events {
	return Events{
		MaxAge: 24 * time.Hour, MaxBytes: 256 << 20, KeepDeleted: time.Hour,
		LogMaxBytes: 64 << 20, LogBackups: 1, LogKeep: 7 * 24 * time.Hour,
	}
}

func (e *Events) flags(flags *pflag.FlagSet) {
	flags.DurationVar(&e.MaxAge, "events-max-age", e.MaxAge, "how long an event stays in the journal of its sandbox")
	flags.Int64Var(&e.MaxBytes, "events-max-bytes", e.MaxBytes, "bytes of events kept for one sandbox; the oldest go first")
	flags.DurationVar(&e.KeepDeleted, "events-keep-deleted", e.KeepDeleted, "how long the events of a sandbox stay after it was deleted")
	flags.Int64Var(&e.LogMaxBytes, "text-log-max-bytes", e.LogMaxBytes, "bytes at which a sandbox's text log becomes a backup")
	flags.IntVar(&e.LogBackups, "text-log-backups", e.LogBackups, "backups of one text log that are kept")
	flags.DurationVar(&e.LogKeep, "text-log-keep", e.LogKeep, "how long a text log stays after its last line, once the events are gone")
}

func (e *Events) validate(bad func(field, format string, args ...any)) {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"events-max-age", e.MaxAge}, {"events-keep-deleted", e.KeepDeleted}, {"text-log-keep", e.LogKeep}} {
		if d.value != 0 && d.value < time.Second {
			bad(d.field, "must be at least 1s")
		}
	}
	if e.MaxBytes != 0 && e.MaxBytes < MinEventBytes {
		bad("events-max-bytes", "must be at least %d", MinEventBytes)
	}
	if e.LogMaxBytes != 0 && e.LogMaxBytes < MinTextLogBytes {
		bad("text-log-max-bytes", "must be at least %d", MinTextLogBytes)
	}
	if e.LogBackups < 0 || e.LogBackups > MaxTextLogs {
		bad("text-log-backups", "must be from 1 to %d", MaxTextLogs)
	}
}

// LogValue is for the start-up log.
func (e Events) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Duration("max-age", e.MaxAge), slog.Int64("max-bytes", e.MaxBytes), slog.Duration("keep-deleted", e.KeepDeleted),
		slog.Int64("text-log-max-bytes", e.LogMaxBytes), slog.Int("text-log-backups", e.LogBackups), slog.Duration("text-log-keep", e.LogKeep),
	)
}
