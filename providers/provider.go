// Package providers is what a sandbox engine must be able to do. Each engine lives one
// folder below and knows only this package; daemon/sandboxes is the only user.
package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Provider creates and ends sandboxes on one engine. Errors are of package internal/errs.
// Every method may be called from many goroutines. After a crash of the daemon, List is
// the truth: what it returns exists, and Delete removes it and everything it had.
type Provider interface {
	// Name is the provider's registered name.
	Name() string
	// Create starts a sandbox: afterwards its runtime process is running (not yet ready).
	// On error nothing of it remains. AlreadyExists if the id is taken; NotFound
	// (ImageNotFound) without its image; Unsupported for what the engine cannot do.
	Create(ctx context.Context, spec Spec) (Handle, error)
	// Get returns the handle of a sandbox that exists, running or not; NotFound else.
	Get(ctx context.Context, id string) (Handle, error)
	// List returns every sandbox of this daemon, also half-made ones.
	List(ctx context.Context) ([]Status, error)
	// Delete kills every process of the sandbox and removes all it had on the host.
	// Deleting what does not exist is no error.
	Delete(ctx context.Context, id string) error
	// Watch tells of sandboxes whose main process ended, until ctx ends; the channel
	// is then closed. Events are hints: one may be missing or come twice.
	Watch(ctx context.Context) (<-chan Exit, error)
	// Close releases the connection to the engine; sandboxes go on.
	Close() error
}

// Handle is one sandbox.
type Handle interface {
	// ID is the sandbox id.
	ID() string
	// Dial connects to the runtime's socket. What answers is under the sandbox's control.
	Dial(ctx context.Context) (net.Conn, error)
}

// Statuser is a Handle that knows the status of its sandbox without listing all.
type Statuser interface {
	// Status is what List would say of it; not running and without an exit once it is gone.
	Status(ctx context.Context) (Status, error)
}

// Pauser is a Handle whose sandbox can be frozen: every process of it stands still, and its
// memory stays. Those without refuse to be paused.
type Pauser interface {
	// Pause freezes all processes; on return none of them runs. Pausing twice is no error. On
	// error they run as before. Status tells, also to the next daemon; Delete works.
	Pause(ctx context.Context) error
	// Resume lets them go on. Resuming what runs is no error.
	Resume(ctx context.Context) error
}

// Limiter is a provider that enforces limits; only those get the daemon's default limits.
type Limiter interface {
	// EnforcesLimits does nothing but mark the provider.
	EnforcesLimits()
}

// Imager is a provider that has images.
type Imager interface {
	// ImportArchive imports an OCI or docker archive; name overrides the names inside if not empty.
	ImportArchive(ctx context.Context, name string, archive io.Reader) ([]Image, error)
	// ImportRootFS makes an image of one layer from a tar of a root file system.
	ImportRootFS(ctx context.Context, name string, rootfs io.Reader) (Image, error)
	// ListImages returns all images in the order of their names.
	ListImages(ctx context.Context) ([]Image, error)
	// GetImage returns one image by its name, completed as docker does if there is none of the
	// bare name; NotFound (ImageNotFound).
	GetImage(ctx context.Context, name string) (Image, error)
	// PullImage fetches an image from a registry and makes it ready. progress is called now and
	// then, by one goroutine at a time and no more after the return. What was fetched by a pull
	// that fails is removed.
	PullImage(ctx context.Context, pull Pull, progress func(PullProgress)) (Image, error)
	// ExportImage writes an archive that is OCI's and docker's at once.
	ExportImage(ctx context.Context, name string, w io.Writer) error
	// DeleteImage removes a name, and the content once nothing else needs it. NotFound
	// (ImageNotFound); FailedPrecondition (ImageInUse) while a sandbox was made of it.
	DeleteImage(ctx context.Context, name string) error
}

