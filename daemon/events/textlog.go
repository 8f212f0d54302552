package events

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
)

const (
	textLogFiles = 128 // open at once
	textLogIdle  = time.Minute
	positionName = ".position"
)

// textLog writes the journals as text for people: `sandbox-<id>.log` each. It is a follower
// of the journal like any other, so that a slow or full disk of logs holds up nobody, and it
// keeps its position in a file: after a crash it goes on where it was, with at most the last
// lines twice.
type textLog struct {
	dir      string
	journal  *Journal
	files    map[string]*textFile
	detached map[string]bool // sandboxes whose log failed
	position *os.File
	warned   bool // that the position cannot be kept
	ended    chan struct{}
}

type textFile struct {
	file *os.File
	size int64
	used time.Time
	rest map[string]*held // by output stream: the beginning of a character whose end is still to come
}

// startTextLog returns nil if there is no directory for it.
func (j *Journal) startTextLog() *textLog {
	if j.opts.LogDir == "" || j.loaded != nil {
		return nil
	}
	l := &textLog{dir: j.opts.LogDir, journal: j, files: map[string]*textFile{}, detached: map[string]bool{}, ended: make(chan struct{})}
	go func() { // ends when the journal is closed, or with an error
		defer close(l.ended)
		defer l.closeFiles()
		if err := l.follow(); err != nil && !errs.Is(err, errs.Unavailable) {
			j.opts.Logger.Error("text logs are not written any more", "err", err)
		}
	}()
	return l
}

func (l *textLog) wait() {
	if l != nil {
		<-l.ended
	}
}

// follow reads all journals from the stored position on.
func (l *textLog) follow() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	position, err := os.OpenFile(filepath.Join(l.dir, positionName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	l.position = position
	q := Query{After: l.savedPosition(), Follow: true}
	src := newAllSource(l.journal, &q)
	src.bare = true
	defer src.close()
	r := &reader{journal: l.journal, src: src, query: &q, fn: l.write}
	err = src.start(context.Background(), &q, &r.filter)
	if errs.Is(err, errs.OutOfRange) { // the logs of another state directory
		q.After = ""
		err = src.start(context.Background(), &q, &r.filter)
	}
	if err != nil {
		return err
	}
	return r.run(context.Background())
}

func (l *textLog) savedPosition() string {
	saved := make([]byte, 2*maxCursorBytes)
	n, _ := l.position.ReadAt(saved, 0) // what cannot be read is no position
	return strings.TrimSpace(string(saved[:n]))
}

// write is called with what is new, and without events when there was nothing for a while.
func (l *textLog) write(evs []Event, at string) error {
	now := time.Now()
	for start := 0; start < len(evs); { // the events of one sandbox come in runs
		end := start + 1
		for end < len(evs) && evs[end].Sandbox == evs[start].Sandbox {
			end++
		}
		l.writeRun(evs[start].Sandbox, evs[start:end], now)
		start = end
	}
	l.closeIdle(now)
	if len(evs) == 0 {
		return nil
	}
	line := make([]byte, 2*maxCursorBytes)
	for i := range line {
		line[i] = ' '
	}
	copy(line, at)
	line[len(line)-1] = '\n'
	if _, err := l.position.WriteAt(line, 0); err != nil && !l.warned {
		l.warned = true
		l.journal.warn("position of the text logs cannot be kept; a restart will repeat lines", "", err)
	}
	return nil
}

func (l *textLog) writeRun(sandbox string, evs []Event, now time.Time) {
	if l.detached[sandbox] {
		return
	}
	err := l.append(sandbox, evs, now)
	if err == nil {
		return
	}
	l.detached[sandbox] = true
	l.journal.warn("text log detached after a failed write", sandbox, err)
	if f := l.files[sandbox]; f != nil {
		_ = f.file.Close()
		delete(l.files, sandbox)
	}
}

func (l *textLog) append(sandbox string, evs []Event, now time.Time) error {
	f, err := l.open(sandbox)
	if err != nil {
		return err
	}
	f.used = now
	var lines []byte
	for i := range evs {
		lines = f.appendLines(lines, &evs[i])
	}
	n, err := f.file.Write(lines)
	f.size += int64(n)
	if err != nil || f.size < l.journal.opts.LogMaxBytes {
		return err
	}
	return l.rotate(sandbox, f)
}

func (l *textLog) path(sandbox string) string {
	return filepath.Join(l.dir, "sandbox-"+sandbox+".log")
}

func (l *textLog) backup(sandbox string, n int) string {
	return fmt.Sprintf("%s.%d", l.path(sandbox), n)
}

func (l *textLog) open(sandbox string) (*textFile, error) {
	if f := l.files[sandbox]; f != nil {
		return f, nil
	}
	if strings.ContainsAny(sandbox, "/\x00") {
		return nil, errors.New("the id is no file name")
	}
	if len(l.files) >= textLogFiles {
		l.closeOldest()
	}
	file, err := os.OpenFile(l.path(sandbox), os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f := &textFile{file: file, size: info.Size(), rest: map[string]*held{}}
	l.files[sandbox] = f
	return f, nil
}

// rotate makes the log the first of its backups, the first the second, and so on; the last
// one goes.
func (l *textLog) rotate(sandbox string, f *textFile) error {
	if err := failpoint.Inject("events/onRotate"); err != nil {
		return err
	}
	delete(l.files, sandbox)
	if err := f.file.Close(); err != nil {
		return err
	}
	for n := l.journal.opts.LogBackups; n > 1; n-- {
		if err := os.Rename(l.backup(sandbox, n-1), l.backup(sandbox, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.path(sandbox), l.backup(sandbox, 1)); err != nil {
		return err
	}
	next, err := l.open(sandbox)
	if err == nil {
		next.used, next.rest = f.used, f.rest
	}
	return err
}

// close writes what waited for the rest of its character. All else was written already.
func (f *textFile) close() {
	_, _ = f.file.Write(f.flush(nil))
	_ = f.file.Close()
}

func (l *textLog) closeIdle(now time.Time) {
	for sandbox, f := range l.files {
		if now.Sub(f.used) > textLogIdle {
			f.close()
			delete(l.files, sandbox)
		}
	}
}

func (l *textLog) closeOldest() {
	var oldest string
	for sandbox, f := range l.files {
		if oldest == "" || f.used.Before(l.files[oldest].used) {
			oldest = sandbox
		}
	}
	l.files[oldest].close()
	delete(l.files, oldest)
}

func (l *textLog) closeFiles() {
	for _, f := range l.files {
		f.close()
	}
	if l.position != nil {
		_ = l.position.Close()
	}
}

// removeOld removes logs that nobody wrote for long and whose journal is gone.
func (l *textLog) removeOld(now time.Time, kept func(sandbox string) bool) {
	if l == nil {
		return
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		id, ours := sandboxOf(e.Name())
		info, err := e.Info()
		if err != nil || !ours || kept(id) || now.Sub(info.ModTime()) < l.journal.opts.LogKeep {
			continue
		}
		if err := os.Remove(filepath.Join(l.dir, e.Name())); err != nil {
			l.journal.warn("old text log could not be removed", id, err)
		}
	}
}

// sandboxOf is whose text log, or backup of one, has this file name.
func sandboxOf(name string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, "sandbox-")
	id, rest, found := strings.Cut(id, ".log")
	if n, isBackup := strings.CutPrefix(rest, "."); isBackup {
		_, err := strconv.ParseUint(n, 10, 16)
		return id, ok && found && err == nil
	}
	return id, ok && found && rest == ""
}
