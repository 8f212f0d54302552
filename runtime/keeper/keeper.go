// Package keeper is a small process between the runtime and the worker of one call. It is the
// parent of all orphans below it, so whatever the call started stays in one tree, however it was
// detached and whatever it hid. When the worker ends it kills what is left and ends like it.
package keeper

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/runtime/reaper"
)

// name is what a keeper is called; the arguments are those of the worker.
const name = "agentix-keeper"

// envOOM holds the worker's oom_score_adj and the number of its descriptors.
const envOOM, envFiles = "AGENTIX_KEEPER_OOM", "AGENTIX_KEEPER_FILES"

// killWait bounds how long the end of what is left may take; the runtime looks once more.
const killWait = 5 * time.Second

// Command is how this program is started as the keeper of a worker with these arguments and so
// many descriptors, the first of them 0. Its main function must call Run first.
func Command(argv, env []string, files, oomScoreAdj int) (path string, args, environ []string) {
	environ = append(env[:len(env):len(env)], envOOM+"="+strconv.Itoa(oomScoreAdj), envFiles+"="+strconv.Itoa(files))
	return "/proc/self/exe", append([]string{name}, argv...), environ
}

// Run does nothing unless this process was started as a keeper; it does not return then.
func Run() {
	if os.Args[0] != name || len(os.Args) < 2 {
		return
	}
	status, err := keep(os.Args[1:])
	if err != nil {
		slog.Error("the worker of one call is not kept", "err", err)
		os.Exit(1)
	}
	if status < 0 {
		die(syscall.Signal(-status))
	}
	os.Exit(status)
}

// die ends this process by a signal, past the handlers of Go.
func die(sig syscall.Signal) {
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})                                                // the worker has left one, if any was to be
	var deflt [8]uint64                                                                                          // struct sigaction: SIG_DFL, no flags, no mask
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&deflt)), 0, 8, 0, 0) //nolint:gosec // The kernel reads it during the call.
	_ = syscall.Kill(os.Getpid(), sig)
	select {} // until it comes
}

// keep runs the worker to its end and kills what it left.
func keep(argv []string) (status int, err error) {
	runtime.LockOSThread() // the worker is told of the end of this thread, which is the first
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, os.NewSyscallError("prctl", err)
	}
	// Taken, for what is ignored would be ignored by the worker, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM)
	var env []string
	files, score := 0, ""
	for _, kv := range os.Environ() {
		switch key, value, _ := strings.Cut(kv, "="); key {
		case envOOM:
			score = value
		case envFiles:
			files, _ = strconv.Atoi(value)
		default:
			env = append(env, kv)
		}
	}
	r := reaper.New(true)
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	go r.Run(ctx) // ends with the process
	fds := make([]uintptr, files)
	for i := range fds {
		fds[i] = uintptr(i)
	}
	worker, err := r.Start(argv[0], argv, &syscall.ProcAttr{
		Env: env, Files: fds, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, err
	}
	// Best effort, as the runtime does.
	_ = os.WriteFile("/proc/"+strconv.Itoa(worker.Pid)+"/oom_score_adj", []byte(score), 0) //nolint:gosec // A number and a number.
	letGo(files)
	<-worker.Done()
	killCtx, cancel := context.WithTimeoutCause(context.Background(), killWait, errors.New("its processes did not end in time"))
	defer cancel()
	_ = r.KillTree(killCtx, reaper.Tree{Root: worker, All: true}) // the runtime looks once more, and complains
	return worker.Returncode(), nil
}

// letGo closes the descriptors, whose other ends wait for the end of the worker.
func letGo(files int) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for fd := range files {
		if err == nil && fd <= 2 {
			_ = unix.Dup3(null, fd, 0)
			continue
		}
		_ = unix.Close(fd)
	}
}
