package pickle

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentixd/agentixd/runtime/wire"
)

// sample is one pickle out of a hostile sandbox: an error of that kind, or that inert JSON.
type sample struct {
	name   string
	pickle string
	err    error
	json   string
}

func u32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
func u64(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }

// str is a string of up to 4 GiB.
func str(s string) string { return "X" + u32(uint32(len(s))) + s }

// class is a reference by STACK_GLOBAL.
func class(module, name string) string { return str(module) + str(name) + "\x93" }

// corpus are samples of each known way to attack a reader of pickles.
func corpus() []sample {
	const million = 1 << 20
	long := strings.Repeat("x", million)
	all := []sample{
		// Code.
		{"os.system, protocol 0", "cos\nsystem\n(S'touch /tmp/x'\ntR.", nil, `{"$class":"os.system","args":["touch /tmp/x"],"state":null}`},
		{"posix.system, protocol 4", "\x80\x04" + class("posix", "system") + str("id") + "\x85R.", nil, `{"$class":"posix.system","args":["id"],"state":null}`},
		{"subprocess by NEWOBJ", class("subprocess", "Popen") + "]" + str("id") + "a\x85\x81.", nil, `{"$class":"subprocess.Popen","args":[["id"]],"state":null}`},
		{"INST", "(S'id'\nios\nsystem\n.", nil, `{"$class":"os.system","args":["id"],"state":null}`},
		{"OBJ", "(cos\nsystem\nS'id'\no.", nil, `{"$class":"os.system","args":["id"],"state":null}`},
		{"eval", class("builtins", "eval") + str("1") + "\x85R.", ErrNoForm, ""},
		{"exec by its old name", "c__builtin__\nexec\n(S'x'\ntR.", ErrNoForm, ""},
		{"import then getattr then call", "c__builtin__\ngetattr\n(c__builtin__\n__import__\n(S'os'\ntRS'system'\ntR(S'id'\ntR.", ErrNoForm, ""},
		{"getattr chain on classes", class("builtins", "getattr") + class("builtins", "object") + str("__subclasses__") + "\x86R)R.", ErrNoForm, ""},
		{"getattr of a class's attribute", class("builtins", "getattr") + class("m", "C") + str("run") + "\x86R)R.", nil, `{"$class":"m.C.run","state":null}`},
		{"a call of a value", "K\x01)R.", ErrNoForm, ""},
		{"a call of a call", class("m", "f") + ")R)R.", ErrNoForm, ""},
		{"reconstructor of a reconstructor", class("copyreg", "__newobj__") + class("copyreg", "__newobj__") + "\x85R.", ErrMalformed, ""},
		{"__setstate__", class("m", "C") + ")\x81}" + str("cmd") + str("id") + "sb.", nil, `{"$class":"m.C","state":{"cmd":"id"}}`},
		{"__dict__ of a class", class("m", "C") + "}" + str("__call__") + str("id") + "sb.", ErrMalformed, ""},
		{"import with side effects", class("antigravity", "fly") + ".", ErrNoForm, ""},
		{"a class name with control characters", class("m\n\x1b[2J", "C\"") + ")\x81.", nil, `{"$class":"m\n\u001b[2J.C\"","state":null}`},
		{"a class name of 1 MiB", class("m", long) + ")\x81.", ErrTooLarge, ""},
		{"extension registry", "\x82\x01.", ErrNoForm, ""},
		{"extension registry, 32 bits", "\x84\x01\x00\x00\x00.", ErrNoForm, ""},
		{"persistent id", "Pid\n.", ErrNoForm, ""},
		{"binary persistent id", "NQ.", ErrNoForm, ""},
		{"out-of-band buffer", "\x80\x05\x97.", ErrNoForm, ""},
		// Memory that a few bytes ask for.
		{"bytearray of 1 GiB", class("builtins", "bytearray") + "J\x00\x00\x00\x40\x85R.", ErrMalformed, ""},
		{"list of a range", class("builtins", "list") + class("builtins", "range") + "J\x00\x00\x00\x40\x85R\x85R.", ErrMalformed, ""},
		{"numpy array of a shape", class("numpy", "ndarray") + "J\x00\x00\x00\x40\x85\x85R.", ErrNoForm, ""},
		{"decimal with an exponent", class("decimal", "Decimal") + str("1E+999999999") + "\x85R.", nil, `"1E+999999999"`},
		{"2 GiB of bytes claimed", "B\x00\x00\x00\x80abc.", ErrMalformed, ""},
		{"2^63 bytes claimed", "\x8e" + u64(1<<63) + ".", ErrMalformed, ""},
		{"2^64-1 characters claimed", "\x8d" + u64(1<<64-1) + ".", ErrMalformed, ""},
		{"bytearray of 2^62 claimed", "\x96" + u64(1<<62) + ".", ErrMalformed, ""},
		{"a negative length of an integer", "\x8b\xff\xff\xff\xff.", ErrMalformed, ""},
		{"a frame of 2^62", "\x80\x04\x95" + u64(1<<62) + "N.", ErrMalformed, ""},
		{"memo index 2^32-1", "Nr\xff\xff\xff\xff.", ErrTooLarge, ""},
		{"memo index in text", "Np4294967295\n.", ErrTooLarge, ""},
		{"negative memo index", "Np-1\n.", ErrMalformed, ""},
		{"the decimal digits of 2^8388608", "\x8b" + u32(million+1) + strings.Repeat("\x00", million) + "\x01.", ErrNoForm, ""},
		{"an integer of a million digits", "L" + strings.Repeat("9", million) + "L\n.", ErrTooLarge, ""},
		{"two million empty lists", "(" + strings.Repeat("]", 2*million) + "l.", ErrTooLarge, ""},
		{"sets of one list", "](" + strings.Repeat("N", million) + "e\x940" + strings.Repeat("c__builtin__\nset\nh\x00\x85R0", 1000) + "N.", ErrTooLarge, ""},
		{"paths of one part", str(long) + "\x940" + strings.Repeat("cpathlib\nPosixPath\nh\x00\x85R0", 1000) + "N.", ErrTooLarge, ""},
		{"decimals of one text", str(strings.Repeat("9", million)) + "\x940" + strings.Repeat("cdecimal\nDecimal\nh\x00\x85R0", 1000) + "N.", ErrTooLarge, ""},
		// Shape.
		{"100000 nested tuples", "N" + strings.Repeat("\x85", 100000) + ".", ErrNoForm, ""},
		{"100000 nested lists", strings.Repeat("(", 100000) + strings.Repeat("l", 100000) + ".", ErrNoForm, ""},
		{"100000 nested states", strings.Repeat("cm\nC\n)\x81", 100000) + strings.Repeat("b", 99999) + ".", ErrNoForm, ""},
		{"100000 nested dicts", strings.Repeat("}"+str("k"), 100000) + "N" + strings.Repeat("s", 100000) + ".", ErrNoForm, ""},
		{"a million marks", strings.Repeat("(", million) + "N.", ErrMalformed, ""},
		{"a list in itself", "]\x94h\x00a.", ErrNoForm, ""},
		{"a state that is its object", class("m", "C") + ")\x81\x94h\x00b.", ErrNoForm, ""},
		{"a dict that is its key", "}\x94h\x00Ns.", ErrNoForm, ""},
		{"a set of a list", "\x8f(]\x90.", nil, `[[]]`},
		{"the same key twice", "}" + str("k") + "K\x01s" + str("k") + "K\x02s.", ErrNoForm, ""},
		{"a million equal keys", "}(" + strings.Repeat("K\x01N", million/4) + "u.", ErrNoForm, ""},
		// Streams that no pickler writes.
		{"nothing", "", ErrMalformed, ""},
		{"no STOP", "N", ErrMalformed, ""},
		{"STOP without a value", ".", ErrMalformed, ""},
		{"two values", "NN.", ErrMalformed, ""},
		{"bytes after STOP", "N.N.", ErrMalformed, ""},
		{"a mark left over", "N(.", ErrMalformed, ""},
		{"protocol 6", "\x80\x06N.", ErrMalformed, ""},
		{"an unknown opcode", "\xffN.", ErrMalformed, ""},
		{"a tuple without a mark", "Nt.", ErrMalformed, ""},
		{"a pop of nothing", "0N.", ErrMalformed, ""},
		{"a pop through a mark", "N(\x85.", ErrMalformed, ""},
		{"a key without a value", "}(Nu.", ErrMalformed, ""},
		{"an append to an int", "K\x01Na.", ErrMalformed, ""},
		{"a key set in a list", "]NNs.", ErrMalformed, ""},
		{"an add to a list", "](N\x90.", ErrMalformed, ""},
		{"a state of a list", "]Nb.", ErrMalformed, ""},
		{"a class name that is a number", "K\x01K\x02\x93.", ErrMalformed, ""},
		{"arguments that are a list", class("m", "C") + "]R.", ErrMalformed, ""},
		{"memo entry of nothing", "h\x07.", ErrMalformed, ""},
		{"memo entry in a hole", "NNNNq\x02h\x01.", ErrMalformed, ""},
		{"a string that is not UTF-8", str("\xff") + ".", ErrMalformed, ""},
		{"an int that is none", "Ix\n.", ErrMalformed, ""},
		{"a float that is none", "F0x1p-2\n.", ErrMalformed, ""},
		{"a line without an end", "I1", ErrMalformed, ""},
		{"a string without quotes", "Sx\n.", ErrMalformed, ""},
		{"a bad escape", "V\\u12\n.", ErrMalformed, ""},
		{"month 13", class("datetime", "date") + "C\x04\x07\xe8\x0d\x01\x85R.", ErrMalformed, ""},
		{"30 February", class("datetime", "date") + "C\x04\x07\xe8\x02\x1e\x85R.", ErrMalformed, ""},
		{"a datetime of numbers", class("datetime", "date") + "K\x01K\x01K\x01\x87R.", ErrMalformed, ""},
		{"a time zone of a year", class("datetime", "time") + "C\x06\x00\x00\x00\x00\x00\x00" + class("datetime", "timezone") + class("datetime", "timedelta") + "M\x6d\x01K\x00K\x00\x87R\x85R\x86R.", ErrMalformed, ""},
		{"a UUID of 2^128", class("uuid", "UUID") + ")\x81}" + str("int") + "\x8a\x11" + strings.Repeat("\x00", 16) + "\x01sb.", ErrMalformed, ""},
		{"a negative UUID", class("uuid", "UUID") + ")\x81}" + str("int") + "J\xff\xff\xff\xffsb.", ErrMalformed, ""},
		{"a UUID without a number", class("uuid", "UUID") + ")\x81.", ErrNoForm, ""},
	}
	return append(all, bombs(long)...)
}

