package pickle

import (
	"strings"
	"testing"
)

// What picklers other than CPython's C one write, and what CPython accepts.
func TestReadByHand(t *testing.T) {
	for _, c := range []struct{ name, pickle, json string }{
		{"ints of protocol 0", "(I1\nI-5\nI01\nI00\nL7L\nL-7\nL18446744073709551616L\nl.", `[1,-5,true,false,7,-7,18446744073709551616]`},
		{"floats of protocol 0", "(F1.5\nF1e22\nF-0.0\nF5\nl.", `[1.5,1e+22,-0.0,5.0]`},
		{"a quoted string", "S'a\\\\\\'\\x41\\n\\t\"'\n.", `"a\\'A\n\t\""`},
		{"a string in double quotes", "S\"it's\" \n.", `"it's"`},
		{"counted Python 2 strings", "(U\x02abT\x01\x00\x00\x00cl.", `["ab","c"]`},
		{"raw escapes", "V\\u65e5\\U0001f600\\\\u0041\xe9\n.", `"日😀\\\\u0041é"`},
		{"memo in text", "((lp0\ng0\nl.", `[[],[]]`},
		{"puts with holes", "(K\x01q\x03h\x03r\x07\x00\x00\x00j\x07\x00\x00\x00l.", `[1,1,1]`},
		{"a dict of a mark", "(X\x01\x00\x00\x00aNd.", `{"a":null}`},
		{"a popped mark", "N(KK1(0(0.", `null`},
		{"duplicates", "(K\x022l.", `[2,2]`},
		{"an integer longer than needed", "(\x8a\x0a\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x8a\x09\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x8a\x00l.", `[1,-2,0]`},
		{"a frame that ends early", "\x80\x04\x95\x01\x00\x00\x00\x00\x00\x00\x00NN0.", `null`},
		{"reconstructor of a list class", "ccopy_reg\n_reconstructor\n(cm\nL\nc__builtin__\nlist\n(I1\nltR.", `{"$class":"m.L","args":[[1]],"state":null}`},
		{"newobj helpers", "(ccopyreg\n__newobj__\n(cm\nC\nI1\ntRccopyreg\n__newobj_ex__\n(cm\nC\n(I2\nt(I3\nI4\ndtRl.",
			`[{"$class":"m.C","args":[1],"state":null},{"$class":"m.C","args":[2],"kwargs":{"3":4},"state":null}]`},
		{"an enumeration without a form", "cm\nE\n(K\x01tR.", `{"$class":"m.E","args":[1],"state":null}`},
		{"a dict of a dict", "c__builtin__\ndict\n((VA\nNdtR.", `{"A":null}`},
		{"an old instance", "(im\nC\n(VA\nI1\ndb.", `{"$class":"m.C","state":{"A":1}}`},
		{"a UUID in protocol 0", "ccopy_reg\n_reconstructor\n(cuuid\nUUID\nc__builtin__\nobject\nNtR(Vint\nL255L\ndb.", `"00000000-0000-0000-0000-0000000000ff"`},
	} {
		got, err := ToJSON([]byte(c.pickle))
		if err != nil || string(got) != c.json {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.json)
		}
	}
}

// The bounds, by their values: a result of 256 MiB less 4 KiB is read, one byte more is not.
func TestBounds(t *testing.T) {
	b := boundsFor(1<<40, 268431360, 268431360)
	if want := (bounds{268431360, 268431360, 268431360, 200}); b != want {
		t.Errorf("bounds of a large input: %v, want %v", b, want)
	}
	if b, want := boundsFor(0, 268431360, 268431360), (bounds{268431360, 16777216, 33554432, 200}); b != want {
		t.Errorf("bounds of a small input: %v, want %v", b, want)
	}
	value := []byte("\x8e\x05\x00\x00\x00\x00\x00\x00\x00hello.")
	b = bounds{input: len(value), memory: 1 << 10, output: 10, depth: 1}
	if got, err := convert(value, false, b); err != nil || string(got) != `"aGVsbG8="` {
		t.Errorf("at the bounds: %s, %v", got, err)
	}
	for name, less := range map[string]bounds{
		"bytes":  {input: len(value) - 1, memory: 1 << 10, output: 10},
		"memory": {input: len(value), memory: 15, output: 10},
		"output": {input: len(value), memory: 1 << 10, output: 9},
	} {
		if got, err := convert(value, false, less); err == nil || !strings.Contains(err.Error(), ErrTooLarge.Error()) {
			t.Errorf("below the bound of %s: %s, %v", name, got, err)
		}
	}
}
