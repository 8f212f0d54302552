package link

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Bounds of what a runtime may send, beyond those of wire.
const (
	maxSidBytes     = 64
	maxNameBytes    = 4096    // an event name, namespace or error type
	maxViolations   = 256     // of one error; further ones are dropped
	maxReadyBytes   = 2097152 // 2 MiB: a ready event
	maxStillCalls   = 4096    // calls that run on, in a ready event; further ones are dropped
	maxStoppedBytes = 256
	maxErrorBytes   = wire.MaxEventBytes
	maxRecordBytes  = wire.MaxEventBytes + wire.MaxBatchBytes // one batch: MaxBatchBytes unless one record is larger
)

// attachmentLimit is how long the attachment of an event may be; 0 means that the event is
// not part of the protocol.
func attachmentLimit(namespace, event string) int {
	switch namespace + " " + event {
	case wire.NamespaceRPC + " " + wire.EventCallResult:
		return wire.MaxMessageBytes
	case wire.NamespaceRPC + " " + wire.EventCallError:
		return maxErrorBytes
	case wire.NamespaceRPC + " " + wire.EventCallStopped:
		return maxStoppedBytes
	case wire.NamespaceRPC + " " + wire.EventReady, wire.NamespaceLog + " " + wire.EventReady:
		return maxReadyBytes
	case wire.NamespaceLog + " " + wire.EventRecords:
		return maxRecordBytes
	}
	return 0
}

func decodeReady(b []byte) (wire.Ready, error) {
	var r wire.Ready
	if err := wire.Unmarshal(b, &r); err != nil {
		return r, violation("ready: %v", err)
	}
	if len(r.Sid) > maxSidBytes {
		return r, violation("ready: _sid over %d bytes", maxSidBytes)
	}
	r.Error = cut(r.Error, maxNameBytes)
	r.Python = cut(r.Python, 64)
	r.Capabilities = r.Capabilities[:min(len(r.Capabilities), maxHealthCapabilities)]
	for i, c := range r.Capabilities {
		r.Capabilities[i] = cut(c, 64)
	}
	r.StillRunning = slices.DeleteFunc(r.StillRunning, func(id string) bool { return !ValidCallID(id) })
	r.StillRunning = slices.Clip(r.StillRunning[:min(len(r.StillRunning), maxStillCalls)])
	return r, nil
}

func decodeStopped(b []byte) (string, error) {
	var r wire.CallRef
	if err := wire.Unmarshal(b, &r); err != nil {
		return "", violation("%s: %v", wire.EventCallStopped, err)
	}
	return r.CallID, nil
}

// decodeResult reads a result; its value is a part of b.
func decodeResult(b []byte) (wire.Result, error) {
	var r wire.Result
	wrong := ""
	err := wire.Fields(b, func(key string, raw []byte) {
		ok := true
		switch key {
		case "call_id":
			r.CallID, ok = wire.Text(raw)
		case "value":
			r.Value, ok = blob(raw)
		case "encoding":
			r.Encoding, ok = wire.Text(raw)
		}
		if !ok {
			wrong = key
		}
	})
	if err != nil {
		return r, violation("%s: %v", wire.EventCallResult, err)
	}
	if wrong != "" {
		return r, violation("%s: %s has the wrong type", wire.EventCallResult, wrong)
	}
	return r, nil
}

// blob is wire.Blob that takes nil for no bytes.
func blob(raw []byte) ([]byte, bool) {
	if len(raw) == 1 && raw[0] == 0xc0 {
		return nil, true
	}
	return wire.Blob(raw)
}

// rawError is wire.Error with the one list in it left undecoded, since decoding it costs
// more memory than its bytes.
type rawError struct {
	Type       string             `msgpack:"type"`
	Message    string             `msgpack:"message"`
	Traceback  *string            `msgpack:"traceback"`
	Cancelled  bool               `msgpack:"cancelled"`
	Returncode *int               `msgpack:"returncode"`
	Cause      string             `msgpack:"cause"`
	Limit      int64              `msgpack:"limit"`
	Size       int64              `msgpack:"size"`
	Violations msgpack.RawMessage `msgpack:"violations"`
}

func decodeCallError(b []byte) (wire.CallError, error) {
	var raw struct {
		CallID string    `msgpack:"call_id"`
		Error  *rawError `msgpack:"error"`
	}
	if err := wire.Unmarshal(b, &raw); err != nil {
		return wire.CallError{}, violation("%s: %v", wire.EventCallError, err)
	}
	e := wire.CallError{CallID: raw.CallID}
	if raw.Error != nil {
		r := raw.Error
		e.Error = &wire.Error{
			Type: cut(r.Type, 256), Message: cut(r.Message, wire.MaxErrorTextBytes), Traceback: r.Traceback,
			Cancelled: r.Cancelled, Returncode: r.Returncode, Cause: cut(r.Cause, 256), Limit: r.Limit, Size: r.Size,
			Violations: decodeViolations(r.Violations),
		}
		if r.Traceback != nil {
			text := cut(*r.Traceback, wire.MaxErrorTextBytes)
			e.Error.Traceback = &text
		}
	}
	return e, nil
}

