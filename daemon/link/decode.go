package link

import (
	"bytes"
	"math"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/agentixd/agentixd/runtime/wire"
)

// Bounds of what a runtime may send, beyond those of wire.
const (
	maxSidBytes    = 64
	maxNameBytes   = 4096    // an event name, namespace or error type
	maxViolations  = 256     // of one error; further ones are dropped
	maxReadyBytes  = 2097152 // 2 MiB: a ready event
	maxErrorBytes  = wire.MaxEventBytes
	maxRecordBytes = wire.MaxEventBytes + wire.MaxBatchBytes // one batch: MaxBatchBytes unless one record is larger
)

// attachmentLimit is how long the attachment of an event may be; 0 means that the event is
// not part of the protocol.
func attachmentLimit(namespace, event string) int {
	switch namespace + " " + event {
	case wire.NamespaceRPC + " " + wire.EventCallResult:
		return wire.MaxMessageBytes
	case wire.NamespaceRPC + " " + wire.EventCallError:
		return maxErrorBytes
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
	return r, nil
}

func decodeResult(b []byte) (wire.Result, error) {
	var r wire.Result
	if err := wire.Unmarshal(b, &r); err != nil {
		return r, violation("%s: %v", wire.EventCallResult, err)
	}
	return r, nil
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

// eachElement calls f for each element of a msgpack array until f returns false, and
// returns the array's length; -1 if raw is not an array.
func eachElement(raw []byte, f func(element []byte) bool) int {
	if len(raw) == 0 {
		return -1
	}
	dec := msgpack.NewDecoder(bytes.NewReader(raw))
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return -1
	}
	for range n {
		element, err := dec.DecodeRaw()
		if err != nil || !f(element) {
			break
		}
	}
	return n
}

// decodeBatch reads a batch of records. A batch that is malformed as such is a violation;
// a record that is malformed costs itself only: a gap record takes its number.
func decodeBatch(b []byte) (wire.Batch, error) {
	var raw struct {
		Sid     string             `msgpack:"_sid"`
		Seq     uint64             `msgpack:"_seq"`
		Records msgpack.RawMessage `msgpack:"records"`
	}
	if err := wire.Unmarshal(b, &raw); err != nil {
		return wire.Batch{}, violation("%s: %v", wire.EventRecords, err)
	}
	batch := wire.Batch{Sid: raw.Sid, Seq: raw.Seq}
	if raw.Sid == "" || len(raw.Sid) > maxSidBytes || raw.Seq == 0 || raw.Seq > math.MaxUint64-wire.MaxBatchRecords {
		return batch, violation("%s: _sid or _seq out of range", wire.EventRecords)
	}
	n := eachElement(raw.Records, func(element []byte) bool {
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

func decodeRecord(b []byte) wire.Record {
	var r wire.Record
	if err := wire.Unmarshal(b, &r); err != nil || !validRecord(r) {
		return wire.Record{Kind: wire.RecordGap, Time: finite(r.Time), Dropped: 1}
	}
	r.Time = finite(r.Time)
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
func ValidCallID(id string) bool {
	if len(id) == 0 || len(id) > wire.MaxCallIDBytes {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// cut shortens s to at most n bytes at a character boundary.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
