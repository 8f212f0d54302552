// Package pickle speaks Python's pickle format as inert data, for runtimes that know no
// other encoding. It writes arguments and contexts (protocol 4, the bytes of CPython's own
// pickler) and reads results (protocols 0 to 5).
//
// What it reads comes out of a sandbox and is hostile. Nothing is executed, imported or
// looked up: a pickle is a program, and this package runs only its data half. A class is a
// name, a call of a class is a record of that name and its arguments:
//
//	{"$class": "shop.Order", "state": {"id": 7}}
//
// with the members "args", "kwargs", "items" and "pairs" only where the pickle has them.
// Types whose meaning is fixed by Python (bytes, sets, datetimes, Decimal, UUID, paths,
// dictionaries of collections, …) become what a worker's own JSON or msgpack would hold for
// them, and types that a worker refuses are refused here (complex, range, timedelta,
// exceptions, numpy arrays, …).
//
// Memory is bounded by a budget that depends on the input's length, output by another, so
// that neither a claimed length nor shared references ("billion laughs") cost more than that.
package pickle

import (
	"errors"

	"github.com/agentixd/agentixd/runtime/wire"
)

// The errors of this package; every error it returns is one of them.
var (
	// ErrMalformed is a byte stream that no pickler writes.
	ErrMalformed = errors.New("not a well-formed pickle")
	// ErrTooLarge is a pickle, or what it expands to, over a limit that the text names.
	ErrTooLarge = errors.New("pickle over a limit")
	// ErrNoForm is a value without a form in the encoding that was asked for.
	ErrNoForm = errors.New("no form for a value")
	// ErrArguments is JSON or msgpack that is not a pair of arguments.
	ErrArguments = errors.New("not the arguments of a call")
)

// bounds are what one conversion may cost.
type bounds struct {
	input  int // bytes of the input
	memory int // bytes of the decoded tree
	output int // bytes of the result
	depth  int // nesting of arrays and maps
}

// What one conversion may cost, beside wire.MaxValueBytes for each of the three sizes: a
// small pickle may not become a large one, and a large one stays near what was sent.
const (
	freeMemory    = 16 << 20 // 16 MiB of tree for any input
	freeOutput    = 32 << 20 // 32 MiB of output for any input
	memoryPerByte = 16       // bytes of tree for each byte of input above that
	outputPerByte = 32       // bytes of output for each byte of input above that
	maxIntDigits  = 4300     // decimal digits of an integer, as CPython itself has it
	maxIntBytes   = 1786     // bytes that hold so many digits
	maxNameBytes  = 4096     // module and name of a class, each
)

func boundsFor(n, maxInput, maxOutput int) bounds {
	return bounds{
		input:  maxInput,
		memory: min(wire.MaxValueBytes, freeMemory+memoryPerByte*n),
		output: min(maxOutput, freeOutput+outputPerByte*n),
		depth:  wire.MaxDepth,
	}
}

// ToJSON returns the JSON text of a pickled value.
func ToJSON(data []byte) ([]byte, error) {
	return convert(data, false, boundsFor(len(data), wire.MaxValueBytes, wire.MaxValueBytes))
}

// ToMsgpack returns a pickled value as msgpack: as in JSON, but bytes stay binary.
func ToMsgpack(data []byte) ([]byte, error) {
	return convert(data, true, boundsFor(len(data), wire.MaxValueBytes, wire.MaxValueBytes))
}

func convert(data []byte, binary bool, b bounds) ([]byte, error) {
	t, root, err := parse(data, b)
	if err != nil {
		return nil, err
	}
	return render(t, root, binary, b)
}

// FromJSON returns the pickle of the pair (args, kwargs) of a call. args is the text of a
// JSON array, kwargs that of an object; empty texts stand for empty ones. Integers keep
// every digit, and a number with a point or exponent is a float.
func FromJSON(args, kwargs string) ([]byte, error) {
	return fromJSON(args, kwargs, boundsFor(len(args)+len(kwargs), wire.MaxBodyBytes, wire.MaxArgumentsBytes))
}

// FromMsgpack returns the pickle of the pair (args, kwargs) of a call, given as the msgpack
// document [args, kwargs].
func FromMsgpack(pair []byte) ([]byte, error) {
	return fromMsgpack(pair, boundsFor(len(pair), wire.MaxArgumentsBytes, wire.MaxArgumentsBytes))
}
