package process

import (
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentixd/agentixd/providers"
)

// monitor waits for the end of a runtime in a goroutine that ends with it or with Close.
func (p *Provider) monitor(s *sandbox, pidfd int) {
	file := os.NewFile(uintptr(pidfd), "pidfd") // non-blocking, so it is polled like a socket
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.wg.Add(2)
	}
	p.mu.Unlock()
	if closed {
		_ = file.Close()
		return
	}
	over := make(chan struct{})
	go func() { // ends with the other one, or with Close
		defer p.wg.Done()
		select {
		case <-p.closing:
			_ = file.SetReadDeadline(time.Unix(1, 0))
		case <-over:
		}
	}()
	go func() {
		defer p.wg.Done()
		defer close(over)
		defer file.Close()
		conn, err := file.SyscallConn()
		if err != nil {
			p.log.Error("runtime not watched", "sandbox", s.id, "err", err)
			return
		}
		var exit exitRecord
		err = conn.Read(func(fd uintptr) bool {
			if !readable(int(fd)) {
				return false
			}
			// While it is not reaped its session cannot be mistaken for another's.
			if err := s.sweep(); err != nil {
				p.log.Error("processes left behind", "sandbox", s.id, "err", err)
			}
			exit = reap(int(fd))
			return true
		})
		if err != nil {
			return // Close
		}
		p.ended(s, exit)
	}()
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// ended puts the exit on record.
func (p *Provider) ended(s *sandbox, exit exitRecord) {
	s.mu.Lock()
	s.rec.Exit = &exit
	rec := s.rec
	s.mu.Unlock()
	s.destroyMu.Lock()
	if !s.destroyed {
		if err := rec.write(s.dir); err != nil {
			p.log.Error("exit not recorded", "sandbox", s.id, "err", err)
		}
	}
	s.destroyMu.Unlock()
	p.exits.Publish(providers.Exit{ID: s.id, Reason: exit.Reason, Code: exit.Code})
}

// siginfoChild is the layout of siginfo_t for SIGCHLD on 64-bit Linux.
type siginfoChild struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
	_                     [100]byte
}

// reap takes the exit status of an ended process. The kernel keeps it for whoever holds the
// pidfd (since 6.15); before that only our own children tell theirs.
func reap(pidfd int) exitRecord {
	var info siginfoChild
	err := unix.Waitid(unix.P_PIDFD, pidfd, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED, nil) //nolint:gosec // the same size, of which unix.Siginfo names too little
	if err == nil && info.pid != 0 {
		const cldExited = 1
		if info.code == cldExited {
			return exitRecord{Reason: providers.Exited, Code: int(info.status)}
		}
		return exitRecord{Reason: providers.Killed, Code: -int(info.status)}
	}
	pi := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(pidfd, &pi); err != nil || pi.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return exitRecord{Reason: providers.Lost}
	}
	ws := unix.WaitStatus(pi.Exit_code)
	if ws.Signaled() {
		return exitRecord{Reason: providers.Killed, Code: -int(ws.Signal())}
	}
	return exitRecord{Reason: providers.Exited, Code: ws.ExitStatus()}
}

// trimLogs keeps the runtimes' own logs bounded: they are appended to by processes that
// outlive us.
func (p *Provider) trimLogs() {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-p.closing:
			return
		case <-tick.C:
		}
		logs, err := filepath.Glob(filepath.Join(p.cfg.StateDir, "*", "runtime.log"))
		if err != nil {
			continue
		}
		for _, log := range logs {
			providers.TrimLog(log)
		}
	}
}
