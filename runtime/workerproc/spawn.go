package workerproc

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/runtime/keeper"
	"github.com/agentixd/agentixd/runtime/output"
	"github.com/agentixd/agentixd/runtime/reaper"
)

var pastDeadline = time.Unix(1, 0)

// oomScoreAdj makes the kernel take user processes before the runtime.
const oomScoreAdj = 500

// tailBytes is how much of a worker's last words is kept to explain a failed boot.
const tailBytes = 2048

// process is one running worker process with its pipes.
type process struct {
	*reaper.Process
	id       string
	toWorker *os.File
	frames   *source
	stderr   *os.File // foreign mode only
	started  time.Time
	oomKills uint64
}

// spawn starts the process of a worker, with pipes for its output.
func (w *worker) spawn() (*process, error) {
	argv, err := w.p.argv()
	if err != nil {
		return nil, err
	}
	p := &process{id: newWorkerID(), started: time.Now(), oomKills: w.p.oomKills()}
	theirs, err := p.pipes(w)
	defer closeAll(theirs) // the child has its own copies
	if err == nil {
		err = p.start(w, argv, theirs)
	}
	if err != nil {
		for _, pipe := range []*output.Pipe{w.stdout, w.stderr} {
			if pipe != nil {
				err = errors.Join(err, pipe.Close())
			}
		}
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *process) start(w *worker, argv []string, theirs []*os.File) error {
	files := make([]uintptr, len(theirs))
	for i, f := range theirs {
		files[i] = f.Fd()
	}
	cfg := &w.p.cfg
	set := map[string]string{envImportRoot: cfg.ImportRoot}
	if w.p.native() {
		set[envFDs] = "3,4"
	}
	if cfg.Project != "" {
		set[envProject] = cfg.Project
	}
	path, env := argv[0], workerEnv(os.Environ(), argv[0], p.id, set)
	kept := cfg.Keeper && w.alone
	if kept {
		path, argv, env = keeper.Command(argv, env, len(files), oomScoreAdj)
	}
	var err error
	p.Process, err = cfg.Reaper.Start(path, argv, &syscall.ProcAttr{
		Dir: cfg.Dir, Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return err
	}
	if kept { // it does the rest
		return nil
	}
	// Best effort: a user namespace may forbid it, and the worker may be gone already.
	_ = os.WriteFile("/proc/"+strconv.Itoa(p.Pid)+"/oom_score_adj", []byte(strconv.Itoa(oomScoreAdj)), 0)
	return nil
}

// native says whether frames go over descriptors of their own.
func (p *Pool) native() bool { return len(p.cfg.Command) == 0 }

func (p *Pool) argv() ([]string, error) {
	if !p.native() {
		path, err := exec.LookPath(p.cfg.Command[0])
		if err != nil {
			return nil, fmt.Errorf("find the worker command: %w", err)
		}
		return append([]string{path}, p.cfg.Command[1:]...), nil
	}
	python := p.cfg.Python
	if python == "" {
		python = "python3"
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return nil, fmt.Errorf("find the Python interpreter: %w", err)
	}
	return []string{path, "-c", p.cfg.Bootstrap}, nil
}

// pipes makes the pipes of one worker and returns the files that become its descriptors
// 0, 1, 2 and, in native mode, 3 and 4.
func (p *process) pipes(w *worker) ([]*os.File, error) {
	callR, callW, err := pipe(false, true)
	if err != nil {
		return nil, err
	}
	p.toWorker = callW
	frameR, frameW, err := pipe(true, false)
	if err != nil {
		return []*os.File{callR}, err
	}
	p.frames = &source{file: frameR}
	if w.p.native() {
		null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
		if err != nil {
			return []*os.File{callR, frameW}, err
		}
		var stdout, stderr *os.File
		if w.stdout, stdout, err = output.NewPipe(w.emit("stdout")); err == nil {
			w.stderr, stderr, err = output.NewPipe(w.emit("stderr"))
		}
		return []*os.File{null, stdout, stderr, callR, frameW}, err
	}
	errR, errW, err := pipe(true, false)
	p.stderr = errR
	return []*os.File{callR, frameW, errW}, err
}

// pipe makes a close-on-exec pipe whose ends block unless asked otherwise: the runtime's
// end is waited for by Go's poller, the worker's end must block.
func pipe(pollRead, pollWrite bool) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make a worker pipe: %w", err)
	}
	if pollRead {
		err = unix.SetNonblock(fds[0], true)
	}
	if pollWrite {
		err = errors.Join(err, unix.SetNonblock(fds[1], true))
	}
	return os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "worker"), err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // our copies of the child's descriptors: nothing to lose
		}
	}
}

// close closes the runtime's ends.
func (p *process) close() error {
	var errs []error
	for _, f := range []*os.File{p.toWorker, p.stderr} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if p.frames != nil {
		errs = append(errs, p.frames.file.Close())
	}
	return errors.Join(errs...)
}

func newWorkerID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// tail keeps the last bytes that a worker wrote.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write keeps the end of b.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if extra := len(t.b) - tailBytes; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.b), "\uFFFD"))
}

var _ io.Writer = (*tail)(nil)
