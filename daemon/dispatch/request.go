package dispatch

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/agentixd/agentixd/daemon/calls"
	"github.com/agentixd/agentixd/daemon/link"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/runtime/wire"
)

// Request is one call as a client asks for it.
type Request struct {
	CallID         string // empty = a random one
	Sandbox        string // its id
	Callable       string // module::qualname
	Arguments      []byte // for EncodingMsgpack and EncodingPickle
	Args, Kwargs   string // for EncodingJSON: text of an array and of an object; empty = none
	Encoding       string
	ResultEncoding string        // empty = Encoding
	Timeout        time.Duration // 0 = none
	Traceparent    string
	Baggage        map[string]string
	Alone          bool // in a new worker for this call
}

var encodings = []string{wire.EncodingJSON, wire.EncodingMsgpack, wire.EncodingPickle}

// checked is a request that is well-formed.
type checked struct {
	request calls.Request
	call    *wire.Call
	timeout time.Duration
}

// check validates r and brings it into the form of the wire.
func (r Request) check() (checked, error) {
	if r.CallID != "" && !link.ValidCallID(r.CallID) {
		return checked{}, errs.Invalid("call_id", "must match [a-z0-9-]{1,%d}", wire.MaxCallIDBytes)
	}
	if err := checkCallable(r.Callable); err != nil {
		return checked{}, err
	}
	if !slices.Contains(encodings, r.Encoding) {
		return checked{}, errs.Invalid("encoding", "must be one of %s", strings.Join(encodings, ", "))
	}
	if r.ResultEncoding == "" {
		r.ResultEncoding = r.Encoding
	}
	if !slices.Contains(encodings, r.ResultEncoding) {
		return checked{}, errs.Invalid("result_encoding", "must be one of %s", strings.Join(encodings, ", "))
	}
	if r.Timeout < 0 {
		return checked{}, errs.Invalid("timeout", "must be a positive duration")
	}
	if err := r.checkContext(); err != nil {
		return checked{}, err
	}
	arguments, err := r.arguments()
	if err != nil {
		return checked{}, err
	}
	c := checked{
		timeout: r.Timeout,
		request: calls.Request{ID: r.CallID, Sandbox: r.Sandbox, Named: r.CallID != ""},
		call: &wire.Call{
			CallID: r.CallID, Callable: r.Callable, Arguments: arguments, Encoding: r.Encoding,
			ResultEncoding: r.ResultEncoding, Traceparent: r.Traceparent, Baggage: r.Baggage,
		},
	}
	if r.Alone {
		c.call.Isolation = wire.IsolationProcess
	}
	if r.CallID == "" {
		c.request.ID = newCallID()
		c.call.CallID = c.request.ID
	} else {
		c.request.Hash = c.hash()
	}
	return c, nil
}

// submit makes c a call that goes on without a waiter. Its id is told at once, so that it
// can be asked for by it, whoever chose it.
func (c *checked) submit() {
	c.request.Submitted, c.request.Named, c.request.Hash = true, true, c.hash()
}

// newCallID is 12 hex digits of time, so that the ids of one moment are neighbours in the
// store's index, and 20 of randomness.
func newCallID() string {
	var b [18]byte
	binary.BigEndian.PutUint64(b[:], uint64(time.Now().UnixMilli()))
	_, _ = rand.Read(b[8:]) // never fails
	return hex.EncodeToString(b[2:])
}

// hash identifies what is asked for. Trace context and baggage do not count: a caller that
// tries again has new ones.
func (c checked) hash() string {
	h := sha256.New()
	timeout := binary.LittleEndian.AppendUint64(nil, uint64(c.timeout))
	for _, part := range [][]byte{[]byte(c.request.Sandbox), []byte(c.call.Callable), []byte(c.call.Encoding), []byte(c.call.ResultEncoding), timeout, c.call.Arguments} {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = h.Write(part)
	}
	_, _ = h.Write([]byte(c.call.Isolation)) // none is as it was before there was any
	return string(h.Sum(nil))
}