func decodeViolations(raw msgpack.RawMessage) []wire.Violation {
	var out []wire.Violation
	eachElement(raw, func(element []byte) bool {
		var v wire.Violation
		if wire.Unmarshal(element, &v) == nil {
			out = append(out, wire.Violation{Path: cut(v.Path, maxNameBytes), Message: cut(v.Message, maxNameBytes)})
		}
		return len(out) < maxViolations
	})
	return out
}

// eachElement calls f for each element of a msgpack array, which is a part of raw, until f
// returns false, and returns the array's length; -1 if raw is not an array.
func eachElement(raw []byte, f func(element []byte) bool) int {
	if len(raw) == 0 {
		return -1
	}
	r := bytes.NewReader(raw) // the decoder reads it without a buffer of its own
	dec := msgpack.NewDecoder(r)
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return -1
	}
	for range n {
		begin := len(raw) - r.Len()
		if dec.Skip() != nil || !f(raw[begin:len(raw)-r.Len()]) {
			break
		}
	}
	return n
}

// decodeBatch reads a batch of records. A batch that is malformed as such is a violation;
// a record that is malformed costs itself only: a gap record takes its number.
func decodeBatch(b []byte) (wire.Batch, error) {
	var batch wire.Batch
	var records []byte
	var seq int64
	err := wire.Fields(b, func(key string, raw []byte) {
		switch key {
		case "_sid":
			batch.Sid, _ = wire.Text(raw)
		case "_seq":
			seq, _ = wire.Int(raw)
		case "records":
			records = raw
		}
	})
	if err != nil {
		return batch, violation("%s: %v", wire.EventRecords, err)
	}
	batch.Seq = uint64(max(seq, 0))
	if batch.Sid == "" || len(batch.Sid) > maxSidBytes || seq <= 0 || seq > math.MaxInt64-wire.MaxBatchRecords {
		return batch, violation("%s: _sid or _seq out of range", wire.EventRecords)
	}
	n := eachElement(records, func(element []byte) bool {
		if len(batch.Records) < wire.MaxBatchRecords {
			batch.Records = append(batch.Records, decodeRecord(element))
			return true
		}
		return false
	})
	if n < 1 || n > wire.MaxBatchRecords {
		return batch, violation("%s: %d records, not 1 to %d", wire.EventRecords, n, wire.MaxBatchRecords)
	}
	if n != len(batch.Records) {
		return batch, violation("%s: records end too early", wire.EventRecords)
	}
	return batch, nil
}

// decodeRecord reads one record; its bytes and data are parts of b.
func decodeRecord(b []byte) wire.Record {
	var r wire.Record
	valid := true
	err := wire.Fields(b, func(key string, raw []byte) {
		ok := true
		switch key {
		case "kind":
			r.Kind, ok = wire.Text(raw)
		case "time":
			r.Time, ok = wire.Float(raw)
		case "call_id":
			r.CallID, ok = wire.Text(raw)
		case "stream":
			r.Stream, ok = wire.Text(raw)
		case "bytes":
			r.Bytes, ok = blob(raw)
		case "namespace":
			r.Namespace, ok = wire.Text(raw)
		case "event":
			r.Event, ok = wire.Text(raw)
		case "data":
			r.Data = raw
		case "dropped":
			var n int64
			n, ok = wire.Int(raw)
			r.Dropped = uint64(max(n, 0))
		}
		valid = valid && ok
	})
	r.Time = finite(r.Time)
	if err != nil || !valid || !validRecord(r) {
		return wire.Record{Kind: wire.RecordGap, Time: r.Time, Dropped: 1}
	}
	return r
}

func validRecord(r wire.Record) bool {
	if len(r.Bytes) > wire.MaxEventBytes || len(r.Data) > wire.MaxEventBytes || len(r.Namespace) > maxNameBytes || len(r.Event) > maxNameBytes {
		return false
	}
	if r.CallID != "" && !ValidCallID(r.CallID) {
		return false
	}
	switch r.Kind {
	case wire.RecordLog:
		return wire.IsMap(r.Data)
	case wire.RecordOutput:
		return r.Stream == "stdout" || r.Stream == "stderr"
	case wire.RecordSpan:
		switch r.Event {
		case "trace_start", "trace_end", "span_start", "span_end":
			return wire.IsMap(r.Data)
		}
		return false
	case wire.RecordPlugin:
		return strings.HasPrefix(r.Namespace, "/") && r.Event != ""
	case wire.RecordGap:
		return true
	}
	return false
}

func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// ValidCallID reports whether id is [a-z0-9-]{1,63}.
func ValidCallID(id string) bool { return wire.ValidCallID(id) }

// cut shortens s to at most n bytes at a character boundary.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