// Snapshotter is a provider that can make an image of a sandbox.
type Snapshotter interface {
	// Snapshot makes an image of what is on the sandbox's root file system now: of the image that
	// it was made of, and what it has changed. Its processes stand still meanwhile. What is
	// mounted into it is not part of it, nor is its memory. An image of that name is replaced.
	// NotFound (SandboxNotFound).
	Snapshot(ctx context.Context, id, image string) (Image, error)
}

// Spec is what to create.
type Spec struct {
	ID      string
	Image   string // empty only for engines without images
	Project *Dir   // nil = none
	// Bundle is mounted read-only at /nix: its interpreter runs the code, or its own server is
	// run and fronted. nil = none.
	Bundle  *Bundle
	Env     map[string]string
	Limits  Limits
	Workers int // worker processes of the runtime; 0 = 1
	// Security and Network are how it is kept apart. What an engine cannot do of them it refuses.
	Security Security
	Network  Network
	// Token is the runtime's secret. It reaches the runtime over its standard input only.
	Token string
	// NeighbourSecret lets clients of the public protocol in, and is told as the token is;
	// empty = none are let in.
	NeighbourSecret string
	// RuntimeURL is the runtime to join, with its secrets; only for engines that start none.
	RuntimeURL string
}

// StdinLine is the first line of a runtime's standard input: its secrets.
func (s Spec) StdinLine() ([]byte, error) {
	line, err := json.Marshal(struct {
		Token           string `json:"token"`
		NeighbourSecret string `json:"neighbour_secret,omitempty"`
	}{s.Token, s.NeighbourSecret})
	if err != nil {
		return nil, fmt.Errorf("encode token: %w", err)
	}
	return append(line, '\n'), nil
}

// WorkerArgs are the arguments that tell a runtime its number of workers.
func (s Spec) WorkerArgs() []string {
	if s.Workers <= 1 {
		return nil
	}
	return []string{"--workers", strconv.Itoa(s.Workers)}
}

// Foreigner is a Handle of a runtime that someone else runs.
type Foreigner interface {
	// Foreign is what each request to it carries.
	Foreign() Foreign
}

// Foreign is how a runtime of someone else is spoken to.
type Foreign struct {
	Host          string // Host header
	Authorization string // Authorization header, a secret; empty = none
}

// Dir is a host directory that was opened and checked for the caller. A provider mounts
// or uses the open descriptor, never the path, so that it cannot be swapped.
type Dir struct {
	Path string // for messages
	FD   int    // O_PATH|O_DIRECTORY; owned by the caller of Create, valid during Create
}

// Bundle is an extracted bundle.
type Bundle struct {
	Dir    Dir    // what is to be seen at /nix
	Server bool   // it brings a runtime server of its own, which /nix/runtime/bootstrap.sh starts
	Python string // path of its interpreter inside a sandbox; empty = it has none
}

// Limits bound a sandbox. A provider that cannot enforce one that is set refuses it (Unsupported).
type Limits struct {
	CPUs        float64 // 0 = none
	MemoryBytes int64   // 0 = none
	PIDs        int64   // 0 = none
	OpenFiles   int64   `json:",omitempty"` // of each process; 0 = the engine's own
	DiskBytes   int64   `json:",omitempty"` // all that the sandbox can write to; 0 = none
}

// Image is an image of an engine.
type Image struct {
	Name      string
	Digest    string
	SizeBytes int64
	Created   time.Time
}

// Status is what the engine knows of a sandbox.
type Status struct {
	ID      string
	Running bool // also while it is paused
	Paused  bool
	Exit    *Exit // set once its main process ended, if known
}

// ExitReason is why a sandbox's main process ended.
type ExitReason string

// The reasons.
const (
	Exited    ExitReason = "EXITED"
	Killed    ExitReason = "KILLED"
	OOMKilled ExitReason = "OOM_KILLED"
	Lost      ExitReason = "LOST"
)

// Exit tells that a sandbox's main process ended.
type Exit struct {
	ID     string
	Reason ExitReason
	Code   int // exit code, or the negative signal number
}
