// Package bundled runs the runtime server that a bundle brings and makes it reachable at a
// Unix socket: the server listens on a loopback port inside the sandbox, where nobody from
// outside can be, and this package relays the socket to it. What the server sends is the
// sandbox's and goes to the daemon as it is.
package bundled

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentixd/agentixd/runtime/reaper"
)

// Bootstrap is what starts a bundle's server.
const Bootstrap = "/nix/runtime/bootstrap.sh"

const (
	maxConnections = 256 // at once
	firstLook      = 5 * time.Millisecond
	lastLook       = 200 * time.Millisecond
	stopGrace      = 5 * time.Second // after SIGTERM
	oomScore       = "500"           // the kernel takes the server before this process
)

// Config says what to run.
type Config struct {
	Socket  string       // to listen on
	Command []string     // default: Bootstrap
	Logger  *slog.Logger // default: slog's
}

// Run runs the server until ctx ends, which is no error, or the server does, which is one.
// It collects every child of this process: nothing else may start any.
func Run(ctx context.Context, cfg Config) error {
	if len(cfg.Command) == 0 {
		cfg.Command = []string{Bootstrap}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	reap := reaper.New(true)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { reap.Run(life) }) // ends with life
	defer wg.Wait()
	defer end(nil)
	server, err := start(reap, cfg.Command, address)
	if err != nil {
		return err
	}
	wg.Go(func() { // ends with the server, or with life
		select {
		case <-server.Done():
			cancel(ended(server))
		case <-life.Done():
		}
	})
	err = relay(ctx, cfg, address)
	stop(server)
	final, done := context.WithTimeoutCause(life, stopGrace, errors.New("they do not end"))
	defer done()
	reap.KillOrphans(final)
	return err
}

func ended(p *reaper.Process) error {
	if code := p.Returncode(); code < 0 {
		return fmt.Errorf("the bundle's server was killed by signal %d", -code)
	}
	return fmt.Errorf("the bundle's server ended with exit code %d", p.Returncode())
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for the bundle's server: %w", err)
	}
	if err := l.Close(); err != nil {
		return "", fmt.Errorf("find a port for the bundle's server: %w", err)
	}
	return l.Addr().String(), nil
}

func start(reap *reaper.Reaper, command []string, address string) (*reaper.Process, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("start the bundle's server: %w", err)
	}
	env := []string{"AGENTIX_BIND_HOST=" + host, "AGENTIX_BIND_PORT=" + port}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AGENTIX_BIND_") {
			env = append(env, v)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("start the bundle's server: %w", err)
	}
	defer func() { _ = null.Close() }()
	p, err := reap.Start(command[0], command, &syscall.ProcAttr{
		Env: env, Files: []uintptr{null.Fd(), os.Stderr.Fd(), os.Stderr.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start the bundle's server: %w", err)
	}
	// Best effort: a user namespace may forbid it.
	_ = os.WriteFile("/proc/"+strconv.Itoa(p.Pid)+"/oom_score_adj", []byte(oomScore), 0)
	return p, nil
}

// stop ends the server, at first gently.
func stop(p *reaper.Process) {
	_ = p.Signal(syscall.SIGTERM, true)
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		_ = p.Signal(syscall.SIGKILL, true)
		<-p.Done()
	}
}

// relay waits until the server accepts connections, then listens and passes on until ctx ends.
// It returns why, if that was the server.
func relay(ctx context.Context, cfg Config, address string) error {
	dialer := &net.Dialer{}
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		select {
		case <-ctx.Done():
			return causeOf(ctx)
		case <-time.After(pause):
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", cfg.Socket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(cfg.Socket, 0o600); err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), l.Close())
	}
	cfg.Logger.Info("bundle's server is reachable", "socket", cfg.Socket)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				return fmt.Errorf("accept: %w", err)
			}
			return causeOf(ctx)
		}
		select {
		case slots <- struct{}{}:
		default: // who has so many is not the daemon
			_ = conn.Close()
			continue
		}
		wg.Go(func() { // ends with the connection, or with ctx
			defer func() { <-slots }()
			pass(ctx, dialer, conn.(*net.UnixConn), address) //nolint:forcetypeassert // it listens on a Unix socket
		})
	}
}

// causeOf is nil if ctx ended as intended.
func causeOf(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// pass joins a connection with one to the server.
func pass(ctx context.Context, dialer *net.Dialer, conn *net.UnixConn, address string) {
	defer func() { _ = conn.Close() }()
	server, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	to := server.(*net.TCPConn) //nolint:forcetypeassert // it was dialled by tcp
	defer func() { _ = to.Close() }()
	defer context.AfterFunc(ctx, func() { _, _ = conn.Close(), to.Close() })()
	var wg sync.WaitGroup
	wg.Go(func() { // ends with either connection
		_, _ = io.Copy(to, conn)
		_ = to.CloseWrite()
	})
	_, _ = io.Copy(conn, to)
	_ = conn.CloseWrite()
	_ = conn.CloseRead() // the server has said all it will
	wg.Wait()
}
