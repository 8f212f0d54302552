package events

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/agentixd/agentixd/runtime/wire"
)

// A batch on disk is the byte batchVersion and then its events, each a msgpack array
// [kind, time, call_id, fields…] with times in nanoseconds since the epoch. Numbers and the
// sandbox are those of the row.
const batchVersion = 1

// fieldsOf is how many fields each kind has after the first three.
var fieldsOf = map[Kind]int{
	KindLog: 11, KindOutput: 2, KindSpan: 12, KindPlugin: 3, KindLifecycle: 3, KindCall: 4, KindGap: 4,
}

var errDamagedBatch = errors.New("a batch of the journal is damaged")

type encoder struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.enc = msgpack.NewEncoder(&e.buf)
	e.enc.UseCompactInts(true)
	return e
}}

// encode returns the events without the version byte, and where each ends.
func encode(evs []Event) (data []byte, ends []int, err error) {
	e := encoders.Get().(*encoder)
	e.buf.Reset()
	ends = make([]int, 0, len(evs))
	for i := range evs {
		if err := e.event(&evs[i]); err != nil {
			return nil, nil, fmt.Errorf("encode event: %w", err)
		}
		ends = append(ends, e.buf.Len())
	}
	data = bytes.Clone(e.buf.Bytes())
	if e.buf.Cap() <= 1<<20 { // a rare large event must not stay in the pool
		encoders.Put(e)
	}
	return data, ends, nil
}

func (e *encoder) event(ev *Event) error {
	kind := ev.Body.Kind()
	if err := e.enc.EncodeArrayLen(3 + fieldsOf[kind]); err != nil {
		return err
	}
	if err := e.numbers(int64(kind), nanoseconds(ev.Time)); err != nil {
		return err
	}
	if err := e.texts(ev.CallID); err != nil {
		return err
	}
	return e.body(ev.Body)
}

func (e *encoder) body(body Body) error {
	switch b := body.(type) {
	case *Log:
		return errors.Join(
			e.texts(b.Logger, b.Level),
			e.numbers(int64(b.LevelNumber), int64(b.Line)),
			e.texts(b.Message, b.Pathname, b.Function, b.Module, b.ExceptionText, b.StackInfo, b.Extras))
	case *Output:
		return errors.Join(e.texts(b.Stream), e.blob(b.Data))
	case *Span:
		return errors.Join(
			e.numbers(nanoseconds(b.StartTime), nanoseconds(b.EndTime)),
			e.texts(b.Phase, b.TraceID, b.SpanID, b.ParentID, b.Name, b.Attributes, b.Status, b.StatusDescription, b.Error, b.Events))
	case *Plugin: // its JSON form is made again when it is read
		return errors.Join(e.texts(b.Namespace, b.Event), e.blob(b.MsgpackData))
	case *Lifecycle:
		return e.texts(b.State, b.Reason, b.Message)
	case *Call:
		return e.texts(b.Phase, b.Callable, b.ErrorType, b.ErrorMessage)
	case *Gap:
		return errors.Join(
			e.numbers(int64(b.FromSeq), int64(b.ToSeq), int64(min(b.Dropped, math.MaxInt64))),
			e.texts(b.Source))
	}
	return fmt.Errorf("no such body: %T", body)
}

func (e *encoder) texts(all ...string) error {
	for _, s := range all {
		if err := e.enc.EncodeString(s); err != nil {
			return err
		}
	}
	return nil
}

// blob writes nil as no bytes.
func (e *encoder) blob(b []byte) error {
	if err := e.enc.EncodeBytesLen(len(b)); err != nil {
		return err
	}
	_, err := e.buf.Write(b)
	return err
}

func (e *encoder) numbers(all ...int64) error {
	for _, n := range all {
		if err := e.enc.EncodeInt(n); err != nil {
			return err
		}
	}
	return nil
}

// decoder reads the events of one batch; the first failure stays. It takes no more memory
// than the batch has bytes, whatever lengths a damaged one claims.
type decoder struct {
	rest []byte
	err  error
}

