package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/internal/failpoint"
	"github.com/agentixd/agentixd/providers"
)

// maxSocketPath is what fits into a Unix socket address, without its final NUL.
const maxSocketPath = 107

// sandbox is one runtime process and its directory.
type sandbox struct {
	id, dir string
	created chan struct{} // closed once Create is over

	mu  sync.Mutex // guards rec
	rec record

	destroyMu sync.Mutex // held while it is removed
	destroyed bool
}

func newSandbox(id, dir string) *sandbox {
	return &sandbox{id: id, dir: dir, created: make(chan struct{})}
}

// ID is the sandbox id.
func (s *sandbox) ID() string { return s.id }

// Dial connects to the runtime's socket.
func (s *sandbox) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := providers.DialSocket(ctx, s.socket())
	if err != nil {
		return nil, fmt.Errorf("dial sandbox %s: %w", s.id, err)
	}
	return conn, nil
}

// RuntimeLog returns the end of what the runtime itself wrote to its standard error.
func (s *sandbox) RuntimeLog() string { return providers.LogTail(s.logFile()) }

func (s *sandbox) socket() string  { return filepath.Join(s.dir, "rpc.sock") }
func (s *sandbox) workDir() string { return filepath.Join(s.dir, "work") }
func (s *sandbox) tempDir() string { return filepath.Join(s.dir, "tmp") }
func (s *sandbox) logFile() string { return filepath.Join(s.dir, "runtime.log") }

// Status tells whether the runtime runs.
func (s *sandbox) Status(context.Context) (providers.Status, error) { return s.status(), nil }

func (s *sandbox) status() providers.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := providers.Status{ID: s.id, Running: s.rec.PID > 0 && s.rec.Exit == nil}
	st.Paused = st.Running && s.rec.stopped()
	if s.rec.Exit != nil {
		st.Exit = &providers.Exit{ID: s.id, Reason: s.rec.Exit.Reason, Code: s.rec.Exit.Code}
	}
	return st
}

// start makes the directory and starts the runtime. The token follows the record: a
// runtime that is not on record yet, because the daemon died here, reads the end of its
// standard input instead and ends by itself.
func (p *Provider) start(ctx context.Context, s *sandbox, spec providers.Spec) (pidfd int, err error) {
	if err := context.Cause(ctx); err != nil {
		return -1, err
	}
	if len(s.socket()) > maxSocketPath {
		return -1, errs.New(errs.FailedPrecondition, errs.StartFailed,
			"the socket path %s is longer than %d bytes; use a shorter state directory", s.socket(), maxSocketPath)
	}
	token, err := spec.StdinLine()
	if err != nil {
		return -1, err
	}
	args := []string{p.cfg.RuntimePath, "--socket", s.socket(), "--token-stdin"}
	args = append(args, spec.WorkerArgs()...)
	if spec.Project != nil {
		project, err := resolve(spec.Project)
		if err != nil {
			return -1, err
		}
		args = append(args, "--project", project)
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return -1, fmt.Errorf("make directory: %w", err)
	}
	for _, dir := range []string{s.workDir(), s.tempDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return -1, fmt.Errorf("make directory: %w", err)
		}
	}
	if err := failpoint.Inject("create/afterDir"); err != nil {
		return -1, err
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return -1, fmt.Errorf("open runtime log: %w", err)
	}
	defer log.Close()
	stdin, tokenPipe, err := os.Pipe()
	if err != nil {
		return -1, fmt.Errorf("make token pipe: %w", err)
	}
	defer tokenPipe.Close()
	proc, pidfd, err := spawn(args, s.workDir(), s.environ(spec.Env), stdin, log)
	_ = stdin.Close()
	if err != nil {
		return -1, err
	}
	st, err := readStat(proc)
	if err == nil {
		err = failpoint.Inject("create/afterSpawn")
	}
	if err == nil {
		s.mu.Lock()
		s.rec = record{PID: proc, StartTime: st.startTime, Boot: bootID()}
		err = s.rec.write(s.dir)
		s.mu.Unlock()
	}
	if err == nil {
		_, err = tokenPipe.Write(token)
	}
	if err != nil && !errors.Is(err, unix.EPIPE) { // a runtime that is gone already is an exit to watch for
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		reap(pidfd)
		_ = unix.Close(pidfd)
		return -1, err
	}
	return pidfd, nil
}

// spawn starts a child in a session of its own; it gets a pidfd instead of a waiting goroutine.
func spawn(args []string, dir string, env []string, stdin, log *os.File) (pid, pidfd int, err error) {
	pidfd = -1
	proc, err := os.StartProcess(args[0], args, &os.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []*os.File{stdin, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err != nil {
		return 0, -1, fmt.Errorf("start runtime: %w", err)
	}
	pid = proc.Pid
	if err := proc.Release(); err != nil {
		return 0, -1, fmt.Errorf("release runtime: %w", err)
	}
	if pidfd < 0 {
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			return 0, -1, fmt.Errorf("open pidfd of runtime: %w", err)
		}
	}
	if err := unix.SetNonblock(pidfd, true); err != nil {
		return 0, -1, fmt.Errorf("open pidfd of runtime: %w", err)
	}
	return pid, pidfd, nil
}

// environ passes on three variables of the daemon's own environment and nothing else.
// Temporary files go into the sandbox's directory, so that they end with it.
func (s *sandbox) environ(user map[string]string) []string {
	env := map[string]string{"TMPDIR": s.tempDir()}
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	maps.Copy(env, user)
	env[markerEnv] = s.dir
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// resolve turns the open directory into a path that leads to the very same directory.
func resolve(d *providers.Dir) (string, error) {
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(d.FD))
	if err != nil {
		return "", fmt.Errorf("resolve project %s: %w", d.Path, err)
	}
	var byFD, byPath unix.Stat_t
	if err := unix.Fstat(d.FD, &byFD); err != nil {
		return "", fmt.Errorf("resolve project %s: %w", d.Path, err)
	}
	if err := unix.Stat(path, &byPath); err != nil || byFD.Dev != byPath.Dev || byFD.Ino != byPath.Ino {
		return "", errs.New(errs.FailedPrecondition, errs.HostPathRefused,
			"project %s was moved or removed meanwhile", d.Path)
	}
	return path, nil
}
