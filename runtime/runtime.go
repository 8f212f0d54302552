package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/agentixd/agentixd/internal/mutant"
	"github.com/agentixd/agentixd/runtime/reaper"
	"github.com/agentixd/agentixd/runtime/wire"
	"github.com/agentixd/agentixd/runtime/workerproc"
	"github.com/agentixd/agentixd/worker"
)

// rawMessage is msgpack that is written as it is.
type rawMessage = msgpack.RawMessage

// Runtime is the server of one sandbox.
type Runtime struct {
	cfg        Config
	listener   net.Listener
	importRoot string
	hub        *hub
	calls      *calls
	sio        *sioServer
	workers    *workerproc.Pool
	reaper     *reaper.Reaper
	plugins    plugins
	trim       trimmer

	cursorMu sync.Mutex
	cursors  map[sender]cursor // of neighbours' workers

	stateMu sync.Mutex
	state   wire.Ready
}

// New opens the listener and prepares everything; Run starts it. On an error nothing is
// left open.
func New(cfg Config) (*Runtime, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Runtime{cfg: cfg, reaper: reaper.New(cfg.Init)}
	foreign := len(cfg.WorkerCommand) > 0
	r.hub = newHub(cfg.Token == "" || cfg.NeighbourSecret != "", cfg.LogBuffer, cfg.TraceBuffer)
	r.calls = newCalls(r.hub, foreign, cfg.Clock)
	r.plugins.opened, r.cursors = map[string]bool{}, map[sender]cursor{}
	var err error
	if !foreign {
		if r.importRoot, err = unpackWorker(cfg.Socket); err != nil {
			return nil, err
		}
	}
	r.workers = workerproc.New(workerproc.Config{
		Workers: cfg.Workers, StopGrace: cfg.StopGrace, Keeper: cfg.Keeper, Python: cfg.Python, Project: cfg.Project, ImportRoot: r.importRoot, Bootstrap: worker.Bootstrap,
		Command: cfg.WorkerCommand, Reaper: r.reaper, Handler: &workerHandler{r}, Logger: cfg.Logger,
	})
	r.calls.workers = r.workers
	r.sio = newSIOServer(r)
	if r.listener, err = listen(&r.cfg); err != nil {
		return nil, errors.Join(err, r.removeImportRoot())
	}
	return r, nil
}

// Addr is where the runtime listens.
func (r *Runtime) Addr() net.Addr { return r.listener.Addr() }

// stopGrace bounds how long HTTP requests may take to end when the runtime stops.
const stopGrace = time.Second

// Run serves until ctx ends, then stops the worker in order and closes everything.
func (r *Runtime) Run(ctx context.Context) error {
	reapCtx, stopReaper := context.WithCancelCause(context.WithoutCancel(ctx))
	var reaping, owned sync.WaitGroup
	reaping.Go(func() { r.reaper.Run(reapCtx) }) // ends with stopReaper, after the worker did

	server := &http.Server{Handler: r.handler(), ReadHeaderTimeout: 10 * time.Second, ConnContext: withConn}
	serveErr := make(chan error, 1)
	owned.Go(func() { serveErr <- server.Serve(meteredListener{r.listener}) }) // ends with Shutdown
	workersErr := make(chan error, 1)
	runCtx, stop := context.WithCancelCause(ctx)
	owned.Go(func() { workersErr <- r.workers.Run(runCtx) }) // ends with runCtx

	var err error
	select {
	case <-ctx.Done():
	case err = <-serveErr:
		err = fmt.Errorf("serve: %w", err)
	}
	r.trim.stop()
	r.hub.close() // nothing may block the worker's last words
	stop(errStopping)
	workerErr := <-workersErr
	r.sio.close()
	shutdownCtx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopGrace, errStopping)
	defer cancel()
	if e := server.Shutdown(shutdownCtx); e != nil {
		_ = server.Close() // the requests that did not end in time are cut
	}
	owned.Wait()
	killCtx, cancelKill := context.WithTimeoutCause(context.WithoutCancel(ctx), stopGrace, errStopping)
	defer cancelKill()
	r.reaper.KillOrphans(killCtx)
	stopReaper(errStopping)
	reaping.Wait()
	return errors.Join(err, workerErr, r.removeImportRoot())
}

var errStopping = errors.New("the runtime is stopping")

func (r *Runtime) removeImportRoot() error {
	if r.importRoot == "" {
		return nil
	}
	if err := os.RemoveAll(r.importRoot); err != nil {
		return fmt.Errorf("remove the worker's files: %w", err)
	}
	return nil
}

// readyState is how the worker is now.
func (r *Runtime) readyState() wire.Ready {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	return r.state
}

// setState notes how the worker is; announce tells daemon sessions.
func (r *Runtime) setState(state wire.Ready, announce bool) {
	r.stateMu.Lock()
	changed := r.state.WorkerOK != state.WorkerOK || r.state.Error != state.Error || r.state.Python != state.Python
	r.state = state
	r.stateMu.Unlock()
	if announce && changed {
		r.sio.announceReady()
	}
}

// handle dispatches one event of a peer; known says whether anything handles it.
func (r *Runtime) handle(p *peer, namespace, event string, payload []byte) (known bool) {
	if p.daemon && r.stale(p) {
		return false
	}
	switch namespace {
	case wire.NamespaceRPC:
		switch event {
		case wire.EventCall, wire.EventCancel, wire.EventAck, wire.EventResume:
			r.rpc(p, event, payload)
			return true
		}
		return false
	case wire.NamespaceLog, wire.NamespaceTrace:
		return r.streamControl(p, namespace, event, payload)
	}
	return r.plugins.inbound(r, namespace, event, payload)
}

// stale reports whether a newer daemon, or a newer session of the same one, took over.
func (r *Runtime) stale(p *peer) bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if p.replaced {
		return true
	}
	for _, other := range r.hub.peers {
		if other.daemon && other.epoch > p.epoch && !mutant.Is(mutant.SkippedTombstone) {
			return true
		}
	}
	return false
}

// closeOlder ends every daemon session of an older epoch.
func (r *Runtime) closeOlder(p *peer) {
	r.hub.mu.Lock()
	var older []*peer
	for _, other := range r.hub.peers {
		if other != p && other.daemon && other.epoch < p.epoch {
			older = append(older, other)
		}
	}
	r.hub.mu.Unlock()
	for _, other := range older {
		other.conn.Close(true)
	}
}

func (r *Runtime) streamControl(p *peer, namespace, event string, payload []byte) bool {
	switch event {
	case wire.EventStreamResume:
		var m wire.StreamResume
		if wire.Unmarshal(payload, &m) != nil {
			return true
		}
		if !p.daemon {
			r.hub.resumeRing(p, namespace, m.SinceSeq)
		} else if namespace == wire.NamespaceLog {
			for _, other := range r.hub.resume(p, m.Sid, m.SinceSeq) {
				other.conn.Close(true)
			}
		}
		return true
	case wire.EventStreamAck:
		var m wire.StreamAck
		if wire.Unmarshal(payload, &m) != nil {
			return true
		}
		if !p.daemon {
			r.hub.ackRing(p, namespace, m.Seq)
		} else if namespace == wire.NamespaceLog {
			r.hub.ack(p, m.Sid, m.Seq)
		}
		return true
	}
	return false
}