// decode returns the events of a batch, numbered from first to last.
func decode(sandbox string, data []byte, first, last uint64) ([]Event, error) {
	if len(data) == 0 || data[0] != batchVersion || last < first || last-first >= uint64(len(data)) {
		return nil, errDamagedBatch
	}
	d := decoder{rest: data[1:]}
	evs := make([]Event, last-first+1)
	for i := range evs {
		ev := &evs[i]
		ev.Seq, ev.Sandbox = first+uint64(i), sandbox
		d.event(ev)
		if d.err != nil {
			return nil, fmt.Errorf("event %d: %w", ev.Seq, d.err)
		}
	}
	if len(d.rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after its last event", errDamagedBatch, len(d.rest))
	}
	return evs, nil
}

func (d *decoder) event(ev *Event) {
	_, n := d.next()
	kind := Kind(d.number())
	fields, known := fieldsOf[kind]
	if d.err == nil && (!known || n != 3+fields) {
		d.err = fmt.Errorf("%w: kind %d with %d fields", errDamagedBatch, kind, n)
	}
	ev.Time = timeAt(d.number())
	ev.CallID = d.text()
	if d.err == nil {
		ev.Body = d.body(kind)
	}
}

func (d *decoder) body(kind Kind) Body {
	switch kind {
	case KindLog:
		b := &Log{Logger: d.text(), Level: d.text(), LevelNumber: int32(d.number()), Line: int32(d.number())}
		b.Message, b.Pathname, b.Function, b.Module = d.text(), d.text(), d.text(), d.text()
		b.ExceptionText, b.StackInfo, b.Extras = d.text(), d.text(), d.text()
		return b
	case KindOutput:
		return &Output{Stream: d.text(), Data: d.bytes()}
	case KindSpan:
		b := &Span{StartTime: timeAt(d.number()), EndTime: timeAt(d.number())}
		b.Phase, b.TraceID, b.SpanID, b.ParentID, b.Name = d.text(), d.text(), d.text(), d.text(), d.text()
		b.Attributes, b.Status, b.StatusDescription, b.Error, b.Events = d.text(), d.text(), d.text(), d.text(), d.text()
		return b
	case KindPlugin:
		b := &Plugin{Namespace: d.text(), Event: d.text(), MsgpackData: d.bytes()}
		b.Data = jsonOf(b.MsgpackData)
		return b
	case KindLifecycle:
		return &Lifecycle{State: d.text(), Reason: d.text(), Message: d.text()}
	case KindCall:
		return &Call{Phase: d.text(), Callable: d.text(), ErrorType: d.text(), ErrorMessage: d.text()}
	default:
		return &Gap{FromSeq: uint64(d.number()), ToSeq: uint64(d.number()), Dropped: uint64(d.number()), Source: d.text()}
	}
}

// next cuts off one token: a scalar, or the head of an array with inside values.
func (d *decoder) next() (token []byte, inside int) {
	if d.err != nil {
		return nil, 0
	}
	if len(d.rest) == 0 {
		d.err = errDamagedBatch
		return nil, 0
	}
	head, size, inside := shape(d.rest)
	if head == 0 || size > len(d.rest)-head {
		d.err = errDamagedBatch
		return nil, 0
	}
	token, d.rest = d.rest[:head+size:head+size], d.rest[head+size:]
	return token, inside
}

func (d *decoder) text() string { return string(d.bytes()) }

// bytes shares the memory of the batch.
func (d *decoder) bytes() []byte {
	token, _ := d.next()
	data, ok := content(token)
	if !ok && d.err == nil {
		d.err = errDamagedBatch
	}
	return data
}

func (d *decoder) number() int64 {
	token, _ := d.next()
	n, ok := integer(token)
	if !ok && d.err == nil {
		d.err = errDamagedBatch
	}
	return n
}

// jsonOf is the JSON form of a msgpack document; empty if it has none.
func jsonOf(document []byte) string {
	text, err := wire.ToJSON(document)
	if err != nil {
		return ""
	}
	return string(text)
}

// nanoseconds is 0 for the zero time.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return clampTime(t).UnixNano()
}

func timeAt(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