// checkCallable refuses what cannot be module::qualname with dotted Python names.
func checkCallable(callable string) error {
	if len(callable) > wire.MaxCallableBytes {
		return errs.Invalid("callable", "is %d bytes long, over the limit of %d", len(callable), wire.MaxCallableBytes)
	}
	module, name, found := strings.Cut(callable, "::")
	if !found || !dotted(module) || !dotted(name) {
		return errs.Invalid("callable", "must be module::qualname, for example app::run")
	}
	return nil
}

func dotted(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" {
			return false
		}
		for n, c := range part {
			if c != '_' && !unicode.IsLetter(c) && (n == 0 || !unicode.In(c, unicode.Digit, unicode.Mark)) {
				return false
			}
		}
	}
	return true
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

func (r Request) checkContext() error {
	if r.Traceparent != "" && !traceparent.MatchString(r.Traceparent) {
		return errs.Invalid("traceparent", "must be a W3C traceparent, for example 00-<32 hex digits>-<16 hex digits>-01")
	}
	if len(r.Baggage) > wire.MaxBaggageEntries {
		return errs.Invalid("baggage", "has %d entries, over the limit of %d", len(r.Baggage), wire.MaxBaggageEntries)
	}
	size := 0
	for key, value := range r.Baggage {
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			return errs.Invalid("baggage", "keys must not be empty; keys and values must be UTF-8")
		}
		size += len(key) + len(value)
	}
	if size > wire.MaxBaggageBytes {
		return errs.Invalid("baggage", "is %d bytes long, over the limit of %d", size, wire.MaxBaggageBytes)
	}
	return nil
}

// arguments is the pair (args, kwargs) in the request's encoding.
func (r Request) arguments() ([]byte, error) {
	size := len(r.Arguments)
	if r.Encoding == wire.EncodingJSON {
		size = len(r.Args) + len(r.Kwargs)
	}
	if size > wire.MaxArgumentsBytes {
		return nil, errs.OverLimit("arguments_bytes", wire.MaxArgumentsBytes, int64(size))
	}
	switch r.Encoding {
	case wire.EncodingJSON:
		return r.jsonArguments()
	case wire.EncodingMsgpack:
		return r.Arguments, checkMsgpackPair(r.Arguments)
	}
	if len(r.Arguments) == 0 {
		return nil, errs.Invalid("pickle_arguments", "must be pickle.dumps((args, kwargs))")
	}
	return r.Arguments, nil
}

func (r Request) jsonArguments() ([]byte, error) {
	args, kwargs := r.Args, r.Kwargs
	if strings.TrimLeft(args, jsonSpace) == "" {
		args = "[]"
	}
	if strings.TrimLeft(kwargs, jsonSpace) == "" {
		kwargs = "{}"
	}
	if err := checkJSONArguments(args, '['); err != nil {
		return nil, errs.Invalid("args", "must be the text of a JSON array: %v", err)
	}
	if err := checkJSONArguments(kwargs, '{'); err != nil {
		return nil, errs.Invalid("kwargs", "must be the text of a JSON object: %v", err)
	}
	out := make([]byte, 0, len(args)+len(kwargs)+3)
	out = append(append(append(out, '['), args...), ',')
	return append(append(out, kwargs...), ']'), nil
}

// checkMsgpackPair accepts an array of an array and a map.
func checkMsgpackPair(b []byte) error {
	const field = "msgpack_arguments"
	if err := wire.Check(b, wire.MaxDepth+2); err != nil {
		return errs.Invalid(field, "must be [args, kwargs]: %v", err)
	}
	body, ok := bytes.CutPrefix(b, []byte{0x92})
	if !ok {
		body, ok = bytes.CutPrefix(b, []byte{0xdc, 0, 2})
	}
	if !ok {
		body, ok = bytes.CutPrefix(b, []byte{0xdd, 0, 0, 0, 2})
	}
	if !ok || (body[0]&0xf0 != 0x90 && body[0] != 0xdc && body[0] != 0xdd) || !secondIsMap(body) {
		return errs.Invalid(field, "must be [args, kwargs]: an array of an array and a map")
	}
	return nil
}