// bombs expand to far more than they are, by references to one value.
func bombs(long string) []sample {
	// level builds n values of which each holds the one before, memo entry i, twice.
	level := func(start string, n int, next func(get string) string) string {
		var b strings.Builder
		b.WriteString(start + "\x94")
		for i := range n {
			b.WriteString("0" + next("h"+string([]byte{byte(i)})) + "\x94")
		}
		return b.String() + "."
	}
	object := class("m", "C")
	return []sample{
		{"billion laughs, lists", level("]", 60, func(get string) string { return "](" + get + get + "e" }), ErrTooLarge, ""},
		{"billion laughs, tuples", ")" + strings.Repeat("2\x86", 100) + ".", ErrTooLarge, ""},
		{"billion laughs, sets", level("\x8f", 60, func(get string) string { return "(" + get + get + "\x91" }), ErrTooLarge, ""},
		{"billion laughs, dicts", level("}", 60, func(get string) string { return "}(" + str("a") + get + str("b") + get + "u" }), ErrTooLarge, ""},
		{"billion laughs, states", level("N", 60, func(get string) string { return object + get + "\x85\x81" + get + "b" }), ErrTooLarge, ""},
		{"billion laughs, arguments", level("N", 60, func(get string) string { return object + get + get + "\x86R" }), ErrTooLarge, ""},
		{"one string a million times", "(" + str(long) + "\x94" + strings.Repeat("h\x00", 1<<16) + "l.", ErrTooLarge, ""},
		{"one integer a million times", "(\x8b" + u32(1700) + strings.Repeat("\x7f", 1700) + "\x94" + strings.Repeat("h\x00", 1<<16) + "l.", ErrTooLarge, ""},
		{"one class a million times", "(" + class(long[:4000], "C") + ")\x81\x94" + strings.Repeat("h\x00", 1<<16) + "l.", ErrTooLarge, ""},
		{"one value duplicated", "(" + str(long[:1000]) + strings.Repeat("2", 1<<16) + "l.", ErrTooLarge, ""},
	}
}

