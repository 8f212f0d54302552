package faulttest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Call is one call that clients ask for.
type Call struct {
	ID       string
	Sandbox  string
	N        int
	Callable string
	Gate     string
	Round    int
}

// Args are its arguments as JSON.
func (c Call) Args() string {
	b, _ := json.Marshal([]any{c.ID, c.N, c.Gate}) //nolint:errchkjson // strings and a number
	return string(b)
}

// Proof is what only a run of this very call with these arguments returns.
func (c Call) Proof() string {
	mac := hmac.New(sha256.New, []byte("fault tests"))
	_, _ = fmt.Fprintf(mac, "%s %d", c.ID, c.N)
	return hex.EncodeToString(mac.Sum(nil))
}

// Outcome is what a client was told. Exactly one of Value, Error and Refused is set.
type Outcome struct {
	Value   string `json:",omitempty"` // JSON text
	Error   string `json:",omitempty"` // type of the error that the call ended with
	Message string `json:",omitempty"` // its text
	Refused string `json:",omitempty"` // reason for which the call was never accepted
	Hung    string `json:",omitempty"` // the client gave up: no outcome in time
}

func (o Outcome) String() string {
	switch {
	case o.Hung != "":
		return "no outcome: " + o.Hung
	case o.Refused != "":
		return "refused: " + o.Refused
	case o.Error != "":
		return o.Error + ": " + o.Message
	}
	return o.Value
}

// Kind is the outcome's place in the mix.
func (o Outcome) Kind() string {
	switch {
	case o.Hung != "":
		return "none"
	case o.Refused != "":
		return "refused"
	case o.Error != "":
		return o.Error
	}
	return "value"
}

// Op is what one client did and saw. Times are of the machine's monotonic clock, which the
// called functions read, too.
type Op struct {
	Call     string
	Client   string
	Invoked  int64
	Returned int64
	Attempts int
	Outcome  Outcome
}

// History collects ops of many clients.
type History struct {
	mu  sync.Mutex
	ops []Op
}

// Add appends an op.
func (h *History) Add(op Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

// Ops are all ops so far.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Op(nil), h.ops...)
}

// Monotonic is CLOCK_MONOTONIC in nanoseconds, the same for all processes.
func Monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // never fails for this clock
	return ts.Nano()
}
