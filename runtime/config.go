// Package runtime is the server in a sandbox: it runs the worker process, executes calls on
// it and keeps the reliable streams of what the sandbox writes. It serves one daemon of
// ours, or the hosts of the public protocol. Everything that comes from the worker or from
// an unauthenticated connection is hostile.
package runtime

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/agentixd/agentixd/internal/clock"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Version is the version told in /health; a release build sets it.
var Version = "0.1.0"

// Name is what /health calls this program.
const Name = "agentix-runtime"

// Capabilities is what this runtime can do beyond the public protocol.
var Capabilities = []string{
	wire.CapFence, wire.CapEncoding, wire.CapDeadline, wire.CapOwnedResults, wire.CapSidAck, wire.CapNativeWorker, wire.CapBaggage,
	wire.CapIsolation, wire.CapRetire,
}

// Config is the whole configuration of a runtime.
type Config struct {
	Socket        string   // listen on this Unix socket, or, if empty,
	Host, Port    string   // on this TCP address
	Project       string   // directory first on the worker's import path
	Python        string   // interpreter of the worker; "" = python3 from PATH
	WorkerCommand []string // another worker, in foreign mode
	Workers       int      // worker processes, at most wire.MaxWorkers; 0 = 1
	// StopGrace is how long the code of a call that was cancelled, or whose time ran out, may go
	// on before it costs its worker; 0 = two seconds.
	StopGrace time.Duration
	Token     string // what our daemon must present
	// NeighbourSecret is what hosts of the public protocol must present, as the password of
	// HTTP Basic. With neither a token nor a secret all that reach the address are let in;
	// with a token alone, no neighbour.
	NeighbourSecret string
	// PingInterval and PingTimeout are the heartbeat of Engine.IO; 0 = the defaults.
	PingInterval, PingTimeout time.Duration
	LogBuffer                 int  // events kept for neighbours' hosts on /log; 0 = wire.MaxHostEvents
	TraceBuffer               int  // the same on /trace
	Keeper                    bool // this program calls keeper.Run first: calls with a worker of their own are kept by it
	Init                      bool // reap orphans: for a process that is PID 1 or a child subreaper
	Logger                    *slog.Logger
	Clock                     clock.Clock
}

// guarded reports whether a connection must present something.
func (c *Config) guarded() bool { return c.Token != "" || c.NeighbourSecret != "" }

// Validate fills in defaults and reports what is wrong.
func (c *Config) Validate() error {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	if c.LogBuffer <= 0 {
		c.LogBuffer = wire.MaxHostEvents
	}
	if c.TraceBuffer <= 0 {
		c.TraceBuffer = wire.MaxHostEvents
	}
	if c.PingInterval == 0 {
		c.PingInterval = pingInterval
	}
	if c.PingTimeout == 0 {
		c.PingTimeout = max(pingTimeout, 2*c.PingInterval)
	}
	if c.PingInterval < 0 || c.PingTimeout <= c.PingInterval {
		return fmt.Errorf("a ping timeout of %s is not longer than the interval of %s", c.PingTimeout, c.PingInterval)
	}
	if c.Workers < 0 || c.Workers > wire.MaxWorkers {
		return fmt.Errorf("%d workers: must be from 1 to %d", c.Workers, wire.MaxWorkers)
	}
	if c.StopGrace < 0 {
		return fmt.Errorf("a stop grace of %s is negative", c.StopGrace)
	}
	if c.Socket == "" && c.Port == "" {
		return errors.New("neither a socket nor a port to listen on")
	}
	if len(c.WorkerCommand) > 0 && c.Project != "" {
		return fmt.Errorf("project %s: another worker than ours knows no project directory", c.Project)
	}
	return nil
}