// convertCorpus is ToJSON, with smaller bounds where all is slower.
func convertCorpus(s sample) ([]byte, error) {
	b := boundsFor(len(s.pickle), wire.MaxValueBytes, wire.MaxValueBytes)
	b.output /= slowdown
	return convert([]byte(s.pickle), false, b)
}

// Each sample of the corpus is refused or inert, and none takes long.
func TestHostileCorpus(t *testing.T) {
	samples := corpus()
	if len(samples) < 40 {
		t.Fatalf("%d samples", len(samples))
	}
	for _, s := range samples {
		start := time.Now()
		got, err := convertCorpus(s)
		took := time.Since(start)
		if s.err != nil && (!errors.Is(err, s.err) || got != nil) {
			t.Errorf("%s: %.200q, %v; want %v", s.name, got, err, s.err)
		}
		if s.err == nil && (err != nil || string(got) != s.json) {
			t.Errorf("%s: %.200q, %v; want %s", s.name, got, err, s.json)
		}
		if err != nil && len(err.Error()) > 20000 {
			t.Errorf("%s: an error text of %d bytes", s.name, len(err.Error()))
		}
		if took > 10*time.Second { // 0.3 s on an idle machine
			t.Errorf("%s: took %v", s.name, took)
		}
		if testing.Verbose() {
			t.Logf("%-40s %8.1f ms  %.120v %.80s", s.name, took.Seconds()*1000, err, got)
		}
	}
}

// The whole corpus, again in a process of its own, never needs much memory.
func TestHostileCorpusMemory(t *testing.T) {
	if os.Getenv("PICKLE_CORPUS") != "" {
		for _, s := range corpus() {
			if _, err := convertCorpus(s); err == nil && s.err != nil {
				t.Error(s.name)
			}
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHostileCorpusMemory$")
	cmd.Env = append(os.Environ(), "PICKLE_CORPUS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("no resource usage")
	}
	t.Logf("peak %d MiB", usage.Maxrss>>10)
	if usage.Maxrss>>10 > peakMiB {
		t.Errorf("a peak of %d MiB, of at most %d", usage.Maxrss>>10, peakMiB)
	}
}
